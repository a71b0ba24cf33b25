"""An event loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

from tierd.errors import RetriableRemoteStorageError
from tierd.loop_thread import LoopClosedError, LoopThread


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    with LoopThread("loop of a test") as made:
        yield made


async def forever(begun: threading.Event) -> None:
    begun.set()
    await asyncio.Event().wait()


async def name_of_thread() -> str:
    return threading.current_thread().name


def test_work_runs_in_the_thread_of_the_loop(loop: LoopThread) -> None:
    assert loop.call(name_of_thread(), timeout_s=30) == "loop of a test"
    assert not loop.is_current


def test_call_that_takes_too_long_fails_and_is_cancelled(loop: LoopThread) -> None:
    with pytest.raises(RetriableRemoteStorageError, match=r"within 0\.01 s"):
        loop.call(forever(threading.Event()), timeout_s=0.01)


def test_closed_loop_cancels_what_runs_and_begins_nothing() -> None:
    loop, begun = LoopThread("loop of a test"), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(lambda: loop.call(forever(begun), timeout_s=30))
        begun.wait(30)
        loop.close()
        with pytest.raises(CancelledError):
            running.result(30)
    loop.close()
    with pytest.raises(LoopClosedError):
        loop.call(name_of_thread(), timeout_s=30)
    assert "loop of a test" not in [thread.name for thread in threading.enumerate()]


def test_calls_of_many_threads_end_when_the_loop_is_closed() -> None:
    loop, begun = LoopThread("loop of a test"), threading.Event()

    def call_again_and_again() -> None:
        while True:
            loop.call(name_of_thread(), timeout_s=30)
            begun.set()

    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(call_again_and_again) for _ in range(4)]
        begun.wait(30)
        loop.close()
        assert all(isinstance(call.exception(30), (LoopClosedError, CancelledError)) for call in calls)
