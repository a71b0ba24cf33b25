"""BatchComparison: a standby's copy against the batches of the tier, at the offsets that both have.

Equal batches are not opened. Of other batches the records are compared by offset: a log cleaner on either side removes
records and writes batches anew, and never replaces a record by another one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tierd.errors import SegmentChangedError
from tierd.log import (
    PartitionScan,
    Record,
    RecordBatch,
    batch_identity,
    local_batches,
    record_identity,
    scan_partition,
)
from tierd.tiering.auditing.tier_findings import Finding, Severity
from tierd.tiering.standbys.key_comparison import KeyComparison
from tierd.tiering.standbys.offset_comparison import DIVERGED, CommonOffsets
from tierd.tiering.standbys.standby_copy import StandbyCopy

_SCANS: Final = 5


class _Placed(NamedTuple):
    batch: RecordBatch
    record: Record


@dataclass(slots=True)
class _Offsets:
    """Offsets in ascending order: first, last and number."""

    first: int = -1
    last: int = -1
    count: int = 0

    def add(self, offset: int) -> None:
        self.first, self.last, self.count = (self.first if self.count else offset), offset, self.count + 1

    def __str__(self) -> str:
        return f"offset {self.first}" if self.count == 1 else f"{self.count} offsets from {self.first} to {self.last}"


@dataclass(slots=True, eq=False)
class BatchComparison:
    """Comparison of one copy. Every call blocks; the groups of the tier's batches come in ascending order.

    Attributes:
        copy: the copy.
        common: the offsets that are compared.
        is_compacted: a log cleaner removes records of the topic; None where that is not known.
        compared_records: number of offsets that have the same record on both sides.
    """

    copy: StandbyCopy
    common: CommonOffsets
    is_compacted: bool | None
    compared_records: int = 0
    keys: KeyComparison = field(default_factory=KeyComparison)
    _differs_at: int | None = None
    _diverged_at: int | None = None
    _lacking: _Offsets = field(default_factory=_Offsets)
    _extra: _Offsets = field(default_factory=_Offsets)
    _revived_at: int | None = None
    _scan: PartitionScan = field(init=False)
    _at: int = field(init=False)
    _start: int = field(init=False)

    def __post_init__(self) -> None:
        self._scan = self.copy.scan
        self._at = self._start = self.common.start

    def wants(self, offset: int) -> bool:
        """Return True if batches of the tier from ``offset`` on are compared, or may explain what the copy lacks."""
        return offset < self.common.end or self.keys.is_waiting

    def take(self, batches: Sequence[RecordBatch]) -> None:
        """Compare the next batches of the tier.

        Raises:
            CorruptRecordError: a batch of the copy is damaged.
            InvalidRecordError: records of a batch cannot be decoded.
            SegmentChangedError: the files of the copy change again and again.
            LogDirOfflineError: a file of the copy cannot be read.
        """
        tier = [each for each in batches if each.last_offset >= self._at and each.base_offset < self.common.end]
        if not tier:
            self._follow(batches)
            return
        start, self._at = self._at, min(tier[-1].last_offset + 1, self.common.end)
        if not self._is_same(tier, start):
            self._compare_records(tier, start)
        if self.keys.is_waiting:
            self._follow(batches)
            self._follow(self._copied(start, self._at - 1))

    def finish(self) -> None:
        """Look for explanations behind the tier's end, and for deleted keys that the copy would bring back.

        Raises:
            TierError: as ``take``.
        """
        if self.keys.is_waiting:
            self._follow(self._copied(self.common.end, self.copy.end_offset - 1))
        if self.keys.has_deleted:
            self._revived_at = self.keys.revived(self._copied(self._start, self.copy.end_offset - 1))

    def findings(self) -> Iterator[Finding]:
        """Yield what the comparison found."""
        place = self.copy.place
        if self._diverged_at is not None:
            what = f"the batch with offset {self._diverged_at} is of another leader epoch than in the tier"
            yield Finding(Severity.ERROR, "standby-diverged", what, place, DIVERGED)
        if self._differs_at is not None:
            what = f"it has another record at offset {self._differs_at} than the tier"
            yield Finding(Severity.ERROR, "standby-differs", what, place, DIVERGED)
        if self._lacking.count:
            what = f"it lacks {self._lacking}, which the tier has, between offsets that it has"
            remedy = "delete the copy while its tierd is stopped: the leader sends it anew"
            yield Finding(Severity.ERROR, "standby-hole", what, place, remedy)
        yield from self._key_findings()
        if self._extra.count:
            what = f"it has {self._extra}, which the tier does not have: lost there, compacted or erased"
            yield Finding(Severity.NOTE, "standby-extra", what, place, "tierd verify names what the tier lost")

    def _key_findings(self) -> Iterator[Finding]:
        place, offsets = self.copy.place, self.keys.unexplained
        if self.keys.is_too_large:
            what = "keys not compared: more than fit in memory have their latest record in the tier alone"
            yield Finding(Severity.NOTE, "standby-not-compared", what, place, "compare by tierd cat of both")
        if offsets:
            what = f"it lacks the latest record of {len(offsets)} keys, the first at offset {offsets[0]}"
            remedy = "verify again when it has caught up: a later record may have replaced it; else make it anew"
            yield Finding(Severity.WARNING, "standby-keys", what, place, remedy)
        if self._revived_at is not None:
            what = f"the key at offset {self._revived_at} was deleted later, and the copy has lost the deletion"
            remedy = "delete the copy while its tierd is stopped: it was away longer than delete.retention.ms"
            yield Finding(Severity.ERROR, "standby-revived", what, place, remedy)

    def _is_same(self, tier: Sequence[RecordBatch], start: int) -> bool:
        """Return True if the copy has exactly these batches from ``start`` on; then they are counted."""
        ours = {batch_identity(each): each for each in tier}
        found = 0
        for batch in self._copied(start, self._at - 1):
            same = ours.get(batch_identity(batch))
            if same is None:
                return False
            self._compare_epochs(same.partition_leader_epoch, batch.partition_leader_epoch, batch.base_offset)
            found += 1
        if found < len(ours):
            return False
        self.compared_records += sum(max(min(each.record_count, each.last_offset + 1 - start), 0) for each in tier)
        return True

    def _compare_records(self, tier: Sequence[RecordBatch], start: int) -> None:
        ours = {each.offset: _Placed(batch, each) for batch in tier for each in batch.records()}
        for batch in self._copied(start, self._at - 1):
            for record in batch.records():
                if not start <= record.offset < self._at:
                    continue
                if (other := ours.pop(record.offset, None)) is None:
                    if self.is_compacted is False:
                        self._extra.add(record.offset)
                    continue
                self._compare_epochs(other.record.leader_epoch, record.leader_epoch, record.offset)
                if record_identity(*other) == record_identity(batch, record):
                    self.compared_records += 1
                elif self._differs_at is None:
                    self._differs_at = record.offset
        for offset, placed in ours.items():
            if max(start, self._start) <= offset < self._at:
                self._lacks(placed.batch, placed.record)

    def _lacks(self, batch: RecordBatch, record: Record) -> None:
        """Take in a record of the tier that the copy lacks. Cleaners remove markers and aborted records, too."""
        if self.is_compacted is False or (record.key is None and not batch.is_transactional):
            self._lacking.add(record.offset)
        elif record.key is not None and not batch.is_control:
            producer_id = batch.producer_id if batch.is_transactional else -1
            self.keys.lacks(record.key, record.offset, is_tombstone=record.value is None, producer_id=producer_id)

    def _compare_epochs(self, ours: int, theirs: int, offset: int) -> None:
        if self._diverged_at is None and ours != theirs and min(ours, theirs) >= 0:
            self._diverged_at = offset

    def _follow(self, batches: Sequence[RecordBatch] | Iterator[RecordBatch]) -> None:
        for batch in batches:
            if not self.keys.is_waiting:
                return
            self.keys.follow(batch)

    def _copied(self, start: int, end: int) -> Iterator[RecordBatch]:
        """Yield the batches of the copy with an offset in ``[start, end]``, from new files where old ones are gone."""
        at = start
        for scans_left in reversed(range(_SCANS)):
            try:
                for batch in local_batches(self._scan, at, end):
                    yield batch.checked()
                    at = batch.last_offset + 1
            except SegmentChangedError:
                if not scans_left:
                    raise
                self._scan = scan_partition(self._scan.directory)
                self._start = max(self._start, *(each.base_offset for each in self._scan.segments[:1]))
            else:
                return
