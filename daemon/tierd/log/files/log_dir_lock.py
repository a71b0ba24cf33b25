"""LogDirLock: one owner per log dir, the same lock that a broker takes (log-format 1.3; Kafka: FileLock).

Java's ``FileLock`` is a POSIX record lock over the whole of ``.lock``. Such a lock belongs to the process, and the
kernel releases it when the process closes any descriptor of the file. So a set of the files that are locked here keeps
a second manager of the same process from opening such a file, under any name.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Self

from tierd.errors import LogDirLockedError
from tierd.files import open_regular

LOCK_FILE = ".lock"

_held: set[tuple[int, int]] = set()  # device and inode
_held_guard = Lock()


class LogDirLock:
    """The lock of one log dir, held from ``acquire`` until ``release`` or the end of the process."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    def acquire(cls, log_dir: Path) -> Self:
        """Take the lock. Does not wait.

        Raises:
            LogDirLockedError: another process, or another manager of this one, has it.
            OSError: the log dir cannot be written.
        """
        path = log_dir.resolve() / LOCK_FILE
        with _held_guard:
            _require_not_ours(path, log_dir)
            fd = _open_locked(path, log_dir)
            _held.add(_identity(os.fstat(fd)))
        return cls(path, fd)

    def release(self) -> None:
        """Remove the file and give the lock back; a second time does nothing."""
        with _held_guard:
            fd, self._fd = self._fd, -1
            if fd < 0:
                return
            with suppress(OSError):  # a log dir that went offline; the lock goes with the descriptor all the same
                self._path.unlink()
            _held.discard(_identity(os.fstat(fd)))
            os.close(fd)


def require_unlocked(log_dir: Path) -> None:
    """Return if no process holds the log dir; the check changes no file.

    Raises:
        LogDirLockedError: a process holds the log dir.
        OSError: the file cannot be read.
    """
    path = log_dir.resolve() / LOCK_FILE
    with _held_guard:
        _require_not_ours(path, log_dir)
        try:
            fd = open_regular(path)
        except FileNotFoundError:
            return
        try:
            fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise _locked(log_dir) from error
        finally:
            os.close(fd)


def _require_not_ours(path: Path, log_dir: Path) -> None:
    """Compare names only: opening and closing the file would release the lock that this process has on it."""
    with suppress(FileNotFoundError):
        if _identity(path.stat()) in _held:
            raise _locked(log_dir)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _open_locked(path: Path, log_dir: Path) -> int:
    while True:
        fd = open_regular(path, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, fd):
                return fd
        except (BlockingIOError, PermissionError) as error:  # POSIX leaves the choice to the system
            os.close(fd)
            raise _locked(log_dir) from error
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its owner removed the name between our open and our lock


def _is_still(path: Path, fd: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False


def _locked(log_dir: Path) -> LogDirLockedError:
    return LogDirLockedError(
        f"log dir {log_dir} is in use: {LOCK_FILE} is locked",
        remedy="stop the broker or the tierd that has it; two writers would destroy it",
    )
