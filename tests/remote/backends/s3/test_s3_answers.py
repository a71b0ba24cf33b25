"""S3 store and answers that a sound server rarely gives."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.fakes.clock import FakeClock
from tests.remote.backends.s3.s3_stores import s3_store
from tests.remote.backends.s3.scripted_s3 import Answer, ScriptedS3, listed_uploads, refusal, scripted_s3
from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.kernels import crc32c
from tierd.remote import FileBody
from tierd.remote.backends import part_buffers
from tierd.remote.backends.part_buffers import PartBuffer
from tierd.remote.backends.s3 import S3ObjectStore
from tierd.remote.backends.s3.s3_settings import ObjectOptions
from tierd.remote.deadlines import Deadlines
from tierd.remote.retrying import Retry, RetryingObjectStore
from tierd.testing import chunked_body, chunks_of, content_of, file_body

PART_SIZE = 5 << 20
SIZE = 2 * PART_SIZE + 3
CONTENT = content_of(SIZE)
OPEN = "<CompleteMultipartUploadResult><ETag>&quot;x-3&quot;</ETag></CompleteMultipartUploadResult>"


def encoded(crc: int) -> str:
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


COMPOSITE = (
    encoded(
        crc32c(b"".join(crc32c(CONTENT[at : at + PART_SIZE]).to_bytes(4, "big") for at in range(0, SIZE, PART_SIZE)))
    )
    + "-3"
)


@pytest.fixture
async def script() -> AsyncIterator[ScriptedS3]:
    async with scripted_s3() as script:
        yield script


@pytest.fixture
async def store(script: ScriptedS3) -> AsyncIterator[S3ObjectStore]:
    store = scripted_store(script)
    yield store
    await store.close()


def scripted_store(
    script: ScriptedS3, *, deadlines: Deadlines | None = None, max_concurrency: int = 4
) -> S3ObjectStore:
    return s3_store(
        bucket="tier",
        endpoint_url=script.endpoint_url,
        region="us-east-1",
        access_key_id="key",
        secret_access_key="secret",
        path_style=True,
        part_size=PART_SIZE,
        max_concurrency=max_concurrency,
        options=ObjectOptions(storage_class="STANDARD_IA"),
        retry=Retry(clock=FakeClock(), attempts=3),
        deadlines=deadlines or Deadlines(),
    )


@asynccontextmanager
async def closing(store: S3ObjectStore) -> AsyncIterator[S3ObjectStore]:
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def large(tmp_path: Path) -> FileBody:
    return file_body(tmp_path / "segment", CONTENT)


async def test_a_busy_store_may_be_asked_again(store: S3ObjectStore, script: ScriptedS3) -> None:
    script.answer("put", refusal(503, "SlowDown"))
    with pytest.raises(RetriableRemoteStorageError, match="SlowDown"):
        await store.put("key", b"content")
    assert script.requests == ["put"], "the client library repeats nothing by itself"


async def test_a_skewed_clock_is_named(store: S3ObjectStore, script: ScriptedS3) -> None:
    script.answer("list", refusal(403, "RequestTimeTooSkewed", Date="Sun, 01 Mar 2020 12:00:00 GMT"))
    with pytest.raises(RemoteAccessError, match=r"clock of http://127\.0\.0\.1:.* says 2020-03-01 12:00:00 UTC"):
        await store.check()


async def test_the_right_region_is_named_and_not_followed(store: S3ObjectStore, script: ScriptedS3) -> None:
    script.answer("list", refusal(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1"))
    script.answer("put", refusal(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1"))
    script.answer("head", Answer(301, "", {"x-amz-bucket-region": "eu-west-1"}))
    for call in (store.check(), store.put("key", b"content"), store.head("key")):
        with pytest.raises(RemoteAccessError, match="is in region eu-west-1, not in us-east-1"):
            await call
    assert script.requests == ["list", "put", "head"]


async def test_a_malformed_authorization_names_the_region(store: S3ObjectStore, script: ScriptedS3) -> None:
    script.answer("get", refusal(400, "AuthorizationHeaderMalformed", "<Region>ap-south-1</Region>"))
    with pytest.raises(RemoteAccessError, match="is in region ap-south-1"):
        await store.get("key")


@pytest.mark.parametrize("body", ["<html>Bad gateway</html>", "not XML", ""])
async def test_page_of_a_proxy_is_reported_as_no_answer(store: S3ObjectStore, script: ScriptedS3, body: str) -> None:
    script.answer("list", Answer(502, body))
    with pytest.raises(RetriableRemoteStorageError):
        await store.check()


async def test_a_listing_that_cannot_be_parsed_may_be_asked_again(store: S3ObjectStore, script: ScriptedS3) -> None:
    script.answer("list", Answer(200, "<html>sign in to the network</html"))
    with pytest.raises(RetriableRemoteStorageError):
        await store.list_objects("")


async def test_a_store_without_conditional_writes_is_refused(store: S3ObjectStore, script: ScriptedS3) -> None:
    script.answer("put", refusal(501, "NotImplemented"))
    with pytest.raises(RemoteStorageError, match="NotImplemented") as refused:
        await store.put("key", b"content")
    assert "If-None-Match" in refused.value.remedy
    assert not refused.value.retriable


async def test_part_that_failed_is_sent_again_without_the_others(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    good = Answer(200, "", {"ETag": '"tag"'})
    script.answer("upload_part", good, refusal(503, "SlowDown"), good)
    script.answer("complete_upload", Answer(200, OPEN))
    await store.put("key", large)
    assert script.requests == ["create_upload"] + ["upload_part"] * 4 + ["complete_upload"]
    complete = script.headers["complete_upload"][0]
    assert complete["If-None-Match"] == "*"
    assert complete["x-amz-checksum-crc32c"] == encoded(crc32c(CONTENT))
    assert script.headers["create_upload"][0]["x-amz-storage-class"] == "STANDARD_IA"


@pytest.mark.parametrize("failure", [refusal(503, "SlowDown"), Answer(hang_up=True)], ids=["refused", "cut"])
async def test_chunks_whose_part_failed_are_sent_again_from_memory_that_later_parts_use(
    script: ScriptedS3, failure: Answer
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    good = Answer(200, "", {"ETag": '"tag"'})
    script.answer("upload_part", failure, good, good, failure, failure, good)
    script.answer("complete_upload", Answer(200, OPEN))
    content = content_of(4 * PART_SIZE + 3)
    async with closing(scripted_store(script, max_concurrency=2)) as store:
        await store.put("key", chunked_body(chunks_of(content, 1 << 20)))
    assert script.requests.count("upload_part") == 8
    assert b"".join(script.parts[number] for number in range(1, 6)) == content


async def test_client_library_keeps_no_view_of_parts_that_were_sent(
    script: ScriptedS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[PartBuffer] = []

    def make(size_bytes: int) -> PartBuffer:
        made.append(PartBuffer(size_bytes))
        return made[-1]

    monkeypatch.setattr(part_buffers, "PartBuffer", make)
    script.begin_uploads(checksum_type="FULL_OBJECT")
    script.answer("complete_upload", Answer(200, OPEN))
    async with closing(scripted_store(script, max_concurrency=2)) as store:
        await store.put("key", chunked_body(chunks_of(content_of(6 * PART_SIZE), 1 << 20)))
    assert len(made) == 2, "a view that is left costs fresh memory for each part"


async def test_an_upload_whose_part_keeps_failing_is_aborted(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    script.answer("upload_part", refusal(500, "InternalError"))
    with pytest.raises(RetriableRemoteStorageError, match="InternalError"):
        await store.put("key", large)
    assert script.requests.count("abort_upload") == 1


async def test_an_upload_that_a_late_part_brings_back_is_aborted_again(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    script.answer("upload_part", refusal(403, "AccessDenied"))
    script.answer("list_uploads", listed_uploads("another", "id-1"), listed_uploads("another"))
    with pytest.raises(RemoteAccessError):
        await store.put("key", large)
    assert script.requests.count("abort_upload") == 2


async def test_abort_after_a_part_has_had_all_attempts_is_itself_attempted_again(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    script.answer("upload_part", refusal(503, "SlowDown"))
    script.answer("abort_upload", refusal(503, "SlowDown"), refusal(503, "SlowDown"), Answer(204))
    with pytest.raises(RetriableRemoteStorageError, match="SlowDown"):
        await RetryingObjectStore(store, Retry(clock=FakeClock(), attempts=3)).put("key", large)
    assert script.requests.count("abort_upload") == 3
    assert script.requests.count("create_upload") == 1


async def test_abort_that_always_fails_does_not_keep_the_upload_from_beginning_anew(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    good = Answer(200, "", {"ETag": '"tag"'})
    script.answer("upload_part", refusal(404, "NoSuchUpload"), good)
    script.answer("abort_upload", refusal(503, "SlowDown"))
    script.answer("head", Answer(404))
    script.answer("complete_upload", Answer(200, OPEN))
    await RetryingObjectStore(store, Retry(clock=FakeClock(), attempts=3)).put("key", large)
    assert script.requests.count("create_upload") == 2


@pytest.mark.parametrize("cancellations", [1, 3])
@pytest.mark.parametrize("in_memory", [False, True], ids=["file", "chunks"])
async def test_cancelled_put_ends_after_the_parts_that_the_store_has_whole(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody, *, in_memory: bool, cancellations: int
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    written = asyncio.Event()
    script.answer("upload_part", Answer(200, "", {"ETag": '"tag"'}, after=written))
    body = chunked_body(chunks_of(CONTENT, 1 << 20)) if in_memory else large
    task = asyncio.create_task(store.put("key", body))
    while "upload_part" not in script.requests:
        script.noted.clear()
        await script.noted.wait()
    for _ in range(cancellations):
        task.cancel()
        await asyncio.sleep(0)
    if cancellations == 1:
        assert "abort_upload" not in script.requests
        assert not task.done(), "the store would write the part after the abort"
    written.set()
    await asyncio.wait({task})
    assert task.cancelled()
    await store.close()
    await script.settled()
    assert script.requests.count("abort_upload") == 1
    assert script.unfinished == set()


async def test_cancelled_put_ends_although_the_store_never_answers_a_part(script: ScriptedS3, large: FileBody) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    script.answer("upload_part", Answer(200, after=(never := asyncio.Event())))
    store = scripted_store(script, deadlines=Deadlines(base_s=3.0))
    task = asyncio.create_task(store.put("key", large))
    while "upload_part" not in script.requests:
        script.noted.clear()
        await script.noted.wait()
    task.cancel()
    await asyncio.wait({task})
    await store.close()
    assert script.requests.count("abort_upload") == 1
    never.set()


async def test_a_refusal_ends_the_upload_at_once(store: S3ObjectStore, script: ScriptedS3, large: FileBody) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    script.answer("upload_part", refusal(403, "AccessDenied"))
    with pytest.raises(RemoteAccessError):
        await store.put("key", large)
    assert script.requests.count("abort_upload") == 1
    assert script.requests.count("upload_part") <= 3


async def test_failure_of_an_upload_is_reported_although_its_abort_fails(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    script.answer("upload_part", refusal(403, "AccessDenied"))
    script.answer("abort_upload", refusal(500, "InternalError"))
    with pytest.raises(RemoteAccessError):
        await store.put("key", large)


async def test_an_older_store_gets_composite_checksums(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody
) -> None:
    script.begin_uploads(checksum_type=None)
    script.answer("complete_upload", Answer(200, OPEN))
    await store.put("key", large)
    assert "x-amz-checksum-crc32c" not in script.headers["complete_upload"][0]
    part = script.headers["upload_part"][0]
    assert part["x-amz-checksum-crc32c"] in {
        encoded(crc32c(CONTENT[at:][:PART_SIZE])) for at in range(0, SIZE, PART_SIZE)
    }
    assert part["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"


@pytest.mark.parametrize("checksum", [encoded(crc32c(CONTENT)), COMPOSITE])
async def test_a_lost_reply_to_the_completion_is_success_when_the_object_is_ours(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody, checksum: str
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    script.answer("complete_upload", Answer(hang_up=True), refusal(404, "NoSuchUpload"))
    script.answer("head", Answer(200, "", {"Content-Length": str(SIZE), "x-amz-checksum-crc32c": checksum}))
    await store.put("key", large)
    assert script.requests.count("complete_upload") == 2
    assert script.requests[-1] == "head"


async def test_upload_that_another_caller_aborted_begins_anew(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    script.answer("upload_part", refusal(404, "NoSuchUpload"))
    script.answer("head", Answer(404))
    with pytest.raises(RetriableRemoteStorageError, match="NoSuchUpload"):
        await store.put("key", large)


@pytest.mark.parametrize(
    "answer", [refusal(400, "InvalidPart"), refusal(409, "ConditionalRequestConflict")], ids=["lost-part", "race"]
)
async def test_completion_that_a_repetition_cannot_mend_makes_the_upload_begin_anew(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody, answer: Answer
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    script.answer("complete_upload", answer, answer, answer, Answer(200, OPEN))
    script.answer("head", Answer(404))
    retrying = RetryingObjectStore(store, Retry(clock=FakeClock(), attempts=5))
    await retrying.put("key", large)
    assert script.requests.count("create_upload") == 4
    assert script.requests.count("complete_upload") == 4
    assert script.requests.count("abort_upload") == 3


async def test_a_completion_that_fails_after_its_headers_may_be_asked_again(
    store: S3ObjectStore, script: ScriptedS3, large: FileBody
) -> None:
    script.begin_uploads(checksum_type="FULL_OBJECT")
    broken = Answer(200, "<Error><Code>InternalError</Code><Message>while assembling</Message></Error>")
    script.answer("complete_upload", broken, Answer(200, OPEN))
    await store.put("key", large)
    assert script.requests.count("complete_upload") == 2


@pytest.mark.parametrize("checksum", [None, "AAAAAA==-7"])
async def test_object_without_a_checksum_is_read_back_for_comparison(
    store: S3ObjectStore, script: ScriptedS3, checksum: str | None
) -> None:
    told = {"x-amz-checksum-crc32c": checksum} if checksum else {}
    script.answer("put", refusal(412, "PreconditionFailed"))
    script.answer("head", Answer(200, "", {"Content-Length": "7", **told}))
    script.answer("get", Answer(206, "content"))
    await store.put("key", b"content")
    with pytest.raises(RemoteConflictError):
        await store.put("key", b"another")


async def test_another_checksum_or_size_is_a_conflict_without_reading(store: S3ObjectStore, script: ScriptedS3) -> None:
    script.answer("put", refusal(412, "PreconditionFailed"))
    script.answer("head", Answer(200, "", {"Content-Length": "7", "x-amz-checksum-crc32c": "AAAAAA=="}))
    with pytest.raises(RemoteConflictError):
        await store.put("key", b"content")
    with pytest.raises(RemoteConflictError):
        await store.put("key", b"longer content")
    assert "get" not in script.requests


async def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch, script: ScriptedS3) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    store = s3_store(bucket="tier", endpoint_url=script.endpoint_url, region="us-east-1")
    with pytest.raises(RemoteAccessError, match="credentials") as refused:
        await store.check()
    assert "remote.s3.access_key_id" in refused.value.remedy
    await store.close()


@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_certificates_that_cannot_be_loaded_are_named(
    tmp_path: Path, script: ScriptedS3, content: str | None
) -> None:
    ca_file = tmp_path / "ca.pem"
    if content is not None:
        ca_file.write_text(content)
    store = s3_store(
        bucket="tier",
        endpoint_url=script.endpoint_url.replace("http:", "https:"),
        region="us-east-1",
        access_key_id="key",
        secret_access_key="secret",
        ca_file=ca_file,
    )
    with pytest.raises(RemoteAccessError, match=r"ca\.pem") as refused:
        await store.check()
    assert "remote.s3.ca_file" in refused.value.remedy
    await store.close()


@pytest.mark.parametrize("part_size", [0, 1 << 20, (5 << 20) + 1])
def test_a_part_size_that_s3_would_refuse_is_refused(part_size: int) -> None:
    with pytest.raises(ValueError, match="part_size"):
        s3_store(bucket="tier", part_size=part_size)


async def test_unfinished_uploads_with_odd_keys_are_listed_page_by_page(
    store: S3ObjectStore, script: ScriptedS3
) -> None:
    """A bucket writer can begin an upload under a key that XML cannot carry. The listing of uploads goes on."""

    def page(key: str, more: str) -> Answer:
        upload = f"<Upload><Key>{key}</Key><UploadId>1</UploadId><Initiated>2026-01-01T00:00:00Z</Initiated></Upload>"
        head = "<EncodingType>url</EncodingType><Prefix>a%2Bb/</Prefix>"
        return Answer(200, f"<ListMultipartUploadsResult>{head}{upload}{more}</ListMultipartUploadsResult>")

    more = (
        "<IsTruncated>true</IsTruncated><NextKeyMarker>a%2Bb/%01+1</NextKeyMarker>"
        "<NextUploadIdMarker>1</NextUploadIdMarker>"
    )
    script.answer("list_uploads", page("a%2Bb/%01+1", more), page("a%2Bb/%252F", ""))
    uploads = await store.list_unfinished_uploads("a+b/")
    assert [upload.key for upload in uploads] == ["a+b/\x01 1", "a+b/%2F"]
    first, second = (parse_qs(urlsplit(path).query) for path in script.paths)
    assert first["encoding-type"] == ["url"]
    assert (second["key-marker"], second["upload-id-marker"]) == (["a+b/\x01 1"], ["1"])


async def test_unfinished_uploads_of_a_store_that_escapes_nothing_are_listed_as_they_are(
    store: S3ObjectStore, script: ScriptedS3
) -> None:
    upload = "<Upload><Key>a%20+b</Key><UploadId>1</UploadId><Initiated>2026-01-01T00:00:00Z</Initiated></Upload>"
    script.answer("list_uploads", Answer(200, f"<ListMultipartUploadsResult>{upload}</ListMultipartUploadsResult>"))
    assert [upload.key for upload in await store.list_unfinished_uploads("")] == ["a%20+b"]
