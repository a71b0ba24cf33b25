"""CleanUps: work that takes back an upload after a failure or a cancellation, and that a cancellation does not end."""

import asyncio
from collections.abc import Coroutine


class CleanUps:
    """Tasks that a second cancellation must not stop; ``close`` waits for them. The caller gives them a deadline."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, work: Coroutine[object, object, None]) -> None:
        """Await ``work``; a cancellation stops the waiting, not the work."""
        task = asyncio.create_task(work, name="clean up an upload")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.shield(task)

    async def close(self) -> None:
        """Wait for the tasks that still run."""
        if self._running:
            await asyncio.wait(self._running)
