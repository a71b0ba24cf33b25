"""GCS store and answers that an emulator rarely gives, and credentials."""

import asyncio
import base64
import gzip
import json
import tracemalloc
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.fakes.clock import FakeClock
from tierd.errors import (
    ObjectVersionsUnknownError,
    RemoteAccessError,
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteObjectRetainedError,
    RemoteObjectTooLargeError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.kernels import crc32c
from tierd.model import ByteRange
from tierd.remote import ObjectKind, ObjectVersion, read_whole
from tierd.remote.backends.answers import UploadGoneError
from tierd.remote.backends.client_settings import PartLimits
from tierd.remote.backends.gcs import GcsObjectStore
from tierd.remote.backends.gcs.gcs_errors import GcsRefusal, error_for
from tierd.remote.retrying import Retry
from tierd.testing import chunked_body, chunks_of, content_of, file_body

PART_SIZE = 1 << 20
CONTENT = content_of(3 * PART_SIZE + 5)

Handler = Callable[[web.Request], web.StreamResponse]
OpenStore = Callable[..., GcsObjectStore]


def encoded(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


class ScriptedGcs:
    """Keeps one resumable upload and answers the rest as told; notes every request."""

    def __init__(self) -> None:
        self.endpoint_url = ""
        self.requests: list[str] = []
        self.authorizations: list[str] = []
        self.tokens = 0
        self.kept = bytearray()
        self.begun = b""
        self.damages = False
        self.answers: dict[str, list[Handler]] = defaultdict(list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        content = await request.read()
        kind = _kind(request)
        self.requests.append(kind)
        self.authorizations.append(request.headers.get("Authorization", ""))
        if self.answers[kind]:
            return self.answers[kind].pop(0)(request)
        if kind == "token":
            self.tokens += 1
            return web.json_response({"access_token": f"token-{self.tokens}", "expires_in": 3600})
        if kind == "begin":
            self.begun = content
            return web.Response(headers={"Location": f"{self.endpoint_url}/upload/session"})
        if kind == "part":
            return self.keep(request.headers["Content-Range"], content)
        if kind == "list":
            return web.json_response({})
        return web.Response(status=204)

    def keep(self, content_range: str, content: bytes) -> web.Response:
        """Take one part, or tell how far it got."""
        span, _, total = content_range.removeprefix("bytes ").partition("/")
        if span != "*":
            assert int(span.partition("-")[0]) == len(self.kept), "no gap, and nothing twice"
            self.kept += content
        if total == str(len(self.kept)):
            return web.json_response(described(bytes(len(self.kept)) if self.damages else bytes(self.kept)))
        return web.Response(status=308, headers={"Range": f"bytes=0-{len(self.kept) - 1}"} if self.kept else {})


def described(content: bytes) -> dict[str, str]:
    return {
        "name": "key",
        "size": str(len(content)),
        "crc32c": encoded(crc32c(content)),
        "generation": "7",
        "timeCreated": "2026-01-02T03:04:05.678Z",
    }


def refusal(status: int, message: str, reason: str = "") -> Handler:
    body = {"error": {"code": status, "message": message, "errors": [{"reason": reason}]}}
    return lambda _: web.json_response(body, status=status)


def _kind(request: web.Request) -> str:
    match request.method, request.path:
        case "POST", "/token":
            return "token"
        case "POST", _:
            return "begin" if request.query["uploadType"] == "resumable" else "insert"
        case "PUT", _:
            return "part"
        case "DELETE", "/upload/session":
            return "abort"
        case "DELETE", _:
            return "delete"
        case "GET", path if path.endswith("/o"):
            return "list"
        case _:
            return "get" if request.query.get("alt") == "media" else "head"


@pytest.fixture
async def script() -> AsyncIterator[ScriptedGcs]:
    script = ScriptedGcs()
    application = web.Application(client_max_size=1 << 30)
    application.router.add_route("*", "/{path:.*}", script.handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    script.endpoint_url = f"http://{host}:{port}"
    yield script
    await runner.cleanup()


@pytest.fixture
async def open_store(script: ScriptedGcs) -> AsyncIterator[OpenStore]:
    opened: list[GcsObjectStore] = []

    def open_one(**other: object) -> GcsObjectStore:
        settings: dict[str, Any] = {
            "bucket": "tier",
            "endpoint_url": script.endpoint_url,
            "parts": PartLimits(part_size=PART_SIZE),
            "retry": Retry(clock=FakeClock(), attempts=3),
        }
        opened.append(GcsObjectStore(**settings | other))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
def store(open_store: OpenStore) -> GcsObjectStore:
    return open_store()


async def test_repetition_of_a_part_sends_the_bytes_that_the_store_lacks(
    store: GcsObjectStore, script: ScriptedGcs
) -> None:
    def swallow(request: web.Request) -> web.StreamResponse:
        script.kept += CONTENT[PART_SIZE : PART_SIZE + (256 << 10)]
        return web.Response(status=503)

    script.answers["part"] = [lambda r: script.keep(r.headers["Content-Range"], CONTENT[:PART_SIZE]), swallow]
    await store.put("key", chunked_body(chunks_of(CONTENT, 1 << 18)))
    assert bytes(script.kept) == CONTENT
    assert script.requests.count("begin") == 1


async def test_a_part_of_which_only_some_is_kept_is_continued(store: GcsObjectStore, script: ScriptedGcs) -> None:
    def keep_some(request: web.Request) -> web.StreamResponse:
        script.kept += CONTENT[: 256 << 10]
        return web.Response(status=308, headers={"Range": f"bytes=0-{(256 << 10) - 1}"})

    script.answers["part"] = [keep_some]
    await store.put("key", chunked_body(chunks_of(CONTENT, 1 << 18)))
    assert bytes(script.kept) == CONTENT


async def test_an_upload_that_fails_is_aborted(store: GcsObjectStore, script: ScriptedGcs) -> None:
    script.answers["part"] = [refusal(403, "not allowed")]
    with pytest.raises(RemoteAccessError, match="not allowed"):
        await store.put("key", chunked_body(chunks_of(CONTENT, 1 << 18)))
    assert script.requests[-1] == "abort"


async def test_an_upload_that_is_cancelled_is_aborted(store: GcsObjectStore, script: ScriptedGcs) -> None:
    reached = asyncio.Event()

    async def pace(size_bytes: int) -> None:
        if len(script.kept) >= PART_SIZE:
            reached.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(store.put("key", chunked_body(chunks_of(CONTENT, 1 << 18), pace=pace)))
    await reached.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({task})
    assert task.cancelled()
    await store.close()
    assert script.requests[-1] == "abort"


async def test_an_upload_that_is_gone_begins_anew(store: GcsObjectStore, script: ScriptedGcs) -> None:
    script.answers["part"] = [refusal(410, "gone")]
    script.answers["head"] = [refusal(404, "No such object")]
    with pytest.raises(RetriableRemoteStorageError):
        await store.put("key", chunked_body(chunks_of(CONTENT, 1 << 18)))


@pytest.mark.parametrize("size", [100, len(CONTENT)])
async def test_object_that_arrives_damaged_is_deleted(store: GcsObjectStore, script: ScriptedGcs, size: int) -> None:
    script.answers["insert"] = [lambda _: web.json_response(described(b"x" * 100))]
    script.damages = True
    with pytest.raises(RemoteIntegrityError, match="were sent"):
        await store.put("key", chunked_body([CONTENT[:size]]))
    assert "delete" in script.requests


async def test_checksum_of_a_file_is_sent_when_its_upload_begins(
    store: GcsObjectStore, script: ScriptedGcs, tmp_path: Path
) -> None:
    await store.put("key", file_body(tmp_path / "segment", CONTENT))
    assert bytes(script.kept) == CONTENT
    assert json.loads(script.begun) == {"name": "key", "crc32c": encoded(crc32c(CONTENT))}


async def test_an_answer_that_arrives_damaged_is_asked_for_again(store: GcsObjectStore, script: ScriptedGcs) -> None:
    wrong = {"X-Goog-Hash": f"crc32c={encoded(crc32c(b'other'))}"}
    right = {"X-Goog-Hash": f"crc32c={encoded(crc32c(b'content'))},md5=x"}
    script.answers["get"] = [
        lambda _: web.Response(body=b"content", headers=wrong),
        lambda _: web.Response(body=b"content", headers=right),
    ]
    with pytest.raises(RetriableRemoteStorageError, match="do not match"):
        await store.get("key")
    assert await store.get("key") == b"content"


async def test_object_that_the_store_unpacks_on_its_way_is_read_up_to_its_limit(
    store: GcsObjectStore, script: ScriptedGcs
) -> None:
    """An object that was stored as gzip is sent whole whatever range was asked for."""
    bomb = gzip.compress(bytes(64 << 20))
    script.answers["get"] = [lambda _: web.Response(body=bomb, headers={"Content-Encoding": "gzip"})] * 2
    assert await store.get("key", ByteRange.of_size(0, 70_000)) == bytes(70_000)
    kind = ObjectKind("tombstone", 64 << 10)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteObjectTooLargeError, match="key has more than 65536 bytes"):
            await read_whole(store, "key", kind)
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()


async def test_page_of_a_proxy_is_reported_as_no_answer(store: GcsObjectStore, script: ScriptedGcs) -> None:
    script.answers["list"] = [lambda _: web.Response(text="<html>sign in</html>", content_type="text/html")]
    with pytest.raises(RetriableRemoteStorageError):
        await store.list_objects("")


@pytest.mark.parametrize(
    ("operation", "status", "message", "reason", "kind"),
    [
        ("get", 404, "No such object: b/key", "notFound", RemoteResourceNotFoundError),
        ("get", 404, "The specified bucket does not exist.", "notFound", RemoteAccessError),
        ("list", 404, "Not Found", "notFound", RemoteAccessError),
        ("upload part", 404, "", "", UploadGoneError),
        ("upload part", 410, "", "", UploadGoneError),
        ("put", 412, "At least one of the pre-conditions did not hold", "conditionNotMet", RemoteConflictError),
        ("put", 401, "Invalid Credentials", "authError", RemoteAccessError),
        ("put", 403, "does not have storage.objects.create access", "forbidden", RemoteAccessError),
        ("put", 403, "Rate limit exceeded", "rateLimitExceeded", RetriableRemoteStorageError),
        ("put", 429, "slow down", "", RetriableRemoteStorageError),
        ("put", 503, "backend error", "backendError", RetriableRemoteStorageError),
        ("put", 501, "not implemented", "", RemoteStorageError),
        ("put", 400, "Provided CRC32C doesn't match calculated CRC32C", "invalid", RemoteIntegrityError),
        ("put", 400, "Bad Request", "invalid", RemoteStorageError),
        (
            "delete",
            403,
            "Object 'b/key' is subject to bucket's retention policy and cannot be deleted",
            "retentionPolicyNotMet",
            RemoteObjectRetainedError,
        ),
        ("delete", 403, "Object is under active Temporary hold", "objectUnderActiveHold", RemoteObjectRetainedError),
    ],
)
def test_refusals_are_classified_by_status_and_reason(
    operation: str, status: int, message: str, reason: str, kind: type[RemoteStorageError]
) -> None:
    text = "Reason: " + json.dumps({"error": {"message": message, "errors": [{"reason": reason}]}})
    error = error_for(GcsRefusal(operation=operation, bucket="b", key="key", status=status, text=text))
    assert type(error) is kind
    assert message in str(error)
    assert error.remedy


def test_an_answer_that_is_no_json_is_shown() -> None:
    refused = GcsRefusal(operation="get", bucket="b", key="k", status=502, text="<html>Bad\n gateway</html>")
    assert str(refused) == "get gs://b/k: 502 <html>Bad gateway</html>"


# ---------------------------------------------------------------- credentials


@pytest.fixture
def service_account(tmp_path: Path, script: ScriptedGcs) -> Path:
    """Return a key of a service account whose tokens the scripted server gives."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    fields = {
        "type": "service_account",
        "client_email": "tierd@example.com",
        "private_key_id": "1",
        "private_key": key.decode(),
        "token_uri": f"{script.endpoint_url}/token",
    }
    file = tmp_path / "account.json"
    file.write_text(json.dumps(fields))
    return file


@pytest.fixture
def real_root(monkeypatch: pytest.MonkeyPatch, script: ScriptedGcs) -> None:
    """Let the scripted server be the real store, which wants a token."""
    monkeypatch.setattr("tierd.remote.backends.gcs.gcs_connection._ROOT", script.endpoint_url)


@pytest.mark.usefixtures("real_root")
async def test_a_service_account_gets_one_token_for_many_calls(
    open_store: OpenStore, script: ScriptedGcs, service_account: Path
) -> None:
    store = open_store(endpoint_url=None, credentials_file=service_account)
    await asyncio.gather(store.check(), store.list_objects("a"), store.delete("key"))
    script.answers["get"] = [lambda _: web.Response(body=b"content")]
    await store.get("key")
    assert script.requests.count("token") == 1
    assert {each for each in script.authorizations if each} == {"Bearer token-1"}


@pytest.mark.usefixtures("real_root")
async def test_cancelled_caller_does_not_fail_others_that_wait_for_the_same_token(
    open_store: OpenStore, service_account: Path
) -> None:
    store = open_store(endpoint_url=None, credentials_file=service_account)
    first, second = asyncio.create_task(store.check()), asyncio.create_task(store.check())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait({first})
    await second


@pytest.mark.usefixtures("real_root")
async def test_a_refused_token_needs_a_person_and_a_busy_server_another_attempt(
    open_store: OpenStore, script: ScriptedGcs, service_account: Path
) -> None:
    store = open_store(endpoint_url=None, credentials_file=service_account)
    script.answers["token"] = [lambda _: web.Response(status=503), lambda _: web.Response(status=400)]
    with pytest.raises(RetriableRemoteStorageError, match="no access token"):
        await store.check()
    with pytest.raises(RemoteAccessError) as refused:
        await store.check()
    assert "remote.gcs.credentials_file" in refused.value.remedy
    await store.check()


@pytest.mark.usefixtures("real_root")
async def test_a_file_that_is_no_key_is_named(open_store: OpenStore, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"type": "service_account"}')
    for file in (tmp_path / "missing.json", wrong):
        with pytest.raises(RemoteAccessError, match=file.name):
            await open_store(endpoint_url=None, credentials_file=file).check()


async def test_an_emulator_is_asked_without_credentials(store: GcsObjectStore, script: ScriptedGcs) -> None:
    await store.check()
    assert script.requests == ["list"]
    assert script.authorizations == [""]


def page(*items: dict[str, str], following: str = "") -> Handler:
    more = {"nextPageToken": following} if following else {}
    return lambda _: web.json_response({"items": items, **more})


def generation(name: str, number: str, **more: str) -> dict[str, str]:
    return {"name": name, "generation": number, "size": "7", **more}


async def test_noncurrent_generations_and_soft_deleted_objects_are_listed(
    store: GcsObjectStore, script: ScriptedGcs
) -> None:
    gone = "2026-01-02T00:00:00Z"
    queries: list[dict[str, str]] = []

    def noted(handler: Handler) -> Handler:
        def handle(request: web.Request) -> web.StreamResponse:
            queries.append(dict(request.query))
            return handler(request)

        return handle

    soft = {"timeDeleted": gone, "softDeleteTime": gone, "hardDeleteTime": "2026-01-09T00:00:00Z"}
    script.answers["list"] = [
        noted(page(generation("a/2.log", "3"), following="more")),
        noted(page(generation("a/1.log", "1", timeDeleted=gone))),
        noted(page(generation("a/0.log", "0", **soft), generation("a/2.log", "3"))),
    ]
    found = await store.list_versions("a/")
    assert [(v.key, v.version_id, v.is_current, v.kept_until_ms) for v in found] == [
        ("a/0.log", "0", False, 1_767_916_800_000),
        ("a/1.log", "1", False, None),
        ("a/2.log", "3", True, None),
    ]
    assert [(q.get("versions"), q.get("softDeleted"), q.get("pageToken")) for q in queries] == [
        ("true", None, None),
        ("true", None, "more"),
        (None, "true", None),
    ]


async def test_one_generation_is_deleted_and_one_that_is_gone_is_no_error(
    store: GcsObjectStore, script: ScriptedGcs
) -> None:
    asked: list[str] = []

    def handle(request: web.Request) -> web.StreamResponse:
        asked.append(f"{request.path} {request.query['generation']}")
        return web.Response(status=204 if len(asked) == 1 else 404)

    script.answers["delete"] = [handle, handle]
    version = ObjectVersion(key="a/1.log", version_id="17", size_bytes=7, is_current=False)
    await store.delete_version(version)
    await store.delete_version(version)
    assert asked == ["/storage/v1/b/tier/o/a/1.log 17"] * 2


async def test_versions_are_unknown_without_the_right_to_list_them(store: GcsObjectStore, script: ScriptedGcs) -> None:
    script.answers["list"] = [refusal(403, "not allowed")]
    with pytest.raises(ObjectVersionsUnknownError, match="not allowed") as raised:
        await store.list_versions("a/")
    assert "storage.objects.list" in raised.value.remedy
