"""Entry to the process: the event loop of every command, and the daemon."""

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

import uvloop

from tierd.process_memory import collect_rarely, keep_freed_memory

if TYPE_CHECKING:
    from tierd.app.daemon.tier_server import ServeRequest
    from tierd.app.engine.deployment import Deployment

T = TypeVar("T")

# Made when needed. Python's default, processors + 4, lets a few reads of a hung disk block every other log dir.
_THREADS: Final = 64

_PIECE_BYTES: Final = 32 << 20  # more than a part of an upload; glibc allows no more
_KEPT_BYTES: Final = 32 << 20
_ALLOCATIONS: Final = 20_000  # those of readers and copies at work, each with a piece of the log


def run_in_loop(main: Coroutine[object, object, T]) -> T:
    """Run ``main`` to its end in uvloop and return its result; Ctrl-C cancels it and raises ``KeyboardInterrupt``."""
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        return runner.run(main)


async def run_daemon(deployment: "Deployment", env: Mapping[str, str]) -> int:
    """Run the daemon until a signal or a fault ends it, and return the exit code.

    Raises:
        TierError: it could not start: state dir in use, metadata damaged, tier of another store, address taken.
    """
    # Its HTTP server takes longer to import than most commands take to run.
    from tierd.app.daemon.daemon import run_until_stopped  # noqa: PLC0415

    tune_memory()
    return await run_until_stopped(deployment, env)


async def serve_tier(deployment: "Deployment", request: "ServeRequest", env: Mapping[str, str]) -> int:
    """Serve the tier without a daemon until a signal or a fault ends it, and return the exit code.

    Raises:
        TierError: it could not start: state dir in use, tier not found, address taken.
    """
    from tierd.app.daemon.tier_server import serve_until_stopped  # noqa: PLC0415 - as above

    tune_memory()
    return await serve_until_stopped(deployment, request, env)


def tune_memory() -> None:
    """Set how a process that lives long uses memory; the modules that it needs are imported."""
    keep_freed_memory(piece_bytes=_PIECE_BYTES, kept_bytes=_KEPT_BYTES, arenas=2)
    collect_rarely(allocations=_ALLOCATIONS)


def _new_event_loop() -> asyncio.AbstractEventLoop:
    loop = uvloop.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="tierd"))
    return loop
