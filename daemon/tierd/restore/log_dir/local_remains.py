"""Local remains: batches of the existing directory beyond the tier's end that are joined to it (4.2, step 2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import LogError
from tierd.log import (
    BatchHeader,
    DamagedBatch,
    EpochCheck,
    NoBatch,
    PartitionScan,
    SegmentFiles,
    check_segment,
    identify_directory,
    open_source,
    scan_partition,
    walk,
)
from tierd.model import Lineage
from tierd.restore.log_dir.kept_batches import CheckedLog
from tierd.restore.log_dir.staged_files import copy_range
from tierd.restore.plan import PartitionPlan

_ALL = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRemains:
    """Batches of the existing directory beyond the tier's end.

    Attributes:
        logs: copies of its sound batches, ascending; empty if nothing is taken.
        lineage: leader epochs of the tier's part and of these batches.
        refusal: reason why batches beyond the tier's end are not taken; empty if there are none, or all are.
        end_offset: exclusive end of the batches that the directory has, as far as they can be walked; -1 without any.
    """

    logs: tuple[CheckedLog, ...]
    lineage: Lineage
    refusal: str = ""
    end_offset: int = -1


def read_local_remains(
    directory: Path, plan: PartitionPlan, copies: Path, *, cleaned_offset: int, is_wanted: bool
) -> LocalRemains:
    """Copy the batches that continue the tier's part of the log; ``directory`` stays as it is. Blocking.

    The batches begin at the tier's end without a hole, are sound, and are of the tier's lineage. The first batch that
    is not ends what is taken. Of a compacted topic they are taken only if the log cleaner has not been at them: a
    tombstone that it removed would bring a key of the tier's part back (changelog-restore 3.4).

    Args:
        directory: of the partition; it need not exist.
        plan: what the tier has.
        copies: directory for the copies.
        cleaned_offset: exclusive end of what the log cleaner has cleaned.
        is_wanted: take batches; otherwise only their end is of interest.

    Raises:
        OSError: the copies cannot be written.
    """
    if not directory.exists():
        return LocalRemains(logs=(), lineage=plan.lineage)
    try:
        found = identify_directory(directory)
        scan = None if found is None else scan_partition(found)
    except LogError as error:
        return LocalRemains(logs=(), lineage=plan.lineage, refusal=str(error))
    if scan is None:
        return LocalRemains(logs=(), lineage=plan.lineage)
    if not is_wanted:
        end = max((_visible_end(each) for each in scan.segments[-1:]), default=-1)
        return LocalRemains(logs=(), lineage=plan.lineage, end_offset=end)
    if scan.directory.topic_id != plan.partition.topic_id:
        return LocalRemains(logs=(), lineage=plan.lineage, refusal="it has no partition.metadata with the topic id")
    return _Remains(scan, plan, copies, cleaned_offset).read()


class _Remains:
    def __init__(self, scan: PartitionScan, plan: PartitionPlan, copies: Path, cleaned_offset: int) -> None:
        self._scan = scan
        self._plan = plan
        self._copies = copies
        self._cleaned_offset = cleaned_offset
        self._end = plan.end_offset  # exclusive, of the tier's part and of what was taken
        self._refusal = ""
        self._last_end = -1  # of the batches that the directory has, as far as it can be seen

    def read(self) -> LocalRemains:
        segments = [each for each in self._scan.segments if _reaches_beyond(each, self._end)]
        self._refusal = self._refused(segments)
        logs = [] if self._refusal else list(self._taken(segments))
        lineage = self._plan.lineage
        if logs:
            lineage = Lineage.of((*lineage.entries, *self._later_epochs()))
        return LocalRemains(
            logs=tuple(logs), lineage=lineage, refusal=self._refusal, end_offset=max(self._last_end, self._end)
        )

    def _refused(self, segments: list[SegmentFiles]) -> str:
        """Return why nothing can be taken; empty if there is nothing to take, or it can be."""
        self._last_end = max((_visible_end(each) for each in segments), default=-1)
        if self._last_end <= self._end:
            return ""
        theirs, ours = self._scan.lineage, self._plan.lineage
        if not theirs:
            return self._scan.lineage_problem or "leader-epoch-checkpoint is empty"
        start = max(entry.start_offset for entry in (theirs.entries[0], *ours.entries[:1]))
        if start > self._end or theirs.entries_in(start, self._end) != ours.entries_in(start, self._end):
            return "its leader epochs are not those of the tier"
        if self._plan.is_compacted and self._cleaned_offset > self._end:
            return "the log cleaner has rewritten it, and keys that were deleted would come back"
        return ""

    def _later_epochs(self) -> Iterator[tuple[int, int]]:
        return ((e, start) for e, start in self._scan.lineage.entries if start >= self._plan.end_offset)

    def _taken(self, segments: list[SegmentFiles]) -> Iterator[CheckedLog]:
        epochs = EpochCheck(self._scan.lineage)
        for segment in segments:
            if self._refusal:
                return
            span = self._span(segment, epochs)
            if span is None:
                continue
            begin, end, first_offset = span
            path = self._copies / f"local-{first_offset:020d}.log"
            copy_range(segment.log, path, begin, end)
            checked = check_segment(path, base_offset=first_offset, next_base_offset=None)
            yield CheckedLog(
                path=path, base_offset=first_offset, start_offset=first_offset, end_offset=_ALL, checked=checked
            )

    def _span(self, segment: SegmentFiles, epochs: EpochCheck) -> tuple[int, int, int] | None:
        """Return begin and end position of the batches to take, and the first offset; None if there are none."""
        begin, end, first_offset = -1, 0, -1
        with open_source(segment.log) as source:
            for batch in walk(source, base_offset=segment.base_offset, next_base_offset=segment.next_base_offset):
                if _last_offset(batch) < self._end:
                    continue
                self._refusal = self._problem(batch, epochs)
                if self._refusal or not isinstance(batch, BatchHeader):
                    break
                if begin < 0:
                    begin, first_offset = batch.position, batch.base_offset
                end, self._end = batch.end_position, batch.last_offset + 1
        return None if begin < 0 else (begin, end, first_offset)

    def _problem(self, batch: BatchHeader | DamagedBatch | NoBatch, epochs: EpochCheck) -> str:
        match batch:
            case NoBatch(error):
                return str(error)
            case DamagedBatch(header):
                return f"{header.name}: a damaged batch at position {header.position}"
            case BatchHeader():
                if batch.base_offset < self._end:
                    return f"a batch begins at {batch.base_offset}, below the end {self._end}"
                if batch.base_offset > self._end and not self._plan.is_compacted:
                    return f"offsets {self._end} to {batch.base_offset - 1} are nowhere"
                return epochs.follow(batch) or ""


def _last_offset(batch: BatchHeader | DamagedBatch | NoBatch) -> int:
    match batch:
        case BatchHeader():
            return batch.last_offset
        case DamagedBatch(header):
            return header.last_offset
        case NoBatch():
            return _ALL


def _reaches_beyond(segment: SegmentFiles, offset: int) -> bool:
    return segment.next_base_offset is None or segment.next_base_offset > offset


def _visible_end(segment: SegmentFiles) -> int:
    """Return the exclusive end of a segment's offsets, as far as its batches can be walked."""
    end = segment.base_offset
    try:
        with open_source(segment.log) as source:
            for batch in walk(source, base_offset=segment.base_offset, next_base_offset=segment.next_base_offset):
                if isinstance(batch, BatchHeader):
                    end = batch.last_offset + 1
    except LogError:
        return end
    return end
