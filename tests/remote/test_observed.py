import asyncio

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteObjectRetainedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    TierError,
)
from tierd.model import ByteRange
from tierd.remote import ObjectStoreCall, UnfinishedUpload
from tierd.remote.observed import ObservedObjectStore
from tierd.testing import chunked_body


async def test_each_call_is_reported_once_with_its_size_and_duration() -> None:
    clock, calls = FakeClock(), list[ObjectStoreCall]()

    class SlowStore(MemoryObjectStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
            clock.advance(1.5)
            return await super().get(key, byte_range)

    store = ObservedObjectStore(SlowStore(), on_call=calls.append, clock=clock)
    await store.put("key", b"0123456789")
    await store.get("key", ByteRange(2, 4))
    await store.head("key")
    await store.list_objects("k")
    await store.list_unfinished_uploads("k")
    await store.abort_upload(UnfinishedUpload("key", "id", 0))
    await store.check()
    await store.delete("key")
    await store.put("chunked", chunked_body([b"012", b"34"]))
    await store.replace("chunked", b"567", previous=b"01234")
    await store.close()
    assert [(call.operation, call.key, call.outcome) for call in calls] == [
        ("put", "key", "ok"),
        ("get", "key", "ok"),
        ("head", "key", "ok"),
        ("list", "k", "ok"),
        ("list_uploads", "k", "ok"),
        ("abort", "key", "ok"),
        ("check", "", "ok"),
        ("delete", "key", "ok"),
        ("put", "chunked", "ok"),
        ("replace", "chunked", "ok"),
    ]
    assert [call.size_bytes for call in calls[-2:]] == [5, 3]
    assert [(call.size_bytes, call.duration_s) for call in calls[:3]] == [(10, 0.0), (3, 1.5), (0, 0.0)]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RemoteResourceNotFoundError("x"), "not_found"),
        (RemoteConflictError("x"), "conflict"),
        (RemoteIntegrityError("x"), "damaged"),
        (RemoteObjectRetainedError("x"), "retained"),
        (RemoteAccessError("x"), "refused"),
        (RetriableRemoteStorageError("x"), "retriable"),
        (RemoteStorageError("x"), "failed"),
        (ZeroDivisionError(), "failed"),
    ],
)
async def test_failed_call_is_reported_with_the_kind_of_failure(error: Exception, outcome: str) -> None:
    class FailingStore(MemoryObjectStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
            raise error

    calls = list[ObjectStoreCall]()
    store = ObservedObjectStore(FailingStore(), on_call=calls.append, clock=FakeClock())
    with pytest.raises(type(error)):
        await store.get("key")
    assert [(call.outcome, call.size_bytes) for call in calls] == [(outcome, 0)]
    assert calls[0].failure is (error if isinstance(error, TierError) else None)


async def test_cancelled_call_is_reported_as_cancelled() -> None:
    class EndlessStore(MemoryObjectStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
            await asyncio.Event().wait()
            return b""

    calls = list[ObjectStoreCall]()
    store = ObservedObjectStore(EndlessStore(), on_call=calls.append, clock=FakeClock())
    task = asyncio.create_task(store.get("key"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert [(call.outcome, call.failure) for call in calls] == [("cancelled", None)]
