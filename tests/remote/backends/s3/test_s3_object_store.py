import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.fakes.clock import FakeClock
from tests.remote.backends.s3.s3_stores import s3_store
from tests.services.faulty_path import FaultyPath
from tests.services.s3 import S3Admin, S3Service
from tests.services.sockets import wait_disconnected
from tierd.errors import (
    ObjectVersionsUnknownError,
    RemoteAccessError,
    RemoteObjectRetainedError,
    RetriableRemoteStorageError,
    TierError,
)
from tierd.model import ByteRange
from tierd.remote import FileBody
from tierd.remote.backends.s3 import S3ObjectStore
from tierd.remote.deadlines import Deadlines
from tierd.remote.retrying import Retry, RetryingObjectStore
from tierd.testing import (
    LARGE_BYTES,
    KeptVersionsContract,
    ObjectStoreContract,
    ObjectVersionsContract,
    content_of,
    file_body,
    versions_left,
)

pytestmark = pytest.mark.service("s3")

PART_SIZE = 5 << 20

OpenStore = Callable[..., S3ObjectStore]


@pytest.fixture
async def open_store(s3_service: S3Service, s3_bucket: str) -> AsyncIterator[OpenStore]:
    """Opens stores on the bucket of this test, with other settings where given, and closes them."""
    opened: list[S3ObjectStore] = []

    def open_one(**other: object) -> S3ObjectStore:
        settings: dict[str, Any] = {
            "bucket": s3_bucket,
            "endpoint_url": s3_service.endpoint_url,
            "region": s3_service.region,
            "access_key_id": s3_service.access_key_id,
            "secret_access_key": s3_service.secret_access_key,
            "path_style": True,
            "part_size": PART_SIZE,
        }
        opened.append(s3_store(**settings | other))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
def store(open_store: OpenStore) -> S3ObjectStore:
    return open_store()


@pytest.fixture
def large(tmp_path: Path) -> FileBody:
    return file_body(tmp_path / "segment", content_of(LARGE_BYTES))


class TestS3ObjectStore(ObjectStoreContract, ObjectVersionsContract):
    @pytest.fixture
    def store(self, open_store: OpenStore) -> S3ObjectStore:
        return open_store()


class TestS3ObjectStoreWithVersions(KeptVersionsContract):
    @pytest.fixture
    def store(self, open_store: OpenStore, s3_admin: S3Admin) -> S3ObjectStore:
        return open_store(bucket=s3_admin.create_versioned_bucket())


async def test_locked_version_is_listed_and_its_deletion_is_refused(open_store: OpenStore, s3_admin: S3Admin) -> None:
    store = open_store(bucket=s3_admin.create_locked_bucket())
    await store.put("a/1.log", b"locked")
    await store.delete("a/1.log")
    (version,) = await versions_left(store)
    with pytest.raises(RemoteObjectRetainedError):
        await store.delete_version(version)
    assert await versions_left(store) == [version]


async def test_versions_are_unknown_without_the_right_to_list_them(
    open_store: OpenStore, s3_service: S3Service
) -> None:
    access_key, secret_key = s3_service.services.new_s3_user()
    store = open_store(access_key_id=access_key, secret_access_key=secret_key)
    with pytest.raises(ObjectVersionsUnknownError) as raised:
        await store.list_versions("")
    assert "s3:ListBucketVersions" in raised.value.remedy


async def test_a_multipart_object_has_the_checksum_of_the_whole(store: S3ObjectStore, large: FileBody) -> None:
    await store.put("large", large)
    await store.put("small", large.path.read_bytes())
    assert (await store.head("large")).crc32c == (await store.head("small")).crc32c is not None


async def test_a_multipart_object_is_recognised_with_another_part_size(
    store: S3ObjectStore, open_store: OpenStore, large: FileBody
) -> None:
    await store.put("key", large)
    await open_store(part_size=6 << 20).put("key", large)
    await open_store(part_size=100 << 20).put("key", large)


async def test_unfinished_uploads_are_listed_by_prefix_and_aborted(
    store: S3ObjectStore, s3_admin: S3Admin, s3_bucket: str
) -> None:
    for key in ("a/1", "a/2", "b/1"):
        s3_admin.begin_upload(s3_bucket, key)
    uploads = await store.list_unfinished_uploads("a/")
    assert [upload.key for upload in uploads] == ["a/1", "a/2"]
    assert all(upload.initiated_ms > 1_600_000_000_000 for upload in uploads)
    for upload in uploads:
        await store.abort_upload(upload)
        await store.abort_upload(upload)
    assert s3_admin.unfinished_uploads(s3_bucket) == ["b/1"]


async def test_requests_of_one_client_cost_no_more_the_more_it_has_sent(store: S3ObjectStore) -> None:
    await store.put("key", b"content")
    for _ in range(1 + sys.getrecursionlimit()):  # a wrapper that is wrapped anew would call itself as often
        await store.head("key")


async def test_a_missing_bucket_is_named(open_store: OpenStore, large: FileBody) -> None:
    store = open_store(bucket="no-such-bucket")
    for call in (store.check(), store.put("key", b"content"), store.put("key", large), store.get("key")):
        with pytest.raises(RemoteAccessError, match="has no bucket 'no-such-bucket'"):
            await call


async def test_a_wrong_secret_is_named(open_store: OpenStore) -> None:
    with pytest.raises(RemoteAccessError, match="SignatureDoesNotMatch") as refused:
        await open_store(secret_access_key="wrong").check()
    assert refused.value.remedy == "correct remote.s3.secret_access_key"


async def test_refusal_of_a_user_without_rights_names_the_rights(
    open_store: OpenStore, s3_service: S3Service, large: FileBody
) -> None:
    access_key, secret_key = s3_service.services.new_s3_user()
    store = open_store(access_key_id=access_key, secret_access_key=secret_key)
    for call in (store.check(), store.put("key", large), store.put("key", b"content")):
        with pytest.raises(RemoteAccessError, match="AccessDenied") as refused:
            await call
        assert "s3:PutObject" in refused.value.remedy


async def test_address_without_a_server_is_retriable(open_store: OpenStore) -> None:
    with pytest.raises(RetriableRemoteStorageError, match=r"http://127\.0\.0\.1:9 does not answer"):
        await open_store(endpoint_url="http://127.0.0.1:9").check()


async def test_a_server_that_was_killed_is_found_again(
    store: S3ObjectStore, s3_service: S3Service, large: FileBody
) -> None:
    await store.put("before", large)
    s3_service.services.kill("s3")
    try:
        with pytest.raises(RetriableRemoteStorageError):
            await store.put("after", large)
    finally:
        s3_service.services.start("s3")
    await store.put("after", large)
    assert await store.get("before") == await store.get("after")


async def test_call_to_a_frozen_server_ends_and_the_thawed_server_is_used_again(
    open_store: OpenStore, s3_service: S3Service
) -> None:
    store = open_store(read_timeout_s=1)
    await store.put("key", b"content")
    s3_service.services.freeze("s3")
    try:
        with pytest.raises(RetriableRemoteStorageError):
            await store.get("key")
    finally:
        s3_service.services.thaw("s3")
    assert await store.get("key") == b"content"


async def test_close_waits_for_the_abort_of_an_upload_that_was_cancelled_twice(
    store: S3ObjectStore, s3_admin: S3Admin, s3_bucket: str, large: FileBody, tmp_path: Path
) -> None:
    reached = asyncio.Event()

    async def pace(size_bytes: int) -> None:
        reached.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(store.put("key", FileBody(large.path, large.byte_range, large.checksums, pace)))
    await reached.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait({task})
    assert task.cancelled()
    await store.close()
    assert s3_admin.unfinished_uploads(s3_bucket) == []


@pytest.mark.service("toxiproxy")
class TestFaultsOnTheWay:
    """The same store over a connection that is spoiled; only its deadlines end what hangs."""

    @pytest.fixture
    def store(self, open_store: OpenStore, faulty_s3: FaultyPath) -> S3ObjectStore:
        deadlines = Deadlines(base_s=3, min_bytes_per_second=1e8)
        return open_store(endpoint_url=faulty_s3.endpoint_url, read_timeout_s=30, deadlines=deadlines)

    @pytest.mark.parametrize("stream", ["upstream", "downstream"])
    async def test_a_connection_that_is_reset_is_retriable_and_leaves_nothing(
        self, store: S3ObjectStore, faulty_s3: FaultyPath, large: FileBody, stream: Literal["upstream", "downstream"]
    ) -> None:
        await store.check()
        faulty_s3.add("reset_peer", stream)
        with pytest.raises(RetriableRemoteStorageError):
            await store.put("key", large)
        faulty_s3.remove("reset_peer", stream)
        assert await store.list_objects("") == []
        await _abort_all(store)
        await store.put("key", large)

    async def test_an_upload_into_a_black_hole_ends_and_is_swept_afterwards(
        self, store: S3ObjectStore, faulty_s3: FaultyPath, s3_admin: S3Admin, s3_bucket: str, large: FileBody
    ) -> None:
        swallowing = _OnFirstStep(lambda: faulty_s3.add("timeout", "upstream", timeout=0))
        with pytest.raises(RetriableRemoteStorageError, match="did not finish within"):
            await store.put("key", FileBody(large.path, large.byte_range, large.checksums, swallowing.pace))
        faulty_s3.remove("timeout", "upstream")
        await _abort_all(store)
        assert s3_admin.unfinished_uploads(s3_bucket) == []
        await store.put("key", large)

    async def test_a_slow_connection_is_slow_and_a_slower_one_too_slow(
        self, store: S3ObjectStore, faulty_s3: FaultyPath, tmp_path: Path
    ) -> None:
        body = file_body(tmp_path / "segment", content_of(2 << 20))
        faulty_s3.add("bandwidth", "upstream", rate=20_000)
        await store.put("slow", body)
        faulty_s3.remove("bandwidth", "upstream")
        faulty_s3.add("bandwidth", "upstream", rate=100)
        with pytest.raises(RetriableRemoteStorageError, match="did not finish within"):
            await store.put("too slow", body)

    async def test_abandoned_put_keeps_no_connection(
        self, store: S3ObjectStore, faulty_s3: FaultyPath, tmp_path: Path
    ) -> None:
        await store.check()
        faulty_s3.add("bandwidth", "upstream", rate=1)
        with pytest.raises(RetriableRemoteStorageError, match="did not finish within"):
            await store.put("key", file_body(tmp_path / "segment", content_of(4 << 20)))
        await store.close()
        await wait_disconnected(faulty_s3.address)

    @pytest.mark.parametrize("size", [1000, LARGE_BYTES])
    async def test_a_lost_reply_is_success_at_the_next_attempt(
        self, store: S3ObjectStore, faulty_s3: FaultyPath, tmp_path: Path, size: int
    ) -> None:
        await store.check()
        failures: list[str] = []

        def heal(operation: str, error: TierError) -> None:
            failures.append(str(error))
            faulty_s3.remove("limit_data", "downstream")

        retry = Retry(clock=FakeClock(), attempts=2, on_retry=heal)
        faulty_s3.disable()  # what was kept alive would not meet the toxic
        faulty_s3.enable()
        # The 25 bytes of "100 Continue" pass, the reply that follows them does not.
        faulty_s3.add("limit_data", "downstream", bytes=30)
        await RetryingObjectStore(store, retry).put("key", file_body(tmp_path / "segment", content_of(size)))
        assert len(failures) == 1
        assert await store.get("key") == content_of(size)

    async def test_an_answer_that_is_cut_is_retriable(self, store: S3ObjectStore, faulty_s3: FaultyPath) -> None:
        content = content_of(1 << 20)
        await store.put("key", content)
        faulty_s3.disable()
        faulty_s3.enable()
        faulty_s3.add("limit_data", "downstream", bytes=500_000)
        with pytest.raises(RetriableRemoteStorageError):
            await store.get("key")
        faulty_s3.remove("limit_data", "downstream")
        assert await store.get("key") == content

    async def test_answer_that_falls_silent_ends_at_the_read_timeout(
        self, open_store: OpenStore, faulty_s3: FaultyPath
    ) -> None:
        store = open_store(endpoint_url=faulty_s3.endpoint_url, read_timeout_s=1)
        await store.put("key", b"content")
        faulty_s3.add("timeout", "downstream", timeout=0)
        with pytest.raises(RetriableRemoteStorageError):
            await store.get("key", ByteRange(0, 3))
        faulty_s3.remove("timeout", "downstream")
        assert await store.get("key", ByteRange(0, 3)) == b"cont"

    async def test_a_connection_that_is_refused_is_retriable(
        self, store: S3ObjectStore, faulty_s3: FaultyPath, large: FileBody
    ) -> None:
        await store.check()
        faulty_s3.disable()
        for call in (store.check(), store.get("key"), store.put("key", large), store.delete("key")):
            with pytest.raises(RetriableRemoteStorageError, match="does not answer"):
                await call
        faulty_s3.enable()
        await store.put("key", large)


class _OnFirstStep:
    """Does something when the first bytes of a put are about to leave."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    async def pace(self, size_bytes: int) -> None:
        assert size_bytes > 0
        if self._action is not None:
            action, self._action = self._action, None
            action()


async def _abort_all(store: S3ObjectStore) -> None:
    for upload in await store.list_unfinished_uploads(""):
        await store.abort_upload(upload)
