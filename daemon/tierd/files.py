"""Files and unix sockets for this user alone, and files in directories that others may write: made and opened here."""

import errno
import os
import shutil
import socket
import stat
import struct
from io import FileIO
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_DIRECTORY = 0o700
_OF_OTHERS = 0o077
_WRITTEN_BY_OTHERS = 0o022
_OWN_DESCRIPTORS = "/proc/self/fd"
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_LEAST_FREE = 0.05  # of the file system
_LEAST_KEPT = 0.95  # of what is free: on a nearly full disk, work that the broker hardly notices is still done


def open_regular(
    path: Path | str, flags: int = os.O_RDONLY, mode: int = PRIVATE_FILE, *, dir_fd: int | None = None
) -> int:
    """Open a regular file and return its descriptor; never wait for a pipe or device with that name.

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


def nearest_existing(path: Path) -> Path:
    """Return ``path``, or the nearest of its parents that exists. Blocking.

    Raises:
        OSError: the file system does not say.
    """
    return next(each for each in (path, *path.parents) if each.exists())


def bytes_left_to_broker(path: Path) -> int:
    """Return how many bytes of a file system tierd leaves free, since a broker may have its log dirs on it. Blocking.

    5 % of the file system; where less is free already, 95 % of what is free.

    Raises:
        OSError: the file system does not say.
    """
    usage = shutil.disk_usage(path)
    return int(min(usage.total * _LEAST_FREE, usage.free * _LEAST_KEPT))


def replace_privately(path: Path, content: bytes) -> None:
    """Replace a file by one for its owner alone, durably; a crash leaves the former file or the new one.

    Raises:
        OSError: the disk is full or failing; the former file is still there.
    """
    temporary = path.with_suffix(".tmp")
    with os.fdopen(open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Return once the names in a directory are on stable storage.

    Raises:
        OSError: the directory is not there, or its disk fails.
    """
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def make_private_directory(path: Path) -> None:
    """Create a directory and the parents that it lacks, each for its owner alone; one that exists stays as it is.

    Raises:
        OSError: it cannot be made, or a file has its name.
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
    """Remove the rights of other users on a file or directory of this user; return True if they had any.

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


def make_own_directory(path: Path) -> None:
    """Create a directory for its owner alone, or close one of ours to others; no link is followed.

    Raises:
        OSError: it cannot be made or closed, a file has its name, or it belongs to another user.
    """
    make_private_directory(path)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if os.geteuid() not in {status.st_uid, 0}:
        raise PermissionError(errno.EPERM, f"belongs to user id {status.st_uid}", str(path))
    make_private(path)


def require_unchangeable(path: Path) -> None:
    """Require that no other user but root can rename or remove what lies in a directory and is not that user's.

    Raises:
        OSError: it is no directory, belongs to another user, or others may write into it.
    """
    status = path.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if os.geteuid() not in {status.st_uid, 0} and status.st_uid != 0:
        raise PermissionError(errno.EPERM, f"belongs to user id {status.st_uid}", str(path))
    if status.st_mode & _WRITTEN_BY_OTHERS and not status.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, "other users may write into it", str(path))


def bind_privately(channel: socket.socket, address: str) -> None:
    """Bind a unix socket to which the owner alone may connect, from the first moment on.

    Linux gives the name the mode that the socket has at the bind. A umask set for that time would also apply to every
    file and directory that another thread makes meanwhile.

    Raises:
        OSError: the address cannot be bound.
    """
    os.fchmod(channel.fileno(), PRIVATE_FILE)
    channel.bind(address)


def is_own_peer(channel: socket.socket) -> bool:
    """Return whether the peer of a connected unix socket is this process's own user, or root."""
    credentials = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    return uid in {0, os.geteuid()}


def _not_regular(path: Path | str, number: int = errno.EINVAL) -> OSError:
    return OSError(number, "not a regular file", str(path))
