"""FailingDisk: the host's disk with calls that fail at the request of a test."""

import errno
from collections.abc import Callable, Sequence
from pathlib import Path

from tierd.log.files.disk import Buffer, OsDisk, OsFile

Fails = Callable[[str, Path], bool]
"""Whether the operation (``write``, ``sync``, ``rename``, ``open``) on the path is to fail."""


class FailingDisk(OsDisk):
    """Disk that fails with EIO for the calls that ``fails`` selects."""

    def __init__(self) -> None:
        self.fails: Fails = lambda _operation, _path: False

    def check(self, operation: str, path: Path) -> None:
        """Fail if the test selected the call.

        Raises:
            OSError: the test selected the call.
        """
        if self.fails(operation, path):
            raise OSError(errno.EIO, f"{operation} failed", str(path))

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> OsFile:
        self.check("open", path)
        file = super().open(path, create=create, write=write)
        return _FailingFile(self, file)

    def rename(self, source: Path, target: Path) -> None:
        self.check("rename", source)
        super().rename(source, target)


class _FailingFile(OsFile):
    def __init__(self, disk: FailingDisk, file: OsFile) -> None:
        super().__init__(file.path, file._fd, file.size_bytes)
        self._disk = disk

    def write(self, position: int, pieces: Sequence[Buffer]) -> None:
        self._disk.check("write", self.path)
        super().write(position, pieces)

    def sync(self) -> None:
        self._disk.check("sync", self.path)
        super().sync()
