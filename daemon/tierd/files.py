"""Files for this user alone, and files in directories that others may write: the one way to make and to open them."""

import errno
import os
import stat
from io import FileIO
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_OF_OTHERS = 0o077
_OWN_DESCRIPTORS = "/proc/self/fd"


def open_regular(
    path: Path | str, flags: int = os.O_RDONLY, mode: int = PRIVATE_FILE, *, dir_fd: int | None = None
) -> int:
    """Open a regular file and return its descriptor, without ever waiting for what else has that name.

    A symbolic link is not followed. A named pipe, a device, a socket or a directory is refused. Only the last part of
    ``path`` is looked at. A path ``/proc/self/fd/N`` opens the file of the process's own descriptor once more.

    Raises:
        OSError: there is no such file, it is not a regular one, or it cannot be opened.
    """
    follow = 0 if str(path).rpartition("/")[0] == _OWN_DESCRIPTORS else os.O_NOFOLLOW
    try:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | follow, mode, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:  # a link; a pipe or a socket
            raise _not_regular(path) from error
        raise
    kind = stat.S_IFMT(os.fstat(fd).st_mode)
    if kind != stat.S_IFREG:
        os.close(fd)
        raise _not_regular(path, errno.EISDIR if kind == stat.S_IFDIR else errno.EINVAL)
    return fd


def open_to_read(path: Path | str, *, dir_fd: int | None = None) -> FileIO:
    """Open a regular file as ``open_regular`` does, to be read without a buffer.

    Raises:
        OSError: as ``open_regular``.
    """
    return FileIO(open_regular(path, dir_fd=dir_fd), "rb")


def make_private_directory(path: Path) -> None:
    """Create a directory and the parents that it lacks, each for its owner alone; one that exists stays as it is.

    Raises:
        OSError: it cannot be made, or something else has its name.
    """
    if path.is_dir():
        return
    make_private_directory(path.parent)
    try:
        path.mkdir(mode=PRIVATE_DIRECTORY)
    except FileExistsError as error:
        if not path.is_dir():  # not made by another thread a moment ago
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path)) from error


def make_private(path: Path | str) -> bool:
    """Take from other users what they may do with a file or directory of ours; return whether they could do anything.

    A link, and what belongs to another user, stays as it is; for root all files are its own. The file is not opened:
    to close it would give up the locks that this process has on it.

    Raises:
        OSError: it is not there, or its mode cannot be changed.
    """
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        is_ours = os.geteuid() in {status.st_uid, 0} and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode))
        if not is_ours or not stat.S_IMODE(status.st_mode) & _OF_OTHERS:
            return False
        Path(f"{_OWN_DESCRIPTORS}/{fd}").chmod(stat.S_IMODE(status.st_mode) & ~_OF_OTHERS)
        return True
    finally:
        os.close(fd)


def _not_regular(path: Path | str, number: int = errno.EINVAL) -> OSError:
    return OSError(number, "not a regular file", str(path))
