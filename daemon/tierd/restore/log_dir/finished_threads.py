"""Blocking work of a restore in threads that a cancellation waits for."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

from tierd.tasks import retrieve, wait_all

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def in_thread(work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Run ``work`` in a thread. A cancellation is raised when the work has ended: nothing is left that still writes.

    The error of a work that was cancelled is dropped; the same work runs again when the restore is resumed.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await settled(running)
        raise


async def settled(running: asyncio.Future[_T]) -> None:
    """Wait until ``running`` has ended, also through cancellations; its result and its error are dropped."""
    with suppress(asyncio.CancelledError):
        await wait_all([running])
    retrieve(running)
