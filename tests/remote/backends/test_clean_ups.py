import asyncio

import pytest

from tierd.errors import RetriableRemoteStorageError
from tierd.remote.backends.clean_ups import CleanUps


class Uploads:
    """A store that answers when it is told to, and remembers what became of its uploads."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_abort = asyncio.Event()
        self.may_abort.set()
        self.aborted: list[str] = []
        self.is_unanswered = False

    async def begin(self) -> str:
        self.asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.is_unanswered = True
            raise
        return "upload-1"

    async def abort(self, upload: str) -> None:
        await self.may_abort.wait()
        self.aborted.append(upload)


async def put(clean_ups: CleanUps, store: Uploads, *, patience_s: float = 60.0) -> None:
    async with clean_ups.upload("key", store.begin(), store.abort, patience_s=patience_s):
        pass


async def test_completed_upload_is_not_aborted() -> None:
    store = Uploads()
    store.may_answer.set()

    await put(CleanUps(), store)

    assert store.aborted == []


async def test_failed_upload_is_aborted_before_its_failure_is_raised() -> None:
    store = Uploads()
    store.may_answer.set()

    with pytest.raises(RetriableRemoteStorageError, match="no room"):
        async with CleanUps().upload("key", store.begin(), store.abort, patience_s=60.0):
            raise RetriableRemoteStorageError("no room")

    assert store.aborted == ["upload-1"]


async def test_refusal_of_an_upload_is_raised_without_an_abort() -> None:
    store = Uploads()

    async def refused() -> str:
        raise RetriableRemoteStorageError("busy")

    with pytest.raises(RetriableRemoteStorageError, match="busy"):
        async with CleanUps().upload("key", refused(), store.abort, patience_s=60.0):
            pytest.fail("there is no upload")

    assert store.aborted == []


async def test_upload_whose_beginning_is_answered_after_a_cancellation_is_aborted() -> None:
    store = Uploads()
    task = asyncio.create_task(put(CleanUps(), store))
    await store.asked.wait()

    task.cancel()
    store.may_answer.set()
    await asyncio.wait([task])

    assert task.cancelled()
    assert store.aborted == ["upload-1"]


async def test_close_waits_for_an_abort_whose_caller_was_cancelled_again() -> None:
    store, clean_ups = Uploads(), CleanUps()
    store.may_abort.clear()
    task = asyncio.create_task(put(clean_ups, store))
    await store.asked.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    store.may_answer.set()
    closing = asyncio.create_task(clean_ups.close())
    await asyncio.sleep(0)
    store.may_abort.set()
    await closing

    assert task.cancelled()
    assert store.aborted == ["upload-1"]


async def test_beginning_without_an_answer_is_given_up_after_the_patience() -> None:
    store = Uploads()
    task = asyncio.create_task(put(CleanUps(), store, patience_s=0.001))
    await store.asked.wait()

    task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert store.is_unanswered
    assert store.aborted == []
