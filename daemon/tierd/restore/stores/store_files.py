"""StoreFiles: the blocking half of a store on disk. The other half is ``DiskStore``, which calls it in one thread."""

import fcntl
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tierd.files import make_private_directory
from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogRecords

_WIPING: Final = ".wiping"


class StoreFiles(Protocol):
    """Open files of a store.

    Raises, from every call:
        OSError: the disk is full or failing.
        StoreFailedError: the files are damaged, or another program has them.
    """

    def apply(self, records: ChangelogRecords, last_offset: int) -> None:
        """Set or delete every key in order, and keep ``last_offset`` if the store keeps offsets, as one unit."""

    def stored_offset(self) -> int | None:
        """Return the last applied offset; None without one."""

    def store_id(self) -> str | None:
        """Return the id that the files got when they were made; None if they cannot keep one."""

    def is_empty(self) -> bool:
        """Return True if there is no key."""

    def flush(self) -> None:
        """Make every applied batch durable."""

    def close(self) -> None:
        """Close the files."""


class StoreEngine(NamedTuple):
    """Kind of files.

    Attributes:
        file_names: pattern of the names of its files; a wipe removes these and no others.
        open: opens the files of the store of a name, or makes them in an empty directory; raises what every call of
            ``StoreFiles`` raises.
    """

    file_names: re.Pattern[str]
    open: Callable[[str, Path], StoreFiles]


class StoreDirectory:
    """Directory of one store, locked against other processes of tierd. Blocking.

    ::

        .wiping                    made durable, then
        the files of the engine    unlinked, then
        .wiping                    unlinked: the wipe is complete
    """

    def __init__(self, name: str, path: Path, engine: StoreEngine) -> None:
        self._name = name
        self._path = path
        self._engine = engine
        make_private_directory(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._lock()
            self._require_own()
            if (path / _WIPING).exists():
                self._remove_files()
        except BaseException:
            self.close()
            raise

    def open_files(self) -> StoreFiles:
        """Open the files of the store."""
        return self._engine.open(self._name, self._path)

    def wipe(self) -> None:
        """Remove the files, which are closed. A crash in the middle leaves the mark that the next opening goes by."""
        mark = os.open(self._path / _WIPING, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fsync(mark)
        finally:
            os.close(mark)
        os.fsync(self._fd)
        self._remove_files()

    def close(self) -> None:
        """Release the lock."""
        os.close(self._fd)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreFailedError(
                self._name, f"another process has {self._path} open", remedy="end it, then restore again"
            ) from error

    def _require_own(self) -> None:
        """Refuse a directory of something else, whose files a wipe must not remove and an opening must not mix."""
        names = [each.name for each in self._path.iterdir()]
        foreign = [name for name in names if name != _WIPING and not self._engine.file_names.fullmatch(name)]
        if foreign and len(foreign) == len(names):
            raise StoreFailedError(
                self._name,
                f"{self._path} holds other files, such as {min(foreign)}",
                remedy="name an empty directory, or the directory of this store",
            )

    def _remove_files(self) -> None:
        for path in list(self._path.iterdir()):
            if path.name != _WIPING and self._engine.file_names.fullmatch(path.name):
                path.unlink()
        os.fsync(self._fd)
        (self._path / _WIPING).unlink()
        os.fsync(self._fd)


@contextmanager
def as_store_failure(name: str) -> Iterator[None]:
    """Translate an error of the disk."""
    try:
        yield
    except OSError as error:
        raise StoreFailedError(name, str(error)) from error
