"""Request bodies that are streamed from a file: read ahead in threads, one step at a time."""

import asyncio
import io
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Self

from tierd.errors import RemoteIntegrityError, RemoteStorageError
from tierd.files import open_regular
from tierd.model import ByteRange
from tierd.remote.chunks import ByteView, sliced, unreadable
from tierd.remote.deadlines import Deadline

STEP_BYTES = 1 << 20
"""Half the size takes a quarter more CPU for switches between threads; twice the size saves no CPU (measured)."""


class SourceFile:
    """A file open for reading by several threads at once; it is closed when the last read has returned.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_regular(path)
        self._lock = threading.Lock()
        self._reads = 0
        self._closing = False

    def read(self, size_bytes: int, position: int) -> bytes:
        """Return up to ``size_bytes`` bytes; empty at the end of the file, and after ``close``."""
        with self._lock:
            if self._closing:
                return b""
            self._reads += 1
        try:
            return os.pread(self._file, size_bytes, position)
        finally:
            with self._lock:
                self._reads -= 1
                self._close_if_idle()

    def close(self) -> None:
        """Close now, or when the last running read returns. Never blocks."""
        with self._lock:
            if not self._closing:
                self._closing = True
                self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._closing and not self._reads:
            os.close(self._file)


class _Body:
    """Request body whose last byte can be withheld."""

    def __init__(self) -> None:
        self._is_handed_over = False
        self._is_withheld = False

    def read(self, size: int = -1) -> bytes:
        """Raise: botocore asks for a method of this name, and the body is iterated over instead."""
        raise io.UnsupportedOperation(f"read({size}): iterate asynchronously")

    def withhold(self) -> bool:
        """Keep the last byte from the client library; return False if the library has it, and may have sent it.

        The library sends the body in a task of its own, which goes on for a moment after its caller is cancelled.
        """
        self._is_withheld = not self._is_handed_over
        return self._is_withheld

    def _hand_over(self) -> None:
        """Note that the last byte leaves now.

        Raises:
            CancelledError: it is withheld; the client library closes the connection.
        """
        if self._is_withheld:
            raise asyncio.CancelledError
        self._is_handed_over = True


class BytesBody(_Body):
    """Bytes at hand as a body that is iterated over: given whole, the client library would hash all of them first."""

    def __init__(self, content: ByteView) -> None:
        super().__init__()
        self._content = content

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        left = len(self._content)
        async with aclosing(sliced(self._content)) as pieces:
            async for piece in pieces:
                left -= len(piece)
                if not left:
                    self._hand_over()
                yield piece


@asynccontextmanager
async def opened(path: Path, threads: Executor) -> AsyncIterator[SourceFile]:
    """Open a file in ``threads``; it is closed at the end, or when the last running read has returned.

    Raises:
        RemoteIntegrityError: it is gone.
        RemoteStorageError: it cannot be opened.
    """
    opening = asyncio.get_running_loop().run_in_executor(threads, SourceFile, path)
    try:
        source = await asyncio.shield(opening)
    except OSError as error:
        raise unreadable(path, error) from error
    except asyncio.CancelledError:
        opening.add_done_callback(_close_unwanted)
        raise
    try:
        yield source
    finally:
        source.close()


def _close_unwanted(opening: "asyncio.Future[SourceFile]") -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class StreamedBody(_Body):
    """Request body that the HTTP client iterates over once. While one step is sent the next one is read.

    Attributes:
        failure: error of the source; the HTTP client hides it behind an error of its own.
    """

    def __init__(
        self,
        source: SourceFile,
        byte_range: ByteRange,
        *,
        threads: Executor,
        running: Deadline,
        pace: Callable[[int], Awaitable[None]] | None,
    ) -> None:
        super().__init__()
        self.failure: RemoteStorageError | None = None
        self._source = source
        self._position = byte_range.start
        self._end = byte_range.end + 1
        self._threads = threads
        self._running = running
        self._pace = pace
        self._ahead: asyncio.Future[bytes] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._position == self._end:
            raise StopAsyncIteration
        reading, self._ahead = self._ahead or self._read(), None
        try:
            step = await reading
        except OSError as error:
            self.failure = unreadable(self._source.path, error)
            raise self.failure from error
        if not step:
            self.failure = RemoteIntegrityError(
                f"{self._source.path} ends at byte {self._position}, {self._end - self._position} too early",
                remedy="it shrank after it was checked; the segment is read again",
            )
            raise self.failure
        self._position += len(step)
        if self._position < self._end:
            self._ahead = self._read()
        if self._pace is not None:
            async with self._running.paused():
                await self._pace(len(step))
        if self._position == self._end:
            self._hand_over()
        return step

    def discard(self) -> None:
        """Drop a step that was read ahead."""
        if self._ahead is not None:
            self._ahead.cancel()

    def _read(self) -> "asyncio.Future[bytes]":
        size = min(STEP_BYTES, self._end - self._position)
        return asyncio.get_running_loop().run_in_executor(self._threads, self._source.read, size, self._position)
