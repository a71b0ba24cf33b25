"""Batches that a restore keeps of a checked log file: cuts at batch boundaries only (changelog-restore 4.2, step 5)."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from tierd.errors import CorruptRecordError
from tierd.log import (
    BatchHeader,
    Compression,
    EpochCheck,
    SegmentCheckResult,
    Source,
    iter_headers,
    open_source,
    read_batch,
)
from tierd.model import Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedLog:
    """Log file whose every batch was checked: fetched from the tier, or copied from the existing directory.

    Attributes:
        path: of the log; its sound indexes, and its producer snapshot, lie beside it under the same stem.
        base_offset: of the segment; the indexes count from it.
        start_offset: first offset that is wanted, inclusive; a batch that contains it is kept whole.
        end_offset: exclusive; a batch that contains it is left out.
        checked: facts about the file.
    """

    path: Path
    base_offset: int
    start_offset: int
    end_offset: int
    checked: SegmentCheckResult


class DroppedRange(NamedTuple):
    """Offsets ``[start_offset, end_offset)`` that were there and that the restored log lacks, and why."""

    start_offset: int
    end_offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptBatches:
    """Consecutive batches of a checked log that go into the restored log.

    Attributes:
        begin: byte position of the first one.
        end: byte position behind the last one.
        first_offset: base offset of the first one.
        end_offset: exclusive end of the last one.
        is_whole: nothing of the file is left out, so that its indexes stay right.
    """

    log: CheckedLog
    begin: int
    end: int
    first_offset: int
    end_offset: int
    is_whole: bool

    @property
    def base_offset(self) -> int:
        """Return the offset in the restored file's name: that of the segment, or after a cut of the first batch."""
        return self.log.base_offset if self.is_whole else self.first_offset


class Kept(NamedTuple):
    """Batches that are kept of a file, and the offsets next to them that a cut inside a batch has cost."""

    batches: KeptBatches | None
    dropped: tuple[DroppedRange, ...]


def keep_batches(log: CheckedLog, *, next_offset: int, end_offset: int) -> Kept:
    """Choose the batches of ``log`` that lie in its range, from ``next_offset`` on and below ``end_offset``. Blocking.

    Args:
        log: the file.
        next_offset: exclusive end of what was kept before; no batch that begins below it is kept.
        end_offset: exclusive end of the restored log.

    Raises:
        SegmentChangedError: the file changed since its check.
        LogDirOfflineError: the file cannot be read.
    """
    facts, limit = log.checked, min(log.end_offset, end_offset)
    if facts.batch_count == 0 or facts.last_offset < max(log.start_offset, next_offset) or facts.first_offset >= limit:
        return Kept(None, ())
    if facts.first_offset >= max(log.start_offset, next_offset) and facts.last_offset < limit:
        whole = KeptBatches(
            log=log,
            begin=0,
            end=facts.size_bytes,
            first_offset=facts.first_offset,
            end_offset=facts.last_offset + 1,
            is_whole=True,
        )
        return Kept(whole, ())
    return _cut(log, next_offset, limit)


def _cut(log: CheckedLog, next_offset: int, limit: int) -> Kept:
    kept: KeptBatches | None = None
    dropped = []
    with open_source(log.path) as source:
        for header in iter_headers(source, may_be_torn=False):
            base, after = _first_offset(source, header), header.last_offset + 1
            if after <= max(log.start_offset, next_offset):
                continue
            if base < next_offset:
                dropped.append(DroppedRange(next_offset, after, f"their batch begins at {base}, in the part before"))
                continue
            if after > limit:
                if base < limit:
                    dropped.append(DroppedRange(base, limit, f"their batch ends at {after - 1}, behind the cut"))
                break
            if kept is None:
                kept = KeptBatches(
                    log=log, begin=header.position, end=0, first_offset=base, end_offset=after, is_whole=False
                )
            kept = replace(kept, end=header.end_position, end_offset=after)
    if kept is not None and kept.begin == 0 and kept.end == log.checked.size_bytes:
        kept = replace(kept, is_whole=True)
    return Kept(kept, tuple(dropped))


def _first_offset(source: Source, header: BatchHeader) -> int:
    """Return the first offset of a batch; the header of a compressed legacy entry has the last one."""
    if header.magic >= 2 or header.compression is Compression.NONE:
        return header.base_offset
    return min((record.offset for record in read_batch(source, header).records()), default=header.base_offset)


def require_epochs(batches: KeptBatches, lineage: Lineage) -> None:
    """Check that the leader epochs of the batches are those of ``lineage``, from its first offset on. Blocking.

    Raises:
        CorruptRecordError: the batches are of another branch of the log.
        SegmentChangedError: the file changed since its check.
        LogDirOfflineError: the file cannot be read.
    """
    earliest, check = lineage.earliest, EpochCheck(lineage)
    known = {epoch for epoch, _ in batches.log.checked.epochs}
    is_single = len(known) == 1 and earliest is not None and batches.first_offset >= earliest.start_offset
    if is_single and {lineage.epoch_for(batches.first_offset), lineage.epoch_for(batches.end_offset - 1)} == known:
        return
    with open_source(batches.log.path) as source:
        for header in iter_headers(source, position=batches.begin, end=batches.end, may_be_torn=False):
            if problem := check.follow(header):
                raise CorruptRecordError(
                    batches.log.path,
                    header.position,
                    problem,
                    remedy="the segment is of another branch of the log: run tierd verify, then plan the restore again",
                )
