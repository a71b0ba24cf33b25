import asyncio

import pytest

from tests.fakes.clock import FakeClock
from tierd.errors import RemoteAccessError, RemoteStorageError, RetriableRemoteStorageError, TierError
from tierd.model import ByteRange
from tierd.remote import Body, Retry, RetryingObjectStore, UnfinishedUpload
from tierd.remote.backends.memory import MemoryObjectStore


class FailingStore(MemoryObjectStore):
    """Fails every call with the next of ``failures``, then works."""

    def __init__(self, *failures: RemoteStorageError) -> None:
        super().__init__()
        self._failures = list(failures)
        self.calls = 0

    def _fail(self) -> None:
        self.calls += 1
        if self._failures:
            raise self._failures.pop(0)

    async def put(self, key: str, body: Body) -> None:
        self._fail()
        await super().put(key, body)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        self._fail()
        return await super().get(key, byte_range)

    async def check(self) -> None:
        self._fail()


BUSY = RetriableRemoteStorageError("busy")


def retrying(
    inner: MemoryObjectStore, clock: FakeClock, *, attempts: int = 5, noted: list[str] | None = None
) -> RetryingObjectStore:
    def note(operation: str, error: TierError) -> None:
        if noted is not None:
            noted.append(f"{operation}: {error}")

    return RetryingObjectStore(inner, Retry(clock=clock, attempts=attempts, random=lambda: 0.5, on_retry=note))


async def test_what_fails_retriably_is_repeated_after_growing_waits() -> None:
    inner, clock, noted = FailingStore(BUSY, BUSY, BUSY), FakeClock(), list[str]()
    store = retrying(inner, clock, noted=noted)
    await store.put("key", b"content")
    assert clock.sleeps_s == [0.5, 1.0, 2.0]
    assert noted == ["put: busy"] * 3
    assert await store.get("key") == b"content"


async def test_what_needs_a_person_is_not_repeated() -> None:
    inner, clock = FailingStore(RemoteAccessError("refused")), FakeClock()
    with pytest.raises(RemoteAccessError):
        await retrying(inner, clock).get("key")
    assert (inner.calls, clock.sleeps_s) == (1, [])


async def test_the_last_attempt_reports_its_own_failure() -> None:
    inner, clock = FailingStore(BUSY, BUSY, RetriableRemoteStorageError("still busy")), FakeClock()
    with pytest.raises(RetriableRemoteStorageError, match="still busy"):
        await retrying(inner, clock, attempts=3).put("key", b"content")
    assert clock.sleeps_s == [0.5, 1.0]


async def test_a_check_is_asked_once() -> None:
    inner = FailingStore(BUSY)
    with pytest.raises(RetriableRemoteStorageError):
        await retrying(inner, FakeClock()).check()
    assert inner.calls == 1


async def test_a_cancellation_ends_the_waiting() -> None:
    sleeping = asyncio.Event()

    class NeverClock(FakeClock):
        async def sleep(self, delay_s: float) -> None:
            sleeping.set()
            await asyncio.Event().wait()

    inner = FailingStore(BUSY)
    task = asyncio.create_task(retrying(inner, NeverClock()).put("key", b"content"))
    await sleeping.wait()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert inner.calls == 1


async def test_every_call_reaches_the_inner_store() -> None:
    inner = MemoryObjectStore()
    store = retrying(inner, FakeClock())
    await store.put("key", b"content")
    assert (await store.head("key")).size_bytes == 7
    assert [info.key for info in await store.list_objects("k")] == ["key"]
    assert await store.list_unfinished_uploads("") == []
    await store.abort_upload(UnfinishedUpload("key", "id", 0))
    await store.delete("key")
    assert await inner.list_objects("") == []
    await store.close()
