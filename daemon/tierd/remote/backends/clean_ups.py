"""CleanUps: what must be taken back after a failure or a cancellation, also when that is cancelled."""

import asyncio
from collections.abc import Coroutine


class CleanUps:
    """Runs work that a second cancellation must not stop; ``close`` waits for all of it. Give the work a deadline."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, work: Coroutine[object, object, None]) -> None:
        """Await ``work``; a cancellation stops the waiting, not the work."""
        task = asyncio.create_task(work, name="clean up an upload")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for what is still running."""
        if self._running:
            await asyncio.wait(self._running)
