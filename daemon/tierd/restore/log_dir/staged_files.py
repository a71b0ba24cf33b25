"""Files in the stage of a restore, written durably. Every call blocks and raises ``OSError`` for the disk."""

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from tierd.log import OsDisk, open_source

_COPY_BYTES = 1 << 20
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK})


def write_durably(path: Path, pieces: bytes | Iterable[bytes | bytearray]) -> None:
    """Write a new file, or write it anew; its name becomes durable with its directory."""
    file = OsDisk().open(path, create=True)
    try:
        file.truncate(0)
        position = 0
        for piece in (pieces,) if isinstance(pieces, bytes) else pieces:
            file.write(position, [piece])
            position += len(piece)
        file.sync()
    finally:
        file.close()


def copy_range(source: Path, target: Path, begin: int, end: int) -> None:
    """Write the bytes ``[begin, end)`` of ``source`` to ``target``, anew and durably.

    Raises:
        SegmentChangedError: ``source`` is shorter.
        LogDirOfflineError: ``source`` cannot be read.
    """

    def pieces() -> Iterable[bytes]:
        for position in range(begin, end, _COPY_BYTES):
            size = min(_COPY_BYTES, end - position)
            piece = opened.read(position, size)
            if len(piece) < size:
                raise opened.changed()
            yield piece

    with open_source(source) as opened:
        write_durably(target, pieces())


def link_durably(source: Path, target: Path) -> None:
    """Give a file that is durable already a second name, in place of a file that has the name.

    A file system without links gets a copy.
    """
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        copy_range(source, target, 0, source.stat().st_size)


def make_empty(directory: Path) -> None:
    """Make a directory, or remove what an earlier run has left in it."""
    if directory.exists():
        shutil.rmtree(directory)
    parent, disk = directory.parent, OsDisk()
    disk.make_directory(directory)
    disk.sync_directory(parent)
