"""Waiting inside a test's event loop for the effects of other tasks or processes."""

import asyncio
from collections.abc import Awaitable, Callable

POLL_INTERVAL_S = 0.005


async def eventually(
    condition: Callable[[], bool], *, what: str, deadline_s: float = 30.0, interval_s: float = POLL_INTERVAL_S
) -> None:
    """Return when ``condition`` holds; an ``AssertionError`` names ``what`` when it does not within the deadline."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    while not condition():
        assert loop.time() < end_s, f"waited {deadline_s:g} s for {what}"
        await asyncio.sleep(interval_s)


async def succeeds_in_the_end(
    call: Callable[[], Awaitable[object]],
    *,
    despite: type[Exception] | tuple[type[Exception], ...],
    deadline_s: float = 20,
) -> None:
    """Repeat ``call`` while it fails with ``despite``; raise the last such error when the deadline has passed."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + deadline_s
    while True:
        try:
            await call()
        except despite:
            if loop.time() > end_s:
                raise
            await asyncio.sleep(POLL_INTERVAL_S)
        else:
            return
