"""CleanUps: work that takes back an upload after a failure or a cancellation, and that a cancellation does not end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

import structlog

from tierd.errors import RemoteStorageError
from tierd.remote.deadlines import deadline

log = structlog.get_logger()

U = TypeVar("U")


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

    @asynccontextmanager
    async def upload(
        self,
        key: str,
        begin: Coroutine[object, object, U],
        abort: Callable[[U], Coroutine[object, object, None]],
        *,
        patience_s: float,
    ) -> AsyncIterator[U]:
        """Begin an upload, to be completed inside the context; after a failure or a cancellation it is aborted.

        A cancellation while the reply to ``begin`` is on its way waits for the upload, and aborts the upload.

        Args:
            key: the object's.
            begin: asks the store for the upload.
            abort: takes back the upload; it has a deadline, and raises nothing.
            patience_s: longest wait for a reply after its caller has gone.
        """
        beginning = asyncio.create_task(begin, name=f"begin upload {key}")
        try:
            begun = await asyncio.shield(beginning)
        except asyncio.CancelledError:
            await self.run(_abort_when_begun(key, beginning, abort, patience_s))
            raise
        try:
            yield begun
        except BaseException:
            await self.run(abort(begun))
            raise

    async def close(self) -> None:
        """Wait for the tasks that still run."""
        if self._running:
            await asyncio.wait(self._running)


async def _abort_when_begun(
    key: str,
    beginning: asyncio.Task[U],
    abort: Callable[[U], Coroutine[object, object, None]],
    patience_s: float,
) -> None:
    try:
        async with deadline(f"begin upload {key}", patience_s):
            begun = await beginning
    except RemoteStorageError as error:
        log.warning("upload_perhaps_left", key=key, error=str(error))
    else:
        await abort(begun)
