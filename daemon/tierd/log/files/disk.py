"""Disk: the calls that a partition log makes to a file system, so that a test can simulate a loss of power.

Every call blocks and raises ``OSError`` as the system does; the caller decides about the error. Only synced changes are
durable: ``sync`` of a file for its bytes, ``sync_directory`` of the parent for a name (new, renamed, removed).
"""

import errno
import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tierd.errors import CorruptIndexError, SegmentChangedError
from tierd.files import open_regular

Buffer = bytes | bytearray | memoryview

_PIECES_AT_ONCE = 512  # below IOV_MAX everywhere
_FILE_MODE = 0o640  # of own logs: others than the group have no business with the records
_DIRECTORY_MODE = 0o750
_LIMIT_BYTES = 256 << 20  # of an artefact; a broker's default for an index is 10 MiB


@dataclass(frozen=True, slots=True)
class FileStatus:
    """Size, modification time and kind of a file or directory."""

    size_bytes: int
    mtime_ms: int
    is_directory: bool


class Readable(Protocol):
    """An open file that can be read at any position, by any thread."""

    @property
    def path(self) -> Path:
        """Return the name of the file, for errors."""

    @property
    def size_bytes(self) -> int:
        """Return the size up to which the file may be read."""

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``position`` on; fewer only at the end."""

    def read_into(self, target: memoryview, position: int) -> None:
        """Fill ``target`` with the bytes from ``position`` on.

        Raises:
            SegmentChangedError: the file ends before ``target`` is full.
        """

    def changed(self) -> SegmentChangedError:
        """Return the error for a file that changed while it was in use."""


class DiskFile(Readable, Protocol):
    """An open file that can be read and written. It has one writer at a time, and the code that opened it closes it."""

    def renamed(self, path: Path) -> None:
        """Take note of the name that it has now."""

    def write(self, position: int, pieces: Sequence[Buffer]) -> None:
        """Write all of ``pieces``, one after the other, from ``position`` on; the file grows as needed.

        Raises:
            OSError: the disk is full or failing; any part may have been written.
        """

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or let it grow by zeros that take no room."""

    def sync(self) -> None:
        """Return once the file's bytes and size are on stable storage."""

    def close(self) -> None:
        """Give the file back; a second time does nothing."""


class Disk(Protocol):
    """Names and files."""

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> DiskFile:
        """Open a regular file. With ``create`` it is made, empty, if it is not there.

        Raises:
            FileNotFoundError: it is not there.
        """

    def list_names(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""

    def status(self, path: Path) -> FileStatus | None:
        """Return the status of the file or directory at ``path``; None if it does not exist."""

    def rename(self, source: Path, target: Path) -> None:
        """Give ``source`` the name ``target``, atomically, replacing a file that has it."""

    def unlink(self, path: Path) -> None:
        """Remove a file's name.

        Raises:
            FileNotFoundError: it is not there.
        """

    def make_directory(self, path: Path) -> None:
        """Make one directory, whose parent exists.

        Raises:
            FileExistsError: the name is taken.
        """

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    def sync_directory(self, path: Path) -> None:
        """Return once the names in ``path`` are on stable storage; a directory that is gone is no error."""

    def set_mtime_ms(self, path: Path, mtime_ms: int) -> None:
        """Set a file's modification time."""


def read_up_to(fd: int, position: int, size: int) -> bytes:
    """Read from a descriptor, fewer bytes only at the file's end. ``size``, which is allocated first, is the bound."""
    pieces = []
    while size > 0 and (piece := os.pread(fd, size, position)):
        pieces.append(piece)
        position += len(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def fill(fd: int, target: memoryview, position: int) -> bool:
    """Fill ``target`` from a descriptor; return false when the file ends before that."""
    done = 0
    while done < len(target):
        count = os.preadv(fd, [target[done:]], position + done)
        if not count:
            return False
        done += count
    return True


class OsFile:
    """A ``DiskFile`` of this host."""

    def __init__(self, path: Path, fd: int, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self._fd = fd

    def renamed(self, path: Path) -> None:
        """Take note of the name that it has now."""
        self.path = path

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``position`` on; fewer only at the end."""
        return read_up_to(self._fd, position, min(size, self.size_bytes - position))

    def read_into(self, target: memoryview, position: int) -> None:
        """Fill ``target`` with the bytes from ``position`` on.

        Raises:
            SegmentChangedError: the file ends before ``target`` is full.
        """
        if not fill(self._fd, target, position):
            raise self.changed()

    def write(self, position: int, pieces: Sequence[Buffer]) -> None:
        """Write all of ``pieces`` from ``position`` on."""
        for start in range(0, len(pieces), _PIECES_AT_ONCE):
            position = self._write(position, pieces[start : start + _PIECES_AT_ONCE])
        self.size_bytes = max(self.size_bytes, position)

    def _write(self, position: int, pieces: Sequence[Buffer]) -> int:
        left = sum(map(len, pieces))
        while left:
            written = os.pwritev(self._fd, pieces, position)
            position += written
            left -= written
            if left:  # rare: a signal, or a disk that is just filling up; the next call says which
                pieces = [memoryview(b"".join(pieces))[written:]]
        return position

    def truncate(self, size_bytes: int) -> None:
        """Cut the file, or let it grow by zeros."""
        os.ftruncate(self._fd, size_bytes)
        self.size_bytes = size_bytes

    def sync(self) -> None:
        """Return once the file's bytes and size are on stable storage."""
        if self._fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))
        os.fdatasync(self._fd)

    def close(self) -> None:
        """Give the file back; a second time does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def changed(self) -> SegmentChangedError:
        """Return the error for a file that changed while it was in use."""
        return SegmentChangedError(
            f"{self.path}: changed while it was read (it had {self.size_bytes} bytes)", remedy="read again"
        )


class OsDisk:
    """The ``Disk`` of this host."""

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> OsFile:
        """Open a regular file."""
        flags = (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0)
        fd = open_regular(path, flags, _FILE_MODE)
        return OsFile(path, fd, os.fstat(fd).st_size)

    def list_names(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(path))  # noqa: PTH208 - names are all that is wanted

    def status(self, path: Path) -> FileStatus | None:
        """Return the status of the file or directory at ``path``; None if it does not exist."""
        try:
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStatus(status.st_size, status.st_mtime_ns // 1_000_000, stat.S_ISDIR(status.st_mode))

    def rename(self, source: Path, target: Path) -> None:
        """Give ``source`` the name ``target``, atomically."""
        source.rename(target)

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""
        path.unlink()

    def make_directory(self, path: Path) -> None:
        """Make one directory."""
        path.mkdir(mode=_DIRECTORY_MODE)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def sync_directory(self, path: Path) -> None:
        """Return once the names in ``path`` are on stable storage."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def set_mtime_ms(self, path: Path, mtime_ms: int) -> None:
        """Set a file's modification time."""
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))


def read_file(disk: Disk, path: Path) -> bytes:
    """Read a small file whole.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    file = disk.open(path, write=False)
    try:
        return file.read(0, file.size_bytes)
    finally:
        file.close()


def read_artefact(disk: Disk, path: Path, *, name: str) -> bytes:
    """Read an index, a snapshot or a text file whole; ``name`` is for errors.

    Raises:
        CorruptIndexError: it is larger than any can be.
        OSError: it is not there, or cannot be read.
    """
    file = disk.open(path, write=False)
    try:
        if file.size_bytes > _LIMIT_BYTES:
            raise CorruptIndexError(f"{name}: {file.size_bytes} bytes are too many")
        return file.read(0, file.size_bytes)
    finally:
        file.close()


def replace_file(disk: Disk, path: Path, data: bytes) -> None:
    """Replace a small file's content, durably: all of it, or none (log-format 1.4).

    ``<name>.tmp``, sync, rename, sync of the directory. A crash leaves the old content, and at worst a ``.tmp``.

    Raises:
        OSError: the disk is full or failing; the old content is still there.
    """
    temporary = path.with_name(path.name + ".tmp")
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.write(0, [data])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def unlink_if_there(disk: Disk, path: Path) -> bool:
    """Remove a name; return whether it was there."""
    with suppress(FileNotFoundError):
        disk.unlink(path)
        return True
    return False
