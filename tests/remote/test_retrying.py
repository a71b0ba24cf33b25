import asyncio
from collections import Counter
from functools import partial

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.errors import RemoteAccessError, RemoteStorageError, RetriableRemoteStorageError, TierError
from tierd.model import ByteRange
from tierd.remote import Body, UnfinishedUpload
from tierd.remote.retrying import Retry, RetryingObjectStore


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


async def test_retriable_failure_is_repeated_after_growing_waits() -> None:
    inner, clock, noted = FailingStore(BUSY, BUSY, BUSY), FakeClock(), list[str]()
    store = retrying(inner, clock, noted=noted)
    await store.put("key", b"content")
    assert clock.sleeps_s == [0.5, 1.0, 2.0]
    assert noted == ["put: busy"] * 3
    assert await store.get("key") == b"content"


async def test_failure_that_needs_a_person_is_not_repeated() -> None:
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


class PartsStore(MemoryObjectStore):
    """Sends two parts for each put and loses the upload after them; part 1 fails as often as it is told."""

    def __init__(self, retry: Retry, *, part_failures: int) -> None:
        super().__init__()
        self._retry = retry
        self._part_failures = part_failures
        self.sent = Counter[int]()

    async def put(self, key: str, body: Body) -> None:
        async with asyncio.TaskGroup() as group:
            for part in (1, 2):
                group.create_task(self._retry.request("upload_part", partial(self._send, part), key=key, part=part))
        raise RetriableRemoteStorageError("the upload is gone")

    async def _send(self, part: int) -> None:
        self.sent[part] += 1
        if part == 1 and self._part_failures:
            self._part_failures -= 1
            raise BUSY


@pytest.mark.parametrize("part_failures", range(4))
async def test_part_is_sent_as_often_as_a_call_has_attempts_when_the_upload_begins_anew(part_failures: int) -> None:
    retry = Retry(clock=FakeClock(), attempts=4)
    inner = PartsStore(retry, part_failures=part_failures)
    with pytest.raises((RetriableRemoteStorageError, ExceptionGroup)):
        await RetryingObjectStore(inner, retry).put("key", b"content")
    assert inner.sent[1] == 4
    assert inner.sent[2] <= 4


async def test_calls_made_while_a_body_is_read_have_attempts_of_their_own() -> None:
    inner, retry = FailingStore(), Retry(clock=FakeClock(), attempts=2)
    store = RetryingObjectStore(inner, retry)
    await inner.put("source", b"0123456789")

    async def read_all() -> None:
        for _ in range(5):
            await store.get("source")

    await retry("put", read_all, key="key")
    assert inner.calls == 6


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


async def test_each_call_reaches_the_inner_store() -> None:
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
