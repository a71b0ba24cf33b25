"""Options of objects in requests: encryption, storage class and tags; and the credentials that sign requests."""

import base64
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from aiohttp import web

from tests.remote.backends.s3.s3_stores import s3_store
from tests.remote.backends.s3.scripted_s3 import Answer, ScriptedS3, scripted_s3
from tests.services.s3 import S3Admin, S3Service
from tierd.errors import (
    RemoteAccessError,
    RemoteObjectRetainedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.model import ByteRange
from tierd.remote import Body
from tierd.remote.backends.s3 import S3ObjectStore
from tierd.remote.backends.s3.s3_settings import ObjectOptions, customer_key_of
from tierd.testing import chunked_body, chunks_of, content_of, file_body

PART_SIZE = 5 << 20
KEY = bytes(range(32))
LISTED = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"

Headers = list[Mapping[str, str]]
Open = Callable[..., S3ObjectStore]


@pytest.fixture
async def script() -> AsyncIterator[ScriptedS3]:
    async with scripted_s3() as script:
        script.begin_uploads(checksum_type="FULL_OBJECT")
        script.answer("complete_upload", Answer(200, "<CompleteMultipartUploadResult/>"))
        script.answer("put", Answer(200, "", {"ETag": '"tag"'}))
        script.answer("get", Answer(200, "content", {"ETag": '"tag"'}))
        script.answer("head", Answer(200, "", {"Content-Length": "7"}))
        script.answer("list", Answer(200, LISTED))
        yield script


@pytest.fixture
async def open_store(script: ScriptedS3) -> AsyncIterator[Open]:
    opened: list[S3ObjectStore] = []

    def open_one(**other: object) -> S3ObjectStore:
        settings: dict[str, Any] = {
            "bucket": "tier",
            "endpoint_url": script.endpoint_url,
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "secret",
            "path_style": True,
            "part_size": PART_SIZE,
        }
        opened.append(s3_store(**settings | other))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture(params=["bytes", "file", "large file", "chunks", "many chunks", "replacement"])
def creation(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[S3ObjectStore], Any]:
    """Return every way in which an object comes into being."""
    content, large = b"content", content_of(2 * PART_SIZE + 3)
    bodies: dict[str, Body] = {
        "bytes": content,
        "file": file_body(tmp_path / "small", content),
        "large file": file_body(tmp_path / "large", large),
        "chunks": chunked_body([content]),
        "many chunks": chunked_body(chunks_of(large, 1 << 20)),
    }
    if request.param == "replacement":
        return lambda store: store.replace("key", b"other", previous=b"content")
    return lambda store: store.put("key", bodies[request.param])


def created(script: ScriptedS3) -> Mapping[str, str]:
    """Return the headers of the request that decides how the object is kept."""
    return (script.headers["put"] or script.headers["create_upload"])[0]


async def test_requests_without_options_leave_the_choice_to_the_bucket(
    open_store: Open, script: ScriptedS3, creation: Callable[[S3ObjectStore], Any]
) -> None:
    await creation(open_store())
    kinds = ("x-amz-server-side", "x-amz-storage-class", "x-amz-tagging")
    for headers in (each for requests in script.headers.values() for each in requests):
        assert [name for name in headers if name.lower().startswith(kinds)] == []


async def test_every_object_carries_the_tags(
    open_store: Open, script: ScriptedS3, creation: Callable[[S3ObjectStore], Any]
) -> None:
    tags = {"team": "data & more", "cost center": "ü=1"}
    await creation(open_store(options=ObjectOptions(tags=tags)))
    assert parse_qs(created(script)["x-amz-tagging"]) == {name: [value] for name, value in tags.items()}


async def test_every_object_is_encrypted_with_the_stores_keys(
    open_store: Open, script: ScriptedS3, creation: Callable[[S3ObjectStore], Any]
) -> None:
    await creation(open_store(options=ObjectOptions(encryption="s3")))
    assert created(script)["x-amz-server-side-encryption"] == "AES256"


@pytest.mark.parametrize("key_id", ["arn:aws:kms:eu-west-1:1:key/a", None])
async def test_every_object_is_encrypted_with_the_named_key(
    open_store: Open, script: ScriptedS3, creation: Callable[[S3ObjectStore], Any], key_id: str | None
) -> None:
    await creation(open_store(options=ObjectOptions(encryption="kms", kms_key_id=key_id)))
    assert created(script)["x-amz-server-side-encryption"] == "aws:kms"
    assert created(script).get("x-amz-server-side-encryption-aws-kms-key-id") == key_id


async def test_a_customer_key_goes_along_with_every_request_for_bytes(
    open_store: Open, script: ScriptedS3, creation: Callable[[S3ObjectStore], Any]
) -> None:
    store = open_store(options=ObjectOptions(encryption="c", customer_key=KEY))
    await creation(store)
    await store.get("key")
    await store.get("key", ByteRange(0, 3))
    await store.head("key")
    expected = {
        "x-amz-server-side-encryption-customer-algorithm": "AES256",
        "x-amz-server-side-encryption-customer-key": base64.b64encode(KEY).decode(),
        "x-amz-server-side-encryption-customer-key-md5": base64.b64encode(hashlib.md5(KEY).digest()).decode(),
    }
    for operation in ("put", "create_upload", "upload_part", "complete_upload", "get", "head"):
        for headers in script.headers[operation]:
            assert {name: headers.get(name) for name in expected} == expected, operation


async def test_logs_have_the_storage_class_and_other_objects_have_not(
    open_store: Open, script: ScriptedS3, tmp_path: Path
) -> None:
    store = open_store(options=ObjectOptions(storage_class="GLACIER_IR"))
    await store.put("a.log", file_body(tmp_path / "a", b"records"))
    await store.put("b.log", chunked_body([b"records"]))
    await store.put("a.manifest", b"{}")
    assert [headers.get("x-amz-storage-class") for headers in script.headers["put"]] == [
        "GLACIER_IR",
        "GLACIER_IR",
        None,
    ]
    await store.put("c.log", chunked_body(chunks_of(content_of(PART_SIZE + 1), 1 << 20)))
    assert script.headers["create_upload"][0]["x-amz-storage-class"] == "GLACIER_IR"


def test_a_customer_key_is_not_sent_in_the_clear(open_store: Open) -> None:
    options = ObjectOptions(encryption="c", customer_key=KEY)
    with pytest.raises(RemoteStorageError, match="is not encrypted") as refused:
        open_store(options=options, endpoint_url="http://s3.example.com")
    assert "https://" in refused.value.remedy
    open_store(options=options, endpoint_url="https://s3.example.com")
    open_store(options=options, endpoint_url=None)


@pytest.mark.parametrize("text", ["not base64!", base64.b64encode(b"short").decode(), ""])
def test_text_that_is_no_customer_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="32 bytes") as refused:
        customer_key_of(text)
    assert not text or text not in str(refused.value)
    assert customer_key_of(base64.b64encode(KEY).decode() + "\n") == KEY
    assert base64.b64encode(KEY).decode() not in repr(ObjectOptions(encryption="c", customer_key=KEY))


async def test_temporary_keys_have_their_token(open_store: Open, script: ScriptedS3) -> None:
    await open_store(session_token="the token").check()
    assert script.headers["list"][0]["x-amz-security-token"] == "the token"


async def test_requests_go_through_the_configured_proxy(open_store: Open, script: ScriptedS3) -> None:
    store = open_store(endpoint_url="http://s3.example.com", proxy_url=script.endpoint_url)
    await store.check()
    assert script.headers["list"][0]["Host"] == "s3.example.com"


async def test_check_lists_below_its_prefix(open_store: Open, script: ScriptedS3) -> None:
    await open_store(check_prefix="tier/").check()
    assert script.paths[-1].endswith("prefix=tier/") or "prefix=tier%2F" in script.paths[-1]


# ---------------------------------------------------------------- whom it is signed for


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment in which nothing gives credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def signed_for(script: ScriptedS3) -> list[str]:
    """Return the access key of every listing."""
    return [each["Authorization"].partition("Credential=")[2].partition("/")[0] for each in script.headers["list"]]


@pytest.mark.usefixtures("no_credentials")
async def test_missing_credentials_are_named(open_store: Open) -> None:
    with pytest.raises(RemoteAccessError, match="no credentials") as refused:
        await open_store(access_key_id=None, secret_access_key=None).check()
    assert "remote.s3.access_key_id" in refused.value.remedy


@pytest.mark.usefixtures("no_credentials")
async def test_keys_of_the_environment_are_found(
    open_store: Open, script: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from-environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    await open_store(access_key_id=None, secret_access_key=None).check()
    assert signed_for(script) == ["from-environment"]
    assert script.headers["list"][0]["x-amz-security-token"] == "token"


@pytest.mark.usefixtures("no_credentials")
async def test_keys_of_a_profile_are_found(
    open_store: Open, script: ScriptedS3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "credentials"
    file.write_text("[tiering]\naws_access_key_id = from-profile\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "tiering")
    await open_store(access_key_id=None, secret_access_key=None).check()
    assert signed_for(script) == ["from-profile"]


@asynccontextmanager
async def credential_server(*, lifetime: timedelta) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve credentials as a container's agent does: new keys at each request."""
    given: list[str] = []

    async def give(request: web.Request) -> web.Response:
        given.append(f"temporary-{len(given) + 1}")
        expiration = datetime.now(UTC) + lifetime
        keys = {"AccessKeyId": given[-1], "SecretAccessKey": "secret", "Token": "token"}
        body = json.dumps({**keys, "Expiration": f"{expiration:%Y-%m-%dT%H:%M:%SZ}"})
        return web.Response(text=body, content_type="application/json")

    application = web.Application()
    application.router.add_get("/credentials", give)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}/credentials", given
    finally:
        await runner.cleanup()


Serving = AbstractAsyncContextManager[tuple[str, list[str]]]


@pytest.mark.usefixtures("no_credentials")
@pytest.mark.parametrize(
    ("lifetime", "asked"), [(timedelta(hours=6), ["temporary-1"] * 2), (timedelta(seconds=5), None)]
)
async def test_keys_of_a_role_are_renewed_before_they_expire(
    open_store: Open,
    script: ScriptedS3,
    monkeypatch: pytest.MonkeyPatch,
    lifetime: timedelta,
    asked: list[str] | None,
) -> None:
    serving: Serving = credential_server(lifetime=lifetime)
    async with serving as (url, given):
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
        store = open_store(access_key_id=None, secret_access_key=None)
        await store.check()
        await store.check()
        if asked is None:
            assert signed_for(script)[0] != signed_for(script)[1]
            assert len(given) > 1
        else:
            assert signed_for(script) == asked
        await store.close()


@pytest.mark.usefixtures("no_credentials")
async def test_a_role_that_cannot_be_asked_is_tried_again(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:9/credentials")
    monkeypatch.setattr("aiobotocore.utils.AioContainerMetadataFetcher.RETRY_ATTEMPTS", 1)
    with pytest.raises(RetriableRemoteStorageError, match="credentials"):
        await open_store(access_key_id=None, secret_access_key=None).check()


# ---------------------------------------------------------------- Object Lock


@pytest.mark.service("s3")
async def test_a_bucket_with_retention_takes_everything_and_hides_what_is_deleted(
    open_store: Open, s3_service: S3Service, s3_admin: S3Admin, tmp_path: Path
) -> None:
    store = open_store(
        bucket=s3_admin.create_locked_bucket(),
        endpoint_url=s3_service.endpoint_url,
        access_key_id=s3_service.access_key_id,
        secret_access_key=s3_service.secret_access_key,
    )
    large = content_of(2 * PART_SIZE + 3)
    await store.put("small", b"content")
    await store.put("large", file_body(tmp_path / "large", large))
    await store.put("chunks", chunked_body(chunks_of(large, 1 << 20)))
    for key in ("small", "large", "chunks"):
        await store.delete(key)  # a marker hides it; the bucket's lifecycle rules remove the version
    assert await store.list_objects("") == []
    with pytest.raises(RemoteResourceNotFoundError):
        await store.get("small")


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "AccessDenied", "Access Denied because object protected by object lock."),
        (400, "InvalidRequest", "Object is WORM protected and cannot be overwritten"),
        (403, "AccessDenied", "the object is under legal hold"),
    ],
)
async def test_deletion_that_retention_refuses_is_classified_as_retained(
    open_store: Open, script: ScriptedS3, status: int, code: str, message: str
) -> None:
    script.answer("delete", Answer(status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"))
    with pytest.raises(RemoteObjectRetainedError) as refused:
        await open_store().delete("key")
    assert not refused.value.retriable
    script.answer("delete", Answer(403, "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"))
    with pytest.raises(RemoteAccessError):
        await open_store().delete("key")
