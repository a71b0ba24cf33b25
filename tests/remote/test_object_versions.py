import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.app.services.owned_object_store import OwnedObjectStore
from tierd.backoff import Backoff
from tierd.errors import ObjectVersionsUnknownError, RetriableRemoteStorageError
from tierd.remote import ObjectStore, ObjectStoreCall, ObjectVersion
from tierd.remote.backends.azure import AzureContainer, AzureCredentials, AzureObjectStore
from tierd.remote.deadlines import Deadlines
from tierd.remote.limited import LimitedObjectStore
from tierd.remote.observed import ObservedObjectStore
from tierd.remote.retrying import Retry, RetryingObjectStore


class ForgetfulStore(MemoryObjectStore):
    """Fails once, then tells."""

    failures = 1

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        if self.failures:
            self.failures -= 1
            raise RetriableRemoteStorageError("busy")
        return await super().list_versions(prefix)


def wrapped(inner: ObjectStore, calls: list[ObjectStoreCall]) -> OwnedObjectStore:
    async def claim() -> None: ...

    clock = FakeClock()
    store: ObjectStore = LimitedObjectStore(inner, deadlines=Deadlines(), max_calls=4)
    store = RetryingObjectStore(store, Retry(clock=clock, backoff=Backoff(base_s=0.1, cap_s=1.0)))
    return OwnedObjectStore(ObservedObjectStore(store, on_call=calls.append, clock=clock), claim)


async def test_wrappers_pass_versions_on() -> None:
    calls: list[ObjectStoreCall] = []
    store = wrapped(ForgetfulStore(), calls)
    await store.put("a", b"content")
    (version,) = await store.list_versions("")
    await store.delete_version(version)
    assert await store.list_objects("") == []
    assert [(call.operation, call.outcome) for call in calls] == [
        ("put", "ok"),
        ("list_versions", "ok"),
        ("delete_version", "ok"),
        ("list", "ok"),
    ]


async def test_store_without_versions_says_so_behind_wrappers() -> None:
    inner = AzureObjectStore(
        AzureContainer(name="tier", account="account"), credentials=AzureCredentials(account_key="a2V5")
    )
    store = wrapped(inner, [])
    for asked in (inner, store):
        with pytest.raises(ObjectVersionsUnknownError, match="cannot ask this kind") as raised:
            await asked.list_versions("")
        assert "erase attest" in raised.value.remedy
    await store.close()
