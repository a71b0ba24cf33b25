"""The event loop of every command: uvloop, with asyncio's handling of Ctrl-C."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

import uvloop

T = TypeVar("T")


def run_in_loop(main: Coroutine[object, object, T]) -> T:
    """Run ``main`` to its end and return its result; Ctrl-C cancels it and raises ``KeyboardInterrupt``."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
