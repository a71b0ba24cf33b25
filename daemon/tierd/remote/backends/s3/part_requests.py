"""PartRequests: requests that send parts, each awaited until its answer, also when its caller is cancelled."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from tierd.remote.backends.clean_ups import CleanUps
from tierd.tasks import retrieve

T = TypeVar("T")


class PartRequests:
    """Requests under way, by upload.

    A store that has the whole body of a part writes the part also after the connection is cut. That brings back an
    upload that was aborted meanwhile. So a request whose body is handed over is not cut: its answer is awaited for at
    most ``patience_s`` seconds before the cancellation goes on. A request whose body is not handed over is cut, and the
    store has no whole part to write.
    """

    def __init__(self, clean_ups: CleanUps, *, patience_s: float) -> None:
        self._clean_ups = clean_ups
        self._patience_s = patience_s
        self._running: defaultdict[str, set[asyncio.Task[object]]] = defaultdict(set)

    async def run(self, upload_id: str, request: Callable[[], Awaitable[T]], *, withhold: Callable[[], bool]) -> T:
        """Make one request of an upload.

        ``withhold`` keeps the last byte of its body back; it returns False if the body has been handed over.
        """

        async def answered() -> T:
            return await request()

        task = asyncio.create_task(answered(), name=f"send a part of {upload_id}")
        self._running[upload_id].add(task)
        task.add_done_callback(lambda _: self._ended(upload_id, task))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if withhold():
                task.cancel()
            await self._clean_ups.run(self._settled([task]))
            raise

    async def settled(self, upload_id: str) -> None:
        """Wait until the requests of the upload have ended; twice ``patience_s`` at most."""
        await self._settled(self._running.get(upload_id, frozenset()))

    async def _settled(self, tasks: Collection["asyncio.Task[object]"]) -> None:
        running = set(tasks)
        if running:
            _, late = await asyncio.wait(running, timeout=self._patience_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=self._patience_s)

    def _ended(self, upload_id: str, task: "asyncio.Task[T]") -> None:
        retrieve(task)  # its caller may be gone
        running = self._running[upload_id]
        running.discard(task)
        if not running:
            del self._running[upload_id]
