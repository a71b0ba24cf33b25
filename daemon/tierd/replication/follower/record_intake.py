"""RecordIntake: bound on the records that wait for the disk of a standby, and on how full the disk may become.

Records of a leader's request are taken only while they fit; the answer is FOLLOWER_BUSY otherwise. Answers to fetches
are in memory when their size is known. They are always taken, and no fetch is sent while the memory is in use.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tierd.replication.model.messages import RecordBytes


class RecordIntake:
    """Memory and disk space for records that arrive. For one event loop.

    Attributes:
        used_bytes: size of the records that wait for the disk.
        is_disk_full: True while less than the reserve is free, since the last look.
    """

    def __init__(self, *, max_bytes: int, reserve_bytes: int = 0, free_bytes: Callable[[], int] | None = None) -> None:
        """Begin with nothing in use.

        Args:
            max_bytes: largest size of waiting records; one set of records alone may be larger.
            reserve_bytes: space on the disk that is left free. A full disk would take the log dir offline.
            free_bytes: returns the free bytes of the disk; blocking. None for no check.
        """
        self.used_bytes = 0
        self.is_disk_full = False
        self._max_bytes = max_bytes
        self._reserve_bytes = reserve_bytes
        self._free_bytes = free_bytes

    @property
    def may_fetch(self) -> bool:
        """Return True if another fetch may be sent."""
        return self.used_bytes < self._max_bytes and not self.is_disk_full

    def admits(self, size_bytes: int) -> bool:
        """Return True if records of this size may be taken now."""
        if self.is_disk_full:
            return False
        return not self.used_bytes or self.used_bytes + size_bytes <= self._max_bytes

    @contextmanager
    def holding(self, size_bytes: int) -> Iterator[None]:
        """Count records as in use inside the block."""
        self.take(size_bytes)
        try:
            yield
        finally:
            self.give_back(size_bytes)

    def take(self, size_bytes: int) -> None:
        """Count records as in use until they are given back."""
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count records that were taken as no longer in use."""
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0

    async def check_disk(self) -> None:
        """Find out if the disk has room; a disk that does not say so counts as one that has."""
        if self._free_bytes is None:
            return
        try:
            free = await asyncio.to_thread(self._free_bytes)
        except OSError:
            self.is_disk_full = False  # the next append finds out what is wrong, and answers for its log dir
        else:
            self.is_disk_full = free < self._reserve_bytes


def size_of(records: Sequence[RecordBytes] | None) -> int:
    """Return the bytes of records in several pieces."""
    return sum(map(len, records or ()))
