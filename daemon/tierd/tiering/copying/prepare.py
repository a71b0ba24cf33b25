"""Checks of a segment and its artefacts before its first byte leaves. Blocking: runs in a thread."""

import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from tierd.errors import (
    CorruptIndexError,
    CorruptRecordError,
    LogDirOfflineError,
    MissingArtefactError,
    SegmentChangedError,
)
from tierd.files import open_to_read
from tierd.log import (
    MAGIC_END,
    ControlRecordType,
    OffsetIndex,
    SegmentCheckResult,
    TimeIndex,
    TransactionIndex,
    build_indexes,
    check_segment,
    encode_lineage,
    iter_batches,
    parse_producer_snapshot,
)
from tierd.model import EpochEntry, Lineage, LogSegmentData
from tierd.tiering.local.held_segment import FileState, HeldSegment, SegmentFile

log = structlog.get_logger()

_MAGIC_WITH_EPOCH: Final = 2


@dataclass(frozen=True, slots=True)
class PreparedSegment:
    """A segment that may be copied: every batch sound, every artefact there.

    Attributes:
        log_file: the log before the first and after the last byte of the check.
        epochs: the slice of lineage that the segment covers.
        txn_index_empty: no transaction was aborted in it.
    """

    log_file: FileState
    max_timestamp_ms: int
    epochs: tuple[EpochEntry, ...]
    txn_index_empty: bool
    data: LogSegmentData


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """A segment whose every batch is sound; what the broker wrote about its producers may be lost.

    Attributes:
        prepared: the segment, with nothing in the place of lost files.
        snapshot_problem: the problem of the producer snapshot of the roll; None when it is sound.
        index_problem: the problem of the transaction index; None when it is sound, or the segment needs none.
        may_lack_index: markers of the segment abort more transactions than its index has. Either these have no records,
            or they began before the segment, and the broker did not know them when it recovered the index: a broker
            that is killed just after retention deleted the segments before has no producer state of their end.
    """

    prepared: PreparedSegment
    snapshot_problem: str | None
    index_problem: str | None
    may_lack_index: bool

    @property
    def is_damaged(self) -> bool:
        """Return True if records or artefacts are lost for certain."""
        return self.snapshot_problem is not None or self.index_problem is not None

    @property
    def is_whole(self) -> bool:
        """Return True if nothing is lost and nothing may be lost."""
        return not self.is_damaged and not self.may_lack_index


def check_held(held: HeldSegment, lineage: Lineage, *, directory: Path) -> CheckedFiles:
    """Check every batch and gather the artefacts (design: one segment's way; remote-tiering 10.6).

    Args:
        held: the files; unprotected ones may vanish meanwhile.
        lineage: the whole lineage of the partition, beyond the segment as well.
        directory: the partition's, to name the broker's file in errors and not the hold's.

    Raises:
        CorruptRecordError: a batch is damaged; nothing of this segment is uploaded.
        MissingArtefactError: the epochs of these offsets are not there.
        SegmentChangedError: the file changed or vanished, or a batch is of an epoch that the lineage does not give it.
        LogDirOfflineError: the disk does not give the bytes.
    """
    live = live_path(held, SegmentFile.LOG, directory)
    try:
        return _checked(held, lineage, name=str(live))
    except CorruptRecordError as error:
        problem = str(error).removeprefix(f"{error.file}: ").removesuffix(f" at position {error.position}")
        raise CorruptRecordError(live if live.exists() else held.log, error.position, problem) from error
    except FileNotFoundError as error:
        raise SegmentChangedError(f"{error.filename}: deleted while it was read") from error
    except OSError as error:
        raise LogDirOfflineError(
            f"{error.filename or held.log}: {error.strerror}", remedy="check the disk; the copy is tried again"
        ) from error


def live_path(held: HeldSegment, file: SegmentFile, directory: Path) -> Path:
    """Return the path of ``file`` in the broker's directory, held or not."""
    return directory / file.name_for(base_offset=held.base_offset, next_base_offset=held.next_base_offset)


def _checked(held: HeldSegment, lineage: Lineage, *, name: str) -> CheckedFiles:
    before = FileState.of(held.log)
    if not _begins_with_old_format(held.log):  # which the lineage may not tell about
        _require_epochs(held, lineage, name)
    check = check_segment(held.log, base_offset=held.base_offset, next_base_offset=held.next_base_offset)
    lineage = with_forgotten_epochs(lineage, held.lineage, check.epochs)
    lineage = with_old_formats(lineage, check, base_offset=held.base_offset)
    _require_epochs(held, lineage, name)
    if (misfit := epoch_misfit(check.epochs, lineage)) is not None:
        raise SegmentChangedError(
            f"{name}: {misfit}", remedy="the log may have been truncated; the partition is scanned again"
        )
    offset_index, time_index = _indexes(held, name)
    snapshot, snapshot_problem = _producer_snapshot(held, name)
    transactions, index_problem = _transaction_index(held, check, name)
    aborted_count = len(TransactionIndex.from_bytes(transactions or b"", held.base_offset, name))
    if FileState.of(held.log) != before:
        raise SegmentChangedError(f"{name}: changed while it was checked")
    prepared = PreparedSegment(
        log_file=before,
        # Records without timestamps are as old as their file, not as time itself (Kafka: LogSegment.largestTimestamp).
        max_timestamp_ms=check.max_timestamp_ms if check.max_timestamp_ms >= 0 else held.modified_ms,
        epochs=lineage.entries_in(held.base_offset, held.next_base_offset).entries,
        txn_index_empty=not transactions,
        data=LogSegmentData(
            log=held.log,
            log_checksums=check.checksums,
            batch_count=check.batch_count,
            record_count=check.record_count,
            offset_index=offset_index,
            time_index=time_index,
            transaction_index=transactions or None,
            producer_snapshot=snapshot,
            # The whole lineage up to the end, not only the segment's: a restore from it needs all of it.
            leader_epoch_index=encode_lineage(lineage.entries_in(-1, held.next_base_offset)),
        ),
    )
    return CheckedFiles(
        prepared,
        snapshot_problem,
        index_problem,
        may_lack_index=check.abort_markers > aborted_count,
    )


def _require_epochs(held: HeldSegment, lineage: Lineage, name: str) -> None:
    if not lineage.entries_in(held.base_offset, held.next_base_offset):
        raise MissingArtefactError(
            f"{name}: leader-epoch-checkpoint gives no epoch to offsets {held.base_offset}-{held.end_offset}",
            remedy="restart the broker, which rebuilds the file, or run tierd inspect on the directory",
        )


def _begins_with_old_format(log_file: Path) -> bool:
    with open_to_read(log_file) as file:
        header = file.read(MAGIC_END)
    return len(header) == MAGIC_END and header[-1] < _MAGIC_WITH_EPOCH


def with_forgotten_epochs(lineage: Lineage, local: Lineage, seen: Sequence[EpochEntry]) -> Lineage:
    """Return ``lineage`` with the epochs of a segment that its broker has forgotten.

    A broker forgets the epochs below its log start. Where the log start lies inside the segment and the tier ends
    before the segment, ``lineage`` gives the offsets between to the last epoch in the tier. The batches tell better.

    Args:
        lineage: the lineage of the total log.
        local: the lineage that the broker had when the segment was held.
        seen: the epochs of the batches, with their first offsets.
    """
    first = local.earliest
    if first is None:
        return lineage
    below = [entry for entry in seen if entry.start_offset < first.start_offset and entry.epoch <= first.epoch]
    forgotten = [entry for entry in below if _is_later(entry, lineage)]
    if not forgotten:
        return lineage
    known = (entry for entry in lineage.entries if entry.start_offset >= first.start_offset)
    whole = lineage.truncated_from_end(first.start_offset)
    for epoch, start_offset in (*forgotten, *known):
        whole = whole.assign(epoch=epoch, start_offset=start_offset)
    return whole


def with_old_formats(lineage: Lineage, check: SegmentCheckResult, *, base_offset: int) -> Lineage:
    """Return ``lineage`` with the offsets of records that have no leader epoch, which its first epoch gets.

    Batches of the formats before Kafka 0.11 have no epoch, and a broker's first epoch begins where its log ended at the
    upgrade. Without an epoch no reader would find the records below in the tier.

    Args:
        lineage: the lineage of the total log.
        check: of the segment.
        base_offset: of the segment.
    """
    first = lineage.earliest
    if first is None or first.start_offset <= base_offset or check.min_magic >= _MAGIC_WITH_EPOCH:
        return lineage
    if any(entry.start_offset < first.start_offset for entry in check.epochs):
        return lineage  # the log start lies inside the segment, and below it the broker has forgotten the epochs
    return Lineage.of(((first.epoch, base_offset), *lineage.entries[1:]))


def _is_later(entry: EpochEntry, lineage: Lineage) -> bool:
    """Return whether ``lineage`` gives the offset to an earlier epoch; where it says nothing, nothing is amiss."""
    known = lineage.epoch_for(entry.start_offset)
    return known is not None and known < entry.epoch


def epoch_misfit(seen: tuple[EpochEntry, ...], lineage: Lineage) -> str | None:
    """Return, in words, a batch whose epoch ``lineage`` does not give to its offset; None when all fit.

    Below the first entry the lineage knows nothing any more (the log start was raised into the segment), and batches
    of old formats carry no epoch.
    """
    earliest = lineage.earliest
    for epoch, offset in seen:
        if epoch < 0 or (earliest and offset < earliest.start_offset and epoch <= earliest.epoch):
            continue
        if (expected := lineage.epoch_for(offset)) != epoch:
            return f"the batch at offset {offset} is of leader epoch {epoch}, the lineage says {expected}"
    return None


def _producer_snapshot(held: HeldSegment, name: str) -> tuple[bytes, str | None]:
    """Return the producer snapshot of the roll and None, or nothing and the problem."""
    content = _read_optional(held.path(SegmentFile.PRODUCER_SNAPSHOT))
    if content is None:
        return b"", "missing"
    try:
        parse_producer_snapshot(content, f"{name}, the producer snapshot of its roll")
    except CorruptIndexError as error:
        return b"", str(error)
    return content, None


def _transaction_index(held: HeldSegment, check: SegmentCheckResult, name: str) -> tuple[bytes | None, str | None]:
    """Return the transaction index if there is one; and the problem of the index or of its absence."""
    content = _read_optional(held.path(SegmentFile.TRANSACTION_INDEX))
    if content:
        try:
            index = TransactionIndex.from_bytes(content, held.base_offset, f"{name}, its transaction index")
        except CorruptIndexError as error:
            return None, str(error)
        return (content, None) if index.size_bytes == len(content) else (None, "its last entry is torn")
    is_lost = check.has_abort_markers and _has_aborted_data(held.log)
    return None, "missing, and a transaction was aborted" if is_lost else None


def _indexes(held: HeldSegment, name: str) -> tuple[bytes, bytes]:
    """Return the offset and time index; rebuilt from the batches when one is missing or damaged."""
    offset_index = _read_optional(held.path(SegmentFile.OFFSET_INDEX))
    time_index = _read_optional(held.path(SegmentFile.TIME_INDEX))
    problem = "missing"
    if offset_index is not None and time_index is not None:
        try:
            OffsetIndex.from_bytes(offset_index, held.base_offset, f"{name}, its offset index")
            TimeIndex.from_bytes(time_index, held.base_offset, f"{name}, its time index")
        except CorruptIndexError as error:
            problem = str(error)
        else:
            return offset_index, time_index
    log.warning("index_rebuilt", segment=name, problem=problem)
    return build_indexes(held.log, base_offset=held.base_offset)


def _read_optional(path: Path | None) -> bytes | None:
    if path is None:
        return None
    with open_to_read(path) as file:
        return file.read()


def require_unchanged(held: HeldSegment, before: FileState, directory: Path) -> None:
    """Make sure that what was copied is still the segment of the log. Blocking.

    A segment that the broker's retention deleted is still of the log. A segment that was compacted, truncated or
    written to is not, and its copy must not be finished.

    Raises:
        SegmentChangedError: the log has another file by now.
    """
    if FileState.of(held.log) != before:
        raise SegmentChangedError(f"{held.log}: changed while it was copied")
    live = live_path(held, SegmentFile.LOG, directory)
    try:
        if live.stat().st_ino != before.inode:
            raise SegmentChangedError(f"{live}: replaced while it was copied")
    except FileNotFoundError as error:
        if not directory.is_dir():
            raise SegmentChangedError(f"{directory}: moved or deleted while a segment was copied") from error
        bases = sorted(int(p.stem) for p in directory.glob("[0-9]*.log") if p.stem.isdigit())
        # Retention always leaves a segment: without any, or with one below, the log was truncated or is being replaced.
        if not bases or bases[0] < held.next_base_offset:
            raise SegmentChangedError(f"{live}: gone from the middle of the log while it was copied") from error


def _has_aborted_data(log: Path) -> bool:
    """Return True if records of a transaction lie in ``log`` before the marker that aborts it.

    Without the index a reader of committed records would take them for committed. A marker alone proves nothing: a
    transaction may have written nothing here, and compaction removes aborted records before their marker.
    """
    with open_to_read(log) as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
            return _aborts_records(view, str(log))


def _aborts_records(view: memoryview, name: str) -> bool:
    open_producers: set[int] = set()
    for batch in iter_batches(view, name=name, check_crc=False):
        if not batch.is_transactional:
            continue
        if not batch.is_control:
            open_producers.add(batch.producer_id)
        elif batch.control_type() is ControlRecordType.ABORT and batch.producer_id in open_producers:
            return True
        else:
            open_producers.discard(batch.producer_id)
    return False
