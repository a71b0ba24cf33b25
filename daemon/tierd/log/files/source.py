"""Access to the files of a broker: read-only, within bounds, every ``OSError`` translated into an error of tierd."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import LogDirOfflineError, LogError, SegmentChangedError
from tierd.files import open_regular
from tierd.log.files.disk import fill, read_up_to

_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE})


@contextmanager
def broker_file(path: Path) -> Iterator[None]:
    """Translate an ``OSError`` about ``path`` into an error of tierd.

    Raises:
        SegmentChangedError: the file is not there, or not there any more.
        LogDirOfflineError: anything else; the disk, the mount or the permissions.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _GONE:
            raise SegmentChangedError(
                f"{path}: not there, or gone while it was read",
                remedy="nothing to do: the partition is looked at again",
            ) from error
        raise LogDirOfflineError(
            f"{path}: {error.strerror or error}", remedy="check the disk, the mount and who may read the file"
        ) from error


@dataclass(frozen=True, slots=True)
class Source:
    """An open file, with its size and identity at the time of the opening."""

    path: Path
    fd: int
    size_bytes: int
    mtime_ns: int
    inode: int

    def read_into(self, target: memoryview, position: int) -> None:
        """Fill ``target`` with the bytes from ``position`` on.

        Raises:
            SegmentChangedError: the file ends before ``target`` is full.
        """
        if not fill(self.fd, target, position):
            raise self.changed()

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``position`` on; fewer only at the file's end when it was opened."""
        return read_up_to(self.fd, position, min(size, self.size_bytes - position))

    def require_unchanged(self) -> None:
        """Raise if the size or the modification time of the file has changed since the opening.

        Raises:
            SegmentChangedError: another process wrote to the file meanwhile.
        """
        now = os.fstat(self.fd)
        if (now.st_size, now.st_mtime_ns) != (self.size_bytes, self.mtime_ns):
            raise self.changed()

    def changed(self) -> SegmentChangedError:
        """Return the error for a file that changed while it was in use."""
        return SegmentChangedError(
            f"{self.path}: changed while it was read (it had {self.size_bytes} bytes)",
            remedy="nothing to do: the partition is looked at again",
        )


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open a regular file for reading; it is closed at the end.

    Raises:
        SegmentChangedError: it is not there, or vanishes.
        LogDirOfflineError: it cannot be read, or is a device, a pipe or a directory.
    """
    with broker_file(path):
        fd = open_regular(path)
        try:
            status = os.fstat(fd)
            yield Source(path, fd, status.st_size, status.st_mtime_ns, status.st_ino)
        finally:
            os.close(fd)


def read_whole(path: Path, *, limit_bytes: int, error: type[LogError]) -> bytes:
    """Read a small file that has to fit in memory.

    Raises:
        LogError: of the kind ``error``, when it is larger than ``limit_bytes``.
        SegmentChangedError: it is not there.
        LogDirOfflineError: it cannot be read.
    """
    with open_source(path) as source:
        if source.size_bytes > limit_bytes:
            raise error(f"{path}: larger than {limit_bytes} bytes, which no such file is", remedy=f"look at {path}")
        return source.read(0, source.size_bytes)
