"""DiskWatch: room on the disks of the log dirs and of the state dir. A disk that hangs delays no other."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tierd.clock import Clock
from tierd.files import nearest_existing
from tierd.telemetry import DiskUse

INTERVAL_S: Final = 15.0
MAX_AGE_S: Final = 2 * INTERVAL_S


class _Measured(NamedTuple):
    use: DiskUse
    at_s: float


class DiskWatch:
    """Room on the file systems of some directories. For one event loop; ``run`` is its task."""

    def __init__(
        self, directories: Iterable[Path], *, clock: Clock, use_of: Callable[[Path], DiskUse] | None = None
    ) -> None:
        """Measure nothing yet; ``use_of`` (default: ``disk_use``) measures one directory, blocking."""
        self._directories = tuple(dict.fromkeys(directories))
        self._clock = clock
        self._use_of = use_of or disk_use
        self._measured: dict[Path, _Measured] = {}

    def uses(self) -> Mapping[str, DiskUse]:
        """Return the room of each directory whose file system answered within the last ``MAX_AGE_S``."""
        oldest_s = self._clock.monotonic_s() - MAX_AGE_S
        return {str(path): measured.use for path, measured in self._measured.items() if measured.at_s >= oldest_s}

    async def run(self) -> None:
        """Measure each ``INTERVAL_S`` until cancelled. A cancellation leaves the thread of a disk that hangs."""
        async with asyncio.TaskGroup() as group:
            for directory in self._directories:
                group.create_task(self._follow(directory), name=f"room of {directory}")

    async def _follow(self, directory: Path) -> None:
        """Measure one directory again and again; while its file system hangs, it is not asked a second time."""
        while True:
            try:
                use = await asyncio.to_thread(self._use_of, directory)
            except OSError:
                self._measured.pop(directory, None)
            else:
                self._measured[directory] = _Measured(use, self._clock.monotonic_s())
            await self._clock.sleep(INTERVAL_S)


def disk_use(directory: Path) -> DiskUse:
    """Return the room on the file system of a directory, or of its nearest parent that exists. Blocking.

    Raises:
        OSError: the file system does not say.
    """
    use = os.statvfs(nearest_existing(directory))
    return DiskUse(use.f_bavail * use.f_frsize, use.f_blocks * use.f_frsize)
