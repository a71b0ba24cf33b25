"""FetchPlan: the reads of one answer, in order and with their limits (KIP-74). Decisions only, no I/O.

Partitions are read in the order of the request. Several reads may run at once, but each gets a limit that it would
have got, or more, had the reads before it ended: a read begins only if its whole limit is free, or if no read runs.
So that no record is too large to be read, the first partition that has records may exceed every limit with its first
batch.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class ReadLimit(NamedTuple):
    """Bound on the records of one partition. Records that are ``in_memory`` count against the plan's memory, too."""

    max_bytes: int
    in_memory: bool


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """One planned read of a partition.

    Attributes:
        index: of the partition, in the order of the plan.
        at_least_one: the first batch is read, whatever its size.
    """

    index: int
    max_bytes: int
    at_least_one: bool


def memory_bytes(limits: Iterable[ReadLimit], *, max_bytes: int) -> int:
    """Return the memory that the reads of a plan may take; the first batch of the first read may take more."""
    return min(max_bytes, sum(limit.max_bytes for limit in limits if limit.in_memory))


class FetchPlan:
    """Reads of partitions that have records, for one answer."""

    def __init__(self, limits: Sequence[ReadLimit], *, max_bytes: int, memory_bytes: int) -> None:
        """Plan reads within ``max_bytes`` in all, of which at most ``memory_bytes`` are in memory."""
        self._limits = limits
        self._max_bytes = max_bytes
        self._memory_bytes = memory_bytes
        self._next = 0
        self._running: dict[int, int] = {}  # index to the limit of the read
        self._sizes: dict[int, int] = {}
        self._left_bytes = max_bytes  # neither read nor promised to a running read
        self._left_memory_bytes = memory_bytes
        self._has_records = False
        self._too_large: list[int] = []  # without records, perhaps only since the first batch is above the limit

    def next_read(self) -> PlannedRead | None:
        """Return a read to begin now; None if none is left, or none can begin before a running one is finished."""
        while self._next < len(self._limits):
            index, limit = self._next, self._limit(self._next)
            is_first = not self._running and not self._has_records
            if self._running and limit < self._limits[index].max_bytes:
                return None
            self._next += 1
            if limit > 0 or is_first:
                return self._begin(index, limit, at_least_one=is_first)
            if not self._has_records:
                self._too_large.append(index)
        if self._too_large and not self._running:
            index = self._too_large.pop(0)
            return self._begin(index, self._limit(index), at_least_one=True)
        return None

    def finished(self, read: PlannedRead, size_bytes: int, *, may_be_too_large: bool = True) -> None:
        """Take the size of the records of a read.

        Args:
            read: that is finished.
            size_bytes: of its records.
            may_be_too_large: a read without records may find some if it takes the first batch whatever its size.
        """
        unused = self._running.pop(read.index) - size_bytes
        self._left_bytes += unused
        if self._limits[read.index].in_memory:
            self._left_memory_bytes += unused
        self._sizes[read.index] = size_bytes
        if size_bytes:
            self._has_records = True
            self._too_large.clear()
        elif may_be_too_large and not read.at_least_one and not self._has_records:
            self._too_large.append(read.index)

    def kept(self) -> frozenset[int]:
        """Return the partitions whose records fit into the answer, when every read is finished.

        Records have to be left out when a first batch took more than its limit while other reads ran.
        """
        kept, total = set(), 0
        for index, size in sorted(self._sizes.items()):
            if size and (not total or total + size <= self._max_bytes):
                kept.add(index)
                total += size
        return frozenset(kept)

    def _limit(self, index: int) -> int:
        wanted, in_memory = self._limits[index]
        left = min(self._left_bytes, self._left_memory_bytes) if in_memory else self._left_bytes
        return max(0, min(wanted, left))

    def _begin(self, index: int, max_bytes: int, *, at_least_one: bool) -> PlannedRead:
        self._running[index] = max_bytes
        self._left_bytes -= max_bytes
        if self._limits[index].in_memory:
            self._left_memory_bytes -= max_bytes
        return PlannedRead(index, max_bytes, at_least_one)
