"""KnownBatches: places of the batches that were read from remote segments, for later reads of the same batches."""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from tierd.log import CheckedBatches
from tierd.model import RemoteLogSegmentId
from tierd.remote import SizedLru

_BATCH_BYTES: Final = 3 * 8
_SMALL_BATCH_BYTES: Final = 1 << 10  # places of smaller batches take too much memory, and too long to keep
_RUN_BYTES: Final = 512  # of the objects of a run, about
_MOST_SHARE: Final = 4  # part of the capacity that the batches of one segment may take


class BatchPlace(NamedTuple):
    """Successive batches of one segment.

    Attributes:
        base_offset: of the first batch.
        next_offset: behind the last batch.
        start: position of the first byte in the log.
        end: position behind the last byte.
    """

    base_offset: int
    next_offset: int
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Return the size of all batches together."""
        return self.end - self.start


class KnownBatches:
    """Offsets and positions of batches, within a bound; those of the segment that was used longest ago go first."""

    def __init__(self, *, capacity_bytes: int) -> None:
        """Know nothing yet; a batch takes 24 bytes."""
        self._most_bytes = capacity_bytes // _MOST_SHARE
        self._order: SizedLru[RemoteLogSegmentId] = SizedLru(capacity_bytes)
        self._runs: dict[RemoteLogSegmentId, list[_KnownRun]] = {}

    @property
    def size_bytes(self) -> int:
        """Return the bytes that the places take, about."""
        return self._order.size_bytes

    def add(self, segment: RemoteLogSegmentId, batches: CheckedBatches) -> None:
        """Take the places of batches that were read and checked, unless they are very small; there is at least one."""
        if batches.size_bytes < len(batches) * _SMALL_BATCH_BYTES:
            return
        runs = self._runs.get(segment, [])
        if _size_of(runs) + len(batches) * _BATCH_BYTES > self._most_bytes:
            return
        _join(runs, batches)
        self._runs[segment] = runs
        self._order.add(segment, _size_of(runs))
        for evicted in self._order.evict():
            del self._runs[evicted]

    def find(
        self,
        segment: RemoteLogSegmentId,
        offset: int,
        *,
        end_offset: int,
        end_position: int,
        max_bytes: int,
        at_least_one: bool,
    ) -> BatchPlace | None:
        """Return the batches that a read of ``max_bytes`` from ``offset`` on returns; None if not all are known.

        Args:
            segment: that holds the offset.
            offset: in the first batch, or between the batch before and the first one.
            end_offset: no batch that begins here or behind is returned.
            end_position: size of the log of the segment.
            max_bytes: bound on the size.
            at_least_one: return the first batch, whatever its size.
        """
        runs = self._runs.get(segment, [])
        at = bisect_left(runs, offset, key=lambda run: run.last_offsets[-1])
        if at == len(runs):
            return None
        self._order.use(segment)
        return runs[at].find(offset, end_offset, end_position, max_bytes, at_least_one=at_least_one)


class _KnownRun:
    """Columns of successive batches, as those of ``CheckedBatches``."""

    __slots__ = ("base_offsets", "last_offsets", "positions")

    def __init__(self, batches: CheckedBatches) -> None:
        self.base_offsets = array("q", batches.base_offsets)
        self.last_offsets = array("q", batches.last_offsets)
        self.positions = array("q", batches.positions)

    @property
    def start(self) -> int:
        return self.positions[0]

    @property
    def end(self) -> int:
        return self.positions[-1]

    def extend(self, other: "_KnownRun") -> None:
        """Add the batches of a run, which begins in this one or where this one ends, that lie behind this one."""
        if other.end <= self.end:
            return
        first = bisect_left(other.positions, self.end)
        assert other.positions[first] == self.end, "batches of one file begin and end at the same positions"
        self.base_offsets += other.base_offsets[first:]
        self.last_offsets += other.last_offsets[first:]
        self.positions += other.positions[first + 1 :]

    def find(
        self, offset: int, end_offset: int, end_position: int, max_bytes: int, *, at_least_one: bool
    ) -> BatchPlace | None:
        first, count = bisect_left(self.last_offsets, offset), len(self.base_offsets)
        if first == 0 and self.start and self.base_offsets[0] > offset:
            return None  # a batch before this run may hold the offset
        behind = bisect_left(self.base_offsets, end_offset, first)
        fitting = bisect_right(self.positions, self.positions[first] + max_bytes, first) - 1
        stop = min(behind, max(fitting, first + at_least_one))
        if stop == first or (stop == count and self.end < end_position):
            return None  # the next batch, which is not known, may fit as well
        positions = self.positions
        return BatchPlace(self.base_offsets[first], self.last_offsets[stop - 1] + 1, positions[first], positions[stop])


def _join(runs: list[_KnownRun], batches: CheckedBatches) -> None:
    """Add batches to the runs of their segment, which ascend and neither overlap nor adjoin."""
    added = _KnownRun(batches)
    at = bisect_right(runs, added.start, key=lambda run: run.start)
    if at and runs[at - 1].end >= added.start:
        runs[at - 1].extend(added)
        added = runs[at - 1]
    else:
        runs.insert(at, added)
        at += 1
    while at < len(runs) and runs[at].start <= added.end:
        added.extend(runs.pop(at))


def _size_of(runs: list[_KnownRun]) -> int:
    return sum(_RUN_BYTES + len(run.base_offsets) * _BATCH_BYTES for run in runs)
