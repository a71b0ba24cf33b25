"""FileSlices: slices of local segments and of cached chunks on their way to sockets.

::

    file kept open, bytes in the page cache ──► sent by the event loop: no thread, no copy
    otherwise ──► worker thread: opens the file, sends or reads, and hands the open file over for the next slices

A disk may be slow or hang, so that the event loop touches only bytes that the kernel has in memory (``RWF_NOWAIT``). A
file is kept for a short time, since an open file holds the disk space of a segment that the broker deletes. The file of
a chunk is open already: its owner is the cache.
"""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from tierd.clock import Clock
from tierd.errors import SegmentChangedError
from tierd.serve.kafka.connections.connection_errors import PeerGoneError
from tierd.serve.kafka.served.served_log import FileSlice

KEPT_S: Final = 2.0
"""Time after its last use at which a file is closed."""

MOST_AT_ONCE_BYTES: Final = 1 << 20
"""Bytes that the event loop sends from a file before its other work."""

_DELETED: Final = ".deleted"
_CHECK_INTERVAL_S: Final = 1.0
_PROBE_INTERVAL_BYTES: Final = 128 << 10  # the kernel reads ahead, and forgets, in runs of about this size
_Key = tuple[str, int]


@dataclass(slots=True)
class _KeptFile:
    descriptor: int
    used_at_s: float


class FileSlices:
    """Slices of local segments, and the files that are open for them."""

    def __init__(self, executor: Executor, *, clock: Clock, most_kept: int = 256) -> None:
        """Open and read files in threads of ``executor``; keep ``most_kept`` open at a time."""
        self._most_kept = most_kept
        self._executor = executor
        self._clock = clock
        self._kept: dict[_Key, _KeptFile] = {}
        self._lock = threading.Lock()  # of what is kept; files are closed by the event loop alone
        self._is_closed = False
        self._is_used = asyncio.Event()
        self._probe = bytearray(1)

    @property
    def kept(self) -> int:
        """Return the number of files that are open now between slices."""
        return len(self._kept)

    def push_cached(self, connected: socket.socket, piece: FileSlice, sent: int) -> int | None:
        """Send bytes of a slice behind the first ``sent`` from memory; None if that takes a thread.

        Returns:
            The bytes that the socket has taken, 0 if it takes none now.

        Raises:
            SegmentChangedError: the file is shorter.
            PeerGoneError: the client went away.
            OSError: the file cannot be read.
        """
        file = self._open_file(piece)
        if file is None:
            return None
        position = piece.position + sent
        size_bytes = min(piece.size_bytes - sent, MOST_AT_ONCE_BYTES)
        if not self._are_cached(file, position, size_bytes):
            return None
        try:
            count = os.sendfile(connected.fileno(), file, position, size_bytes)
        except BlockingIOError:
            return 0
        except ConnectionError as error:
            raise PeerGoneError(error.strerror or "the client went away") from error
        except OSError:  # a page between the probes is not in memory, and the disk cannot read it
            _doubt(piece)
            raise
        if not count:
            raise _shorter(piece)
        return count

    async def push(self, connected: socket.socket, piece: FileSlice, sent: int) -> int:
        """Send bytes of a slice from a worker thread, until the socket takes no more; return how many.

        A cancelled call has sent some.

        Raises:
            SegmentChangedError: the file is gone, shorter, or another one.
            PeerGoneError: the client went away.
            OSError: the file cannot be read.
        """
        try:
            descriptor = os.dup(connected.fileno())  # the thread may outlive the socket of a cancelled call
        except OSError as error:
            raise PeerGoneError(f"no descriptor for the socket: {error.strerror}") from error
        self._is_used.set()
        pushing = self._executor.submit(self._push, descriptor, piece, sent)
        try:
            return await asyncio.wrap_future(pushing)
        except ConnectionError as error:
            raise PeerGoneError(error.strerror or "the client went away") from error
        finally:
            if pushing.cancelled():
                os.close(descriptor)
            del pushing  # its error refers to this call, and would keep the file of the slice open

    async def read(self, piece: FileSlice, start: int, size_bytes: int) -> bytes | bytearray:
        """Return ``size_bytes`` of a slice behind its first ``start`` bytes, or as many as the slice has.

        Raises:
            SegmentChangedError: the file is gone, shorter, or another one.
            OSError: the file cannot be read.
        """
        size_bytes = min(size_bytes, piece.size_bytes - start)
        file = self._open_file(piece)
        if file is not None and (cached := _read_cached(file, piece.position + start, size_bytes)) is not None:
            return cached
        self._is_used.set()
        return await asyncio.wrap_future(self._executor.submit(self._read, piece, start, size_bytes))

    async def watch(self) -> None:
        """Close files that were not used lately, until cancelled."""
        while True:
            await self._is_used.wait()
            await self._clock.sleep(_CHECK_INTERVAL_S)
            self._close_unused(self._clock.monotonic_s() - KEPT_S)
            if not self._kept:
                self._is_used.clear()

    def close(self) -> None:
        """Close all files, also those that threads still have in use."""
        with self._lock:
            self._is_closed = True
        self._close_unused(float("inf"))

    def _close_unused(self, since_s: float) -> None:
        with self._lock:
            unused = [key for key, each in self._kept.items() if each.used_at_s <= since_s]
            closed = [self._kept.pop(key).descriptor for key in unused]
        for descriptor in closed:
            os.close(descriptor)

    def _open_file(self, piece: FileSlice) -> int | None:
        if piece.opened is not None:
            return piece.opened.descriptor
        found = self._kept.get((str(piece.path), piece.inode))
        if found is None:
            return None
        found.used_at_s = self._clock.monotonic_s()
        return found.descriptor

    def _are_cached(self, file: int, position: int, size_bytes: int) -> bool:
        last = position + size_bytes - 1
        try:
            for at in (*range(position, last, _PROBE_INTERVAL_BYTES), last):
                os.preadv(file, [self._probe], at, os.RWF_NOWAIT)
        except OSError:  # not in memory, or the file system cannot tell
            return False
        return True

    def _push(self, descriptor: int, piece: FileSlice, sent: int) -> int:
        with ExitStack() as opened, _doubted_on_failure(piece):
            opened.callback(os.close, descriptor)
            file = self._opened(piece, opened)
            pushed = 0
            while sent + pushed < piece.size_bytes:
                at, left = piece.position + sent + pushed, piece.size_bytes - sent - pushed
                try:
                    count = os.sendfile(descriptor, file, at, left)
                except BlockingIOError:
                    break
                if not count:
                    raise _shorter(piece)
                pushed += count
            self._keep(piece, file)
            return pushed

    def _read(self, piece: FileSlice, start: int, size_bytes: int) -> bytes:
        with ExitStack() as opened, _doubted_on_failure(piece):
            file = self._opened(piece, opened)
            content = os.pread(file, size_bytes, piece.position + start)
            if len(content) < size_bytes:
                raise _shorter(piece)
            self._keep(piece, file)
            return content

    def _opened(self, piece: FileSlice, opened: ExitStack) -> int:
        if piece.opened is not None:
            return piece.opened.descriptor
        # A broker renames a segment that it deletes or compacts, and keeps the file for file.delete.delay.ms.
        for path in (piece.path, piece.path.with_name(f"{piece.path.name}{_DELETED}")):
            with suppress(FileNotFoundError):
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                opened.callback(os.close, file)
                if os.fstat(file).st_ino == piece.inode:
                    return file
        raise _changed(piece, "it is gone, or another file has its name")

    def _keep(self, piece: FileSlice, file: int) -> None:
        """Keep a copy of an open file's descriptor for the event loop, if there is room."""
        if piece.opened is not None:
            return
        key = (str(piece.path), piece.inode)
        with self._lock:
            if not self._is_closed and key not in self._kept and len(self._kept) < self._most_kept:
                self._kept[key] = _KeptFile(os.dup(file), self._clock.monotonic_s())


def _read_cached(file: int, position: int, size_bytes: int) -> bytearray | None:
    content = bytearray(size_bytes)
    try:
        count = os.preadv(file, [content], position, os.RWF_NOWAIT)
    except OSError:  # not in memory, or the file system cannot tell
        return None
    return content if count == size_bytes else None


@contextmanager
def _doubted_on_failure(piece: FileSlice) -> Iterator[None]:
    """Have the owner of an open file check it again after a failed read."""
    try:
        yield
    except (BlockingIOError, ConnectionError):  # of the socket
        raise
    except OSError:
        _doubt(piece)
        raise


def _doubt(piece: FileSlice) -> None:
    if piece.opened is not None:
        piece.opened.is_doubted = True


def _shorter(piece: FileSlice) -> SegmentChangedError:
    _doubt(piece)
    return _changed(piece, "it is shorter")


def _changed(piece: FileSlice, problem: str) -> SegmentChangedError:
    return SegmentChangedError(
        f"{piece.path}: {problem} since bytes {piece.position} to {piece.position + piece.size_bytes} were to be sent"
    )
