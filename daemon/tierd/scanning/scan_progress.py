"""ScanProgress: how far a read is, for the caller's callback."""

from dataclasses import dataclass

from tierd.scanning.range_rows import ScannedBatch
from tierd.scanning.scan_plan import ScanPlan, ScanRange


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanProgress:
    """Progress of one read.

    Attributes:
        partition: the partition of the last batch.
        records: number of records so far.
        size_bytes: of the batches so far, in memory.
        offsets_done: offsets whose records the caller has.
        offset_count: offsets of the whole read.
    """

    partition: int
    records: int
    size_bytes: int
    offsets_done: int
    offset_count: int


class ProgressCounter:
    """Counter of what one read has given."""

    def __init__(self, plan: ScanPlan) -> None:
        self._plan = plan
        self._records = 0
        self._size_bytes = 0
        self._done = 0

    def after(self, scanned: ScannedBatch) -> ScanProgress:
        """Return the progress after one more batch."""
        self._records += scanned.batch.num_rows
        self._size_bytes += scanned.batch.nbytes
        before = self._plan.ranges[: self._plan.ranges.index(scanned.range)]
        self._done = sum(each.offset_count for each in before) + scanned.next_offset - scanned.range.start_offset
        return self._progress(scanned.range)

    def at_end(self) -> ScanProgress | None:
        """Return the progress at the end; None where the last batch has reached it already, or nothing was to read."""
        if self._done == self._plan.offset_count:
            return None
        self._done = self._plan.offset_count
        return self._progress(self._plan.ranges[-1])

    def _progress(self, span: ScanRange) -> ScanProgress:
        return ScanProgress(
            partition=span.partition.partition,
            records=self._records,
            size_bytes=self._size_bytes,
            offsets_done=self._done,
            offset_count=self._plan.offset_count,
        )
