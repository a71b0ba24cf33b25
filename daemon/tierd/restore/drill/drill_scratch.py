"""DrillScratch: the directory in which drills restore, held by one process, and what a killed drill left in it.

::

    <scratch>/lock                        held while a drill runs; has the process id
    <scratch>/drill-<number>/log-dir      log dir with the restored partition
    <scratch>/drill-<number>/stage        work of the restore
    <scratch>/kept-<time>-<partition>/    result that a person asked to keep; a long name is cut
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from tierd.errors import AlreadyRunningError, RefusedError, StateDirError
from tierd.files import bytes_left_to_broker, make_own_directory, open_regular

log = structlog.get_logger()

_PLACE: Final = re.compile(r"drill-[0-9]{1,9}")
_MAX_NAME: Final = 255  # of a file; a topic has up to 249
_HEADROOM: Final = 1.1


class DrillScratch:
    """Scratch directory that this process holds. Blocking."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._number = 0

    def new_place(self, size_bytes: int) -> Path:
        """Make an empty directory for one partition.

        Args:
            size_bytes: that the partition will need.

        Raises:
            RefusedError: less than 5 % of the file system would be free, or less than 95 % of what is free now.
            OSError: it cannot be made.
        """
        needed, reserve = int(size_bytes * _HEADROOM), bytes_left_to_broker(self._directory)
        free = shutil.disk_usage(self._directory).free
        if free - needed < reserve:
            raise RefusedError(
                f"{self._directory}: {free} bytes are free; the drill needs {needed}, and leaves {reserve}",
                remedy="make room, or set drill.scratch_dir to a larger file system",
            )
        self._number += 1
        place = self._directory / f"drill-{self._number}"
        place.mkdir(mode=0o700)
        return place

    def remove(self, place: Path) -> None:
        """Remove a place with all that is in it; what cannot be removed is left to the next drill."""
        shutil.rmtree(place, ignore_errors=True)
        if place.exists():
            log.warning("drill_not_cleared", path=str(place), remedy="remove it; the next drill tries again")

    def keep(self, place: Path, partition: str, *, now_ms: int) -> Path:
        """Give a place a name under which no drill removes it, and return its new path.

        Raises:
            OSError: it cannot be renamed.
        """
        moment = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%S.%f")
        name = f"kept-{moment}-{partition}"
        return place.rename(self._directory / name[:_MAX_NAME])


@contextmanager
def held_scratch(directory: Path) -> Iterator[DrillScratch]:
    """Hold the scratch directory for one drill, and remove what a drill that was killed left in it. Blocking.

    Raises:
        AlreadyRunningError: a drill of another process, or of this one, holds it.
        StateDirError: the directory cannot be made or locked, or belongs to another user.
    """
    try:
        make_own_directory(directory)
        fd = open_regular(directory / "lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise _unusable(directory, error) from error
    try:
        _lock(fd, directory)
        scratch = DrillScratch(directory)
        _sweep(scratch, directory)
        yield scratch
    finally:
        os.close(fd)  # and with it the lock; the file stays, for unlinking it would race with the next holder


def _lock(fd: int, directory: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
        raise AlreadyRunningError(
            f"a drill of process {holder} uses {directory}", remedy="wait for it: tierd status shows a daemon's drill"
        ) from error
    except OSError as error:
        raise _unusable(directory, error) from error


def _sweep(scratch: DrillScratch, directory: Path) -> None:
    try:
        left = [path for path in directory.iterdir() if _PLACE.fullmatch(path.name) and not path.is_symlink()]
    except OSError as error:
        raise _unusable(directory, error) from error
    for place in left:
        log.info("drill_swept", path=str(place))
        scratch.remove(place)


def _unusable(directory: Path, error: OSError) -> StateDirError:
    return StateDirError(
        f"{directory} cannot be used for drills: {error.strerror or error}",
        remedy="free space or grant this user write permission there, or set drill.scratch_dir to another directory",
    )
