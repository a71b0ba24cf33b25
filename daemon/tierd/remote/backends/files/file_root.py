"""Paths below the root of a filesystem store that stay below it, also when other users plant links meanwhile.

A path is resolved name by name from the root, and no name of it may be a link. The directory that was found is used
by its descriptor, and its names are opened, linked, renamed and removed as ``/proc/self/fd/N/name``.
"""

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path, PurePath
from typing import NamedTuple

from tierd.files import open_to_read

FILE_MODE = 0o640  # the group may read, because Spark may run as another user of the group
DIRECTORY_MODE = 0o750

_AS_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class FoundName(NamedTuple):
    """A name in a directory: a folder, a file, or neither (a link, a pipe, a socket or a device)."""

    name: str
    is_folder: bool
    is_file: bool


@contextmanager
def anchored(root: Path, path: Path) -> Iterator[Path]:
    """Give a path to the same name as ``path``, in its directory as it was found below ``root``. Blocking.

    Raises:
        FileNotFoundError: the directory is not there.
        NotADirectoryError: a file is in the place of a directory.
        OSError: a link is in the place of a directory (ELOOP), or the work inside the context fails; it names ``path``.
    """
    fd = _open_directory(root, path.parent.relative_to(root).parts)
    try:
        yield Path(f"/proc/self/fd/{fd}", path.name)
    except OSError as error:
        if str(error.filename).startswith(f"/proc/self/fd/{fd}"):
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        os.close(fd)


def open_below(root: Path, path: PurePath) -> FileIO:
    """Open the regular file at ``path``, relative to ``root``, to read it. Blocking; as ``anchored``, but cheaper.

    Raises:
        OSError: as ``anchored`` and ``open_regular``; it names the whole path.
    """
    *names, last = path.parts
    fd = _open_directory(root, names)
    try:
        return open_to_read(last, dir_fd=fd)
    except OSError as error:
        error.filename = str(root / path)
        raise
    finally:
        os.close(fd)


def make_directories_below(root: Path, directory: Path) -> None:
    """Create ``directory`` and its parents below ``root``, which exists.

    Raises:
        OSError: a directory cannot be made, or a link has its name.
    """
    if directory == root:
        return
    make_directories_below(root, directory.parent)
    with anchored(root, directory) as place, suppress(FileExistsError):
        place.mkdir(mode=DIRECTORY_MODE)


def names_in(root: Path, folder: Path) -> list[FoundName]:
    """Return the names in ``folder``; none when it is not there. Links are not followed."""
    try:
        fd = _open_directory(root, folder.relative_to(root).parts)
    except (FileNotFoundError, NotADirectoryError):
        return []  # removed meanwhile, or not made yet
    try:
        with os.scandir(f"/proc/self/fd/{fd}") as entries:
            return [
                FoundName(each.name, each.is_dir(follow_symlinks=False), each.is_file(follow_symlinks=False))
                for each in entries
            ]
    finally:
        os.close(fd)


def _open_directory(root: Path, names: Sequence[str]) -> int:
    """Return a descriptor of a directory. The root and its parents may be links: the configuration names them."""
    fd = os.open(root, _AS_PLACE)
    try:
        for name in names:
            inner = _open_inner(fd, name, root)
            os.close(fd)
            fd = inner
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open_inner(fd: int, name: str, root: Path) -> int:
    try:
        return os.open(name, _AS_PLACE | os.O_NOFOLLOW, dir_fd=fd)
    except NotADirectoryError as error:
        if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, f"{name} is a link, not a directory of the store", str(root)) from error
        raise
