from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.object_store_faults import SHORT, ObjectStoreFaults
from tests.contracts.remote_storage import RemoteStorageContract
from tests.services.azure import AzureService
from tests.services.faulty_path import FaultyPath
from tierd.errors import RemoteAccessError, RemoteStorageError, RetriableRemoteStorageError
from tierd.kernels import crc32c
from tierd.remote import FileBody
from tierd.remote.backends.azure import AzureContainer, AzureCredentials, AzureObjectStore
from tierd.remote.backends.client_settings import HttpTimeouts, PartLimits
from tierd.testing import LARGE_BYTES, ObjectStoreContract, content_of, file_body

pytestmark = pytest.mark.service("azure")

PART_SIZE = 5 << 20

OpenStore = Callable[..., AzureObjectStore]


@pytest.fixture
async def open_store(azure_service: AzureService, azure_container: str) -> AsyncIterator[OpenStore]:
    """Opens stores on the container of this test, with other settings where given, and closes them."""
    opened: list[AzureObjectStore] = []

    def open_one(
        *,
        container: str = azure_container,
        account_key: str | None = azure_service.account_key,
        sas_token: str | None = None,
        endpoint_url: str = azure_service.endpoint_url,
        **other: Any,  # noqa: ANN401 - arguments of the store
    ) -> AzureObjectStore:
        store = AzureObjectStore(
            AzureContainer(name=container, account=azure_service.account, endpoint_url=endpoint_url),
            credentials=AzureCredentials(account_key=account_key, sas_token=sas_token),
            parts=PartLimits(part_size=PART_SIZE),
            **other,
        )
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
def store(open_store: OpenStore) -> AzureObjectStore:
    return open_store()


@pytest.fixture
def large(tmp_path: Path) -> FileBody:
    return file_body(tmp_path / "segment", content_of(LARGE_BYTES))


class TestAzureObjectStore(ObjectStoreContract):
    @pytest.fixture
    def store(self, open_store: OpenStore) -> AzureObjectStore:
        return open_store()


class TestSegmentsInAzure(RemoteStorageContract):
    @pytest.fixture
    def objects(self, open_store: OpenStore) -> AzureObjectStore:
        return open_store()


async def test_a_missing_container_is_named(open_store: OpenStore, large: FileBody) -> None:
    store = open_store(container="no-such-container")
    calls = (
        store.check(),
        store.put("key", b"content"),
        store.put("key", large),
        store.get("key"),
        store.list_objects(""),
    )
    for call in calls:
        with pytest.raises(RemoteAccessError, match="there is no container 'no-such-container'"):
            await call


async def test_a_wrong_key_is_refused_with_a_remedy(open_store: OpenStore, large: FileBody) -> None:
    store = open_store(account_key="d3Jvbmc=")
    for call in (store.check(), store.put("key", b"content"), store.put("key", large), store.get("key")):
        with pytest.raises(RemoteAccessError) as refused:
            await call
        assert "remote.azure.account_key" in refused.value.remedy
        assert "d3Jvbmc=" not in str(refused.value)


async def test_a_key_that_is_no_key_is_named_and_not_shown(open_store: OpenStore) -> None:
    store = open_store(account_key="not base64!")
    for call in (store.check(), store.put("key", b"content")):
        with pytest.raises(RemoteStorageError) as refused:
            await call
        assert "not base64!" not in str(refused.value)


async def test_a_shared_access_signature_suffices(
    open_store: OpenStore, azure_service: AzureService, large: FileBody
) -> None:
    store = open_store(account_key=None, sas_token=azure_service.account_sas())
    await store.check()
    await store.put("large", large)
    await store.put("small", b"content")
    await store.replace("small", b"other", previous=b"content")
    assert await store.get("small") == b"other"
    await store.delete("small")
    assert [info.key for info in await store.list_objects("")] == ["large"]


async def test_a_signature_that_does_not_allow_it_is_named_and_not_shown(
    open_store: OpenStore, azure_service: AzureService, large: FileBody
) -> None:
    signature = azure_service.account_sas(permissions="rl")
    store = open_store(account_key=None, sas_token=signature)
    await store.check()
    for call in (store.put("key", b"content"), store.put("key", large)):
        with pytest.raises(RemoteAccessError, match="AuthorizationPermissionMismatch") as refused:
            await call
        assert signature not in str(refused.value)


async def test_large_bodies_may_have_odd_keys_too(store: AzureObjectStore, large: FileBody) -> None:
    key = "sp ace/ü%41/+&=?#"
    await store.put(key, large)
    assert (await store.head(key)).size_bytes == large.size


async def test_checksum_is_kept_in_the_metadata_of_the_blob(store: AzureObjectStore, large: FileBody) -> None:
    await store.put("small", b"123456789")
    await store.put("large", large)
    assert (await store.head("small")).crc32c == 0xE3069283
    assert (await store.head("large")).crc32c == crc32c(large.path.read_bytes())


async def test_a_server_that_was_away_is_found_again(
    store: AzureObjectStore, azure_service: AzureService, large: FileBody
) -> None:
    await store.put("before", b"content")
    azure_service.services.stop("azure")
    try:
        with pytest.raises(RetriableRemoteStorageError):
            await store.put("after", large)
    finally:
        azure_service.services.start("azure")
    await store.put("after", large)
    assert await store.get("before") == b"content"


@pytest.mark.service("toxiproxy")
class TestFaultsOnTheWay(ObjectStoreFaults):
    @pytest.fixture
    def path(self, azure_service: AzureService, faulty_path_to: Callable[[str], FaultyPath]) -> FaultyPath:
        return faulty_path_to(azure_service.endpoint_url)

    @pytest.fixture
    def store(self, open_store: OpenStore, path: FaultyPath, azure_service: AzureService) -> AzureObjectStore:
        return open_store(
            endpoint_url=f"{path.endpoint_url}/{azure_service.account}",
            timeouts=HttpTimeouts(read_s=30),
            deadlines=SHORT,
        )

    @pytest.fixture
    def impatient(self, open_store: OpenStore, path: FaultyPath, azure_service: AzureService) -> AzureObjectStore:
        return open_store(endpoint_url=f"{path.endpoint_url}/{azure_service.account}", timeouts=HttpTimeouts(read_s=1))
