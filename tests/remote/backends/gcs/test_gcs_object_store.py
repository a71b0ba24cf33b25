from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.object_store_faults import SHORT, ObjectStoreFaults
from tests.contracts.remote_storage import RemoteStorageContract
from tests.services.faulty_path import FaultyPath
from tests.services.gcs import GcsService
from tierd.errors import RemoteAccessError, RetriableRemoteStorageError
from tierd.remote import FileBody
from tierd.remote.backends.client_settings import HttpTimeouts, PartLimits
from tierd.remote.backends.gcs import GcsObjectStore
from tierd.testing import LARGE_BYTES, ObjectStoreContract, ObjectVersionsContract, content_of, file_body

pytestmark = pytest.mark.service("gcs")

PART_SIZE = 5 << 20

OpenStore = Callable[..., GcsObjectStore]


@pytest.fixture
async def open_store(gcs_service: GcsService, gcs_bucket: str) -> AsyncIterator[OpenStore]:
    """Opens stores on the bucket of this test, with other settings where given, and closes them."""
    opened: list[GcsObjectStore] = []

    def open_one(**other: object) -> GcsObjectStore:
        settings: dict[str, Any] = {
            "bucket": gcs_bucket,
            "endpoint_url": gcs_service.endpoint_url,
            "parts": PartLimits(part_size=PART_SIZE),
        }
        opened.append(GcsObjectStore(**settings | other))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
def store(open_store: OpenStore) -> GcsObjectStore:
    return open_store()


@pytest.fixture
def large(tmp_path: Path) -> FileBody:
    return file_body(tmp_path / "segment", content_of(LARGE_BYTES))


class TestGcsObjectStore(ObjectStoreContract, ObjectVersionsContract):
    @pytest.fixture
    def store(self, open_store: OpenStore) -> GcsObjectStore:
        return open_store()


class TestSegmentsInGcs(RemoteStorageContract):
    @pytest.fixture
    def objects(self, open_store: OpenStore) -> GcsObjectStore:
        return open_store()


async def test_a_missing_bucket_is_named(open_store: OpenStore, large: FileBody) -> None:
    store = open_store(bucket="no-such-bucket")
    for call in (store.check(), store.put("key", b"content"), store.put("key", large), store.list_objects("")):
        with pytest.raises(RemoteAccessError, match="there is no bucket 'no-such-bucket'"):
            await call


async def test_a_server_that_was_killed_is_found_again(
    store: GcsObjectStore, gcs_service: GcsService, large: FileBody
) -> None:
    await store.put("before", b"content")
    gcs_service.services.kill("gcs")
    try:
        with pytest.raises(RetriableRemoteStorageError):
            await store.put("after", large)
    finally:
        gcs_service.services.start("gcs")
    await store.put("after", large)
    assert await store.get("before") == b"content"


@pytest.mark.service("toxiproxy")
class TestFaultsOnTheWay(ObjectStoreFaults):
    @pytest.fixture
    def path(self, gcs_service: GcsService, faulty_path_to: Callable[[str], FaultyPath]) -> FaultyPath:
        return faulty_path_to(gcs_service.endpoint_url)

    @pytest.fixture
    def store(self, open_store: OpenStore, path: FaultyPath) -> GcsObjectStore:
        return open_store(endpoint_url=path.endpoint_url, timeouts=HttpTimeouts(read_s=30), deadlines=SHORT)

    @pytest.fixture
    def impatient(self, open_store: OpenStore, path: FaultyPath) -> GcsObjectStore:
        return open_store(endpoint_url=path.endpoint_url, timeouts=HttpTimeouts(read_s=1))
