"""The event loop of every command: uvloop, with asyncio's handling of Ctrl-C."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import uvloop

T = TypeVar("T")

# Made when needed. Python's default, processors + 4, lets a few reads of a hung disk block every other log dir.
_THREADS: Final = 64


def run_in_loop(main: Coroutine[object, object, T]) -> T:
    """Run ``main`` to its end and return its result; Ctrl-C cancels it and raises ``KeyboardInterrupt``."""
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        return runner.run(main)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="tierd"))
    return loop
