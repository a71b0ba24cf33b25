"""MetricsFile: metrics of a command that serves no port, in a file for the textfile collector of node_exporter."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.errors import RefusedError
from tierd.files import open_regular

log = structlog.get_logger()

_INTERVAL_S: Final = 5.0
_MODE: Final = 0o644  # node_exporter is another user


class MetricsFile:
    """File that is replaced as a whole, so that a reader sees all metrics of one moment.

    Args:
        path: of the file. The collector takes names that end in ``.prom``.
        render: returns the content; called on the event loop.
        clock: time.
    """

    def __init__(self, path: Path, render: Callable[[], bytes], *, clock: Clock) -> None:
        self._path = path
        self._render = render
        self._clock = clock

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Write the file at the begin of the block, every five seconds, and at the end. The file stays.

        A write that fails after the first one is a line in the log, and does not end the work of the block.

        Raises:
            RefusedError: the file cannot be written at the begin.
        """
        try:
            await self._write()
        except OSError as error:
            raise RefusedError(
                f"{self._path} cannot be written: {error.strerror or error}", remedy="name another --metrics-file"
            ) from error
        writing = asyncio.create_task(self._write_on(), name=f"write {self._path}")
        try:
            yield
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await self._try_to_write()

    async def _write_on(self) -> None:
        while True:
            await self._clock.sleep(_INTERVAL_S)
            await self._try_to_write()

    async def _try_to_write(self) -> None:
        try:
            await self._write()
        except OSError as error:
            log.warning("metrics_not_written", path=str(self._path), problem=str(error))

    async def _write(self) -> None:
        await asyncio.to_thread(_replace, self._path, self._render())


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.tmp")
    fd = open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
    with os.fdopen(fd, "wb") as file:
        os.fchmod(fd, _MODE)
        file.write(content)
    temporary.replace(path)
