"""Slices of local segments on their way to a socket. These functions run in worker threads, for a disk may be slow."""

import os
from contextlib import ExitStack

from tierd.errors import SegmentChangedError
from tierd.serve.kafka.served.served_log import FileSlice


def push_slice(descriptor: int, piece: FileSlice, sent: int) -> int:
    """Send bytes of a slice behind the first ``sent``, until the socket takes no more; return how many.

    Args:
        descriptor: of a socket that does not block; it is closed here.
        piece: the slice.
        sent: bytes that were sent before.

    Raises:
        SegmentChangedError: the file is gone, shorter, or another one.
        ConnectionError: the peer went away.
        OSError: the file cannot be read.
    """
    with ExitStack() as opened:
        opened.callback(os.close, descriptor)
        file = _opened(piece, opened)
        pushed = 0
        while sent + pushed < piece.size_bytes:
            try:
                count = os.sendfile(descriptor, file, piece.position + sent + pushed, piece.size_bytes - sent - pushed)
            except BlockingIOError:
                break
            if not count:
                raise _changed(piece, "it is shorter")
            pushed += count
        return pushed


def read_slice(piece: FileSlice, start: int, size_bytes: int) -> bytes:
    """Return ``size_bytes`` of a slice behind its first ``start`` bytes, or as many as the slice has.

    Raises:
        SegmentChangedError: the file is gone, shorter, or another one.
        OSError: the file cannot be read.
    """
    size_bytes = min(size_bytes, piece.size_bytes - start)
    with ExitStack() as opened:
        file = _opened(piece, opened)
        content = os.pread(file, size_bytes, piece.position + start)
    if len(content) < size_bytes:
        raise _changed(piece, "it is shorter")
    return content


def _opened(piece: FileSlice, opened: ExitStack) -> int:
    try:
        file = os.open(piece.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise _changed(piece, "it is gone") from error
    opened.callback(os.close, file)
    if os.fstat(file).st_ino != piece.inode:
        raise _changed(piece, "another file has its name")
    return file


def _changed(piece: FileSlice, problem: str) -> SegmentChangedError:
    return SegmentChangedError(
        f"{piece.path}: {problem} since bytes {piece.position} to {piece.position + piece.size_bytes} were to be sent"
    )
