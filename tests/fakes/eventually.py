"""Waiting inside a test's event loop for something that other tasks or processes bring about."""

import asyncio
from collections.abc import Callable

POLL_INTERVAL_S = 0.005


async def eventually(condition: Callable[[], bool], *, what: str, deadline_s: float = 10.0) -> None:
    """Return when ``condition`` holds; an ``AssertionError`` names ``what`` when it does not within the deadline."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    while not condition():
        assert loop.time() < end_s, f"waited {deadline_s:g} s for {what}"
        await asyncio.sleep(POLL_INTERVAL_S)
