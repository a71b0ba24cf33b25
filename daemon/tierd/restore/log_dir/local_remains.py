"""Local remains: batches of directories beyond the tier's end that are joined to it (changelog-restore 4.2, step 2).

The directories are the existing one in the log dir, and the copies of standbys.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from tierd.errors import LogError
from tierd.log import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    BatchHeader,
    DamagedBatch,
    EpochCheck,
    NoBatch,
    PartitionDirectory,
    PartitionScan,
    SegmentFiles,
    check_segment,
    identify_directory,
    open_source,
    read_offset_checkpoint,
    scan_partition,
    walk,
)
from tierd.model import Lineage, TopicPartition
from tierd.restore.log_dir.kept_batches import CheckedLog
from tierd.restore.log_dir.staged_files import copy_range
from tierd.restore.plan.joined_sources import JoinSource, has_same_epochs
from tierd.restore.plan.log_branches import LogBranch, ends_on_newest
from tierd.restore.plan.partition_plan import PartitionPlan

_ALL = (1 << 63) - 1
_CLEANED = "the log cleaner has rewritten it, and keys that were deleted would come back"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainsDirectory:
    """Directory of the partition that may have batches beyond the tier's end.

    Attributes:
        path: it need not exist.
        cleaned_offset: exclusive end of what a log cleaner has cleaned.
    """

    path: Path
    cleaned_offset: int


class JoinedRange(NamedTuple):
    """Offsets ``[start_offset, end_offset)`` that were taken from a directory."""

    directory: Path
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRemains:
    """Batches of directories beyond the tier's end.

    Attributes:
        logs: copies of sound batches, ascending; empty if nothing is taken.
        lineage: leader epochs of the tier's part and of these batches.
        refusals: for each directory whose batches beyond the tier's end are not all taken, the reason.
        end_offset: exclusive end of the batches of the directories, as far as they can be walked; -1 without any.
        joined: what was taken, ascending.
    """

    logs: tuple[CheckedLog, ...]
    lineage: Lineage
    refusals: Mapping[Path, str] = field(default_factory=dict)
    end_offset: int = -1
    joined: tuple[JoinedRange, ...] = ()

    def is_cleaned(self, directory: Path) -> bool:
        """Return True if batches of ``directory`` are left out because a log cleaner has rewritten it."""
        return self.refusals.get(directory) == _CLEANED


def read_local_remains(
    directories: Sequence[RemainsDirectory], plan: PartitionPlan, copies: Path, *, is_wanted: bool
) -> LocalRemains:
    """Copy the batches that continue the tier's part of the log; the directories stay as they are. Blocking.

    The batches begin at the tier's end without a hole, are sound, and are of the tier's lineage. The first batch that
    is not ends what is taken from a directory; another directory may go on from there. Of a compacted topic they are
    taken only if the log cleaner has not been at them: a tombstone that it removed would bring a key of the tier's part
    back (changelog-restore 3.4).

    Args:
        directories: of the partition; of several that reach equally far, the first one is preferred.
        plan: what the tier has.
        copies: directory for the copies.
        is_wanted: take batches; otherwise only their end is of interest.

    Raises:
        OSError: the copies cannot be written.
    """
    reader = _Reader(plan, copies)
    found = [(each, scan) for each in directories if (scan := reader.scanned(each)) is not None]
    ends = [max((_visible_end(each) for each in scan.segments[-1:]), default=-1) for _, scan in found]
    if not is_wanted:
        return LocalRemains(logs=(), lineage=plan.lineage, refusals=reader.refusals, end_offset=max(ends, default=-1))
    branches = [LogBranch(scan.lineage, end) for (_, scan), end in zip(found, ends, strict=True)]
    newest = ends_on_newest([*branches, LogBranch(plan.lineage, plan.end_offset)])
    by_end = sorted(zip(newest, found, strict=False), key=lambda pair: pair[0], reverse=True)
    while any(reader.take(directory, scan, end) for end, (directory, scan) in by_end):
        pass
    return reader.result(max(ends, default=-1))


class JoinSourceReader:
    """Reader of what partition directories say of themselves. It reads each checkpoint of a log dir once."""

    def __init__(self) -> None:
        self._checkpoints: dict[Path, Mapping[TopicPartition, int]] = {}

    def read(self, directory: PartitionDirectory, *, is_existing: bool) -> JoinSource | None:
        """Return what a directory says; None if it cannot be read. ``is_existing`` as in ``JoinSource``. Blocking."""
        try:
            return self._read(directory, is_existing=is_existing)
        except LogError:
            return None

    def _read(self, directory: PartitionDirectory, *, is_existing: bool) -> JoinSource:
        scan, log_dir, name = scan_partition(directory), directory.path.parent, directory.topic_partition
        base = scan.segments[0].base_offset if scan.segments else 0
        log_start = max(self._checkpoint(log_dir / LOG_START_OFFSET_CHECKPOINT).get(name, 0), base)
        if not is_existing and (earliest := scan.lineage.earliest) is not None:
            log_start = max(log_start, earliest.start_offset)  # the checkpoint of a standby that runs is older
        visible = [each for each in scan.segments if _reaches_beyond(each, log_start)]
        firsts = (first for each in visible if (first := _first_offset(each, log_start)) is not None)
        return JoinSource(
            directory=directory.path,
            is_existing=is_existing,
            log_start_offset=log_start,
            first_offset=next(firsts, log_start),
            end_offset=_visible_end(scan.segments[-1]) if scan.segments else log_start,
            cleaned_offset=self._checkpoint(log_dir / CLEANER_OFFSET_CHECKPOINT).get(name, 0),
            lineage=scan.lineage,
        )

    def _checkpoint(self, path: Path) -> Mapping[TopicPartition, int]:
        if (known := self._checkpoints.get(path)) is None:
            known = self._checkpoints[path] = read_offset_checkpoint(path)
        return known


class _Reader:
    """Reader of one directory after the other, each from where the one before ended."""

    def __init__(self, plan: PartitionPlan, copies: Path) -> None:
        self.refusals: dict[Path, str] = {}
        self._plan = plan
        self._copies = copies
        self._logs: list[CheckedLog] = []
        self._joined: list[JoinedRange] = []

    def scanned(self, directory: RemainsDirectory) -> PartitionScan | None:
        if not directory.path.exists():
            return None
        try:
            found = identify_directory(directory.path)
            scan = None if found is None else scan_partition(found)
        except LogError as error:
            self.refusals[directory.path] = str(error)
            return None
        if scan is not None and scan.directory.topic_id != self._plan.partition.topic_id:
            self.refusals[directory.path] = "it has no partition.metadata with the topic id"
            return None
        return scan

    def take(self, directory: RemainsDirectory, scan: PartitionScan, replaced_from: int) -> bool:
        """Take what goes on at the present end, below ``replaced_from``; return True if there was something."""
        remains = _Remains(scan, self._plan, self._copies, directory.cleaned_offset, replaced_from)
        logs, start = remains.read(), self._plan.end_offset
        self.refusals.pop(directory.path, None)
        if remains.refusal:
            self.refusals[directory.path] = remains.refusal
        if not logs:
            return False
        self._logs += logs
        self._joined.append(JoinedRange(directory.path, start, remains.end_offset))
        self._plan = replace(self._plan, end_offset=remains.end_offset, lineage=remains.lineage)
        return True

    def result(self, end_offset: int) -> LocalRemains:
        return LocalRemains(
            logs=tuple(self._logs),
            lineage=self._plan.lineage,
            refusals=self.refusals,
            end_offset=max(end_offset, self._plan.end_offset),
            joined=tuple(self._joined),
        )


class _Remains:
    """Batches of one directory.

    Attributes:
        end_offset: exclusive end of the part of the log that was known, and of what was taken.
        refusal: reason why something is not taken; empty if there is nothing to take, or all is.
    """

    def __init__(
        self, scan: PartitionScan, plan: PartitionPlan, copies: Path, cleaned_offset: int, replaced_from: int
    ) -> None:
        self._scan = scan
        self._plan = plan
        self._copies = copies
        self._cleaned_offset = cleaned_offset
        self._replaced_from = replaced_from
        self.end_offset = plan.end_offset
        self.refusal = ""

    def read(self) -> list[CheckedLog]:
        """Take what goes on where the plan ends."""
        segments = [each for each in self._scan.segments if _reaches_beyond(each, self.end_offset)]
        self.refusal = self._refused(segments)
        return [] if self.refusal else list(self._taken(segments))

    @property
    def lineage(self) -> Lineage:
        """Return the leader epochs of the plan, and of the batches of the directory."""
        later = self._scan.lineage.entries_in(self._plan.end_offset, self.end_offset)
        return Lineage.of((*self._plan.lineage.entries, *later.entries))

    def _refused(self, segments: list[SegmentFiles]) -> str:
        """Return why nothing can be taken; empty if there is nothing to take, or it can be."""
        if max((_visible_end(each) for each in segments), default=-1) <= self.end_offset:
            return ""
        theirs, ours = self._scan.lineage, self._plan.lineage
        if not theirs:
            return self._scan.lineage_problem or "leader-epoch-checkpoint is empty"
        if self._replaced_from <= self.end_offset:
            return self._replaced
        if ours and not has_same_epochs(ours, theirs, self.end_offset, is_compacted=self._plan.is_compacted):
            return "its leader epochs are not those of the tier"
        if ours and self._plan.is_compacted and self._cleaned_offset > self.end_offset:
            return _CLEANED
        return ""

    @property
    def _replaced(self) -> str:
        return f"a newer leader has replaced its records from offset {self._replaced_from} on"

    def _taken(self, segments: list[SegmentFiles]) -> Iterator[CheckedLog]:
        epochs = EpochCheck(self._scan.lineage)
        for segment in segments:
            if self.refusal:
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
                if _last_offset(batch) < self.end_offset:
                    continue
                self.refusal = self._problem(batch, epochs)
                if self.refusal or not isinstance(batch, BatchHeader):
                    break
                if begin < 0:
                    begin, first_offset = batch.position, batch.base_offset
                end, self.end_offset = batch.end_position, batch.last_offset + 1
        return None if begin < 0 else (begin, end, first_offset)

    def _problem(self, batch: BatchHeader | DamagedBatch | NoBatch, epochs: EpochCheck) -> str:
        match batch:
            case NoBatch(error):
                return str(error)
            case DamagedBatch(header):
                return f"{header.name}: a damaged batch at position {header.position}"
            case BatchHeader():
                if batch.last_offset >= self._replaced_from:
                    return self._replaced
                if batch.base_offset < self.end_offset:
                    return f"a batch begins at {batch.base_offset}, below the end {self.end_offset}"
                if batch.base_offset > self.end_offset and not self._plan.is_compacted:
                    return f"offsets {self.end_offset} to {batch.base_offset - 1} are nowhere"
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


def _first_offset(segment: SegmentFiles, log_start: int) -> int | None:
    """Return the base offset of the first batch that is not below the log start; None without one that can be read."""
    try:
        with open_source(segment.log) as source:
            batches = walk(source, base_offset=segment.base_offset, next_base_offset=None)
            first = next((each for each in batches if _last_offset(each) >= log_start), None)
    except LogError:
        return None
    return first.base_offset if isinstance(first, BatchHeader) else None


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
