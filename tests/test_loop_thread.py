"""An event loop in a thread of its own."""

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.fakes.log_capture import captured_log
from tierd.errors import RetriableRemoteStorageError
from tierd.loop_thread import LoopClosedError, LoopOfParentError, LoopThread


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


def test_worker_thread_that_does_not_return_is_left_with_a_warning_and_the_loop_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tierd.loop_thread._WORKERS_TIMEOUT_S", 0.05)
    loop, begun, answered = LoopThread("loop of a test"), threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        answered.wait()

    running = loop.begin(asyncio.to_thread(hang))
    begun.wait(30)
    with captured_log() as lines:
        loop.close()
    assert "a worker thread that does not return was left behind" in lines.getvalue()
    assert "loop of a test" not in names_of_threads()
    assert running.cancelled()
    answered.set()
    for thread in threading.enumerate():
        if thread.name.startswith("loop of a test"):
            thread.join(30)
    assert not [name for name in names_of_threads() if name.startswith("loop of a test")]


def test_task_that_does_not_end_is_left_with_a_warning_and_the_loop_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierd.loop_thread._TASKS_TIMEOUT_S", 0.05)
    loop, begun, ending = LoopThread("loop of a test"), threading.Event(), threading.Event()

    async def refuse() -> None:
        begun.set()
        while not ending.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    loop.begin(refuse())
    begun.wait(30)
    with captured_log() as lines:
        loop.close()
        ending.set()
    assert "a task that does not end was left behind" in lines.getvalue()
    assert not [name for name in names_of_threads() if name.startswith("loop of a test")]


def test_call_that_blocks_the_loop_is_left_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierd.loop_thread._THREAD_TIMEOUT_S", 0.05)
    loop, begun, answered = LoopThread("loop of a test"), threading.Event(), threading.Event()

    async def block() -> None:
        begun.set()
        answered.wait()

    loop.begin(block())
    begun.wait(30)
    with captured_log() as lines:
        loop.close()
    assert "a call that blocks the event loop was left behind" in lines.getvalue()
    answered.set()
    loop._thread.join(30)
    assert not loop._thread.is_alive()
    loop._loop.close()


def test_loop_of_the_parent_refuses_work_and_is_not_closed(monkeypatch: pytest.MonkeyPatch, loop: LoopThread) -> None:
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        with pytest.raises(LoopOfParentError):
            loop.call(name_of_thread(), timeout_s=30)
        loop.close()
    assert loop.call(name_of_thread(), timeout_s=30) == "loop of a test"


def names_of_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]
