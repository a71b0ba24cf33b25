import asyncio
import threading

import pytest

from tierd.remote.transform.transform import Threads


async def test_calls_run_in_a_bounded_number_of_threads() -> None:
    threads, running, most = Threads(2), 0, 0
    lock, gate = threading.Lock(), threading.Barrier(2, timeout=60)

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        gate.wait()  # two at a time reach it, and only two
        with lock:
            running -= 1

    await asyncio.gather(*(threads.submit(call) for _ in range(8)))
    assert most == 2
    threads.close()
    threads.close()


async def test_failure_of_a_call_reaches_its_caller() -> None:
    threads = Threads(1)
    with pytest.raises(ZeroDivisionError):
        await threads.submit(lambda: 1 // 0)
    threads.close()


async def test_pool_can_be_used_again_after_close() -> None:
    threads = Threads()
    threads.close()
    assert await threads.submit(lambda: 1) == 1
    threads.close()
