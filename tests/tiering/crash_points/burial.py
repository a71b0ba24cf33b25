"""Work of a process on an event loop of its own, and the burial of that loop when the process is killed."""

import asyncio
import ctypes
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.tiering.crash_points.points import CountingLoop, KilledError, Points


def run_until_killed(points: Points, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``work`` on a loop of its own until its end or its kill; after a kill no further line of it runs."""
    open_before = _descriptors()
    loop = CountingLoop(points)
    try:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(work())
    except KilledError:
        _bury([loop.works, asyncio.all_tasks(loop), points])
    else:
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    if points.is_dead:
        for descriptor in _descriptors() - open_before:  # as the kernel does; no task is left to use them
            os.close(descriptor)


def _bury(remains: list[object]) -> None:
    """Keep the dead coroutines for ever: garbage collection would close them and run their ``finally`` blocks."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(remains))


def _descriptors() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/fd").iterdir() if entry.exists()}
