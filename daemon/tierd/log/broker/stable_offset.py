"""The last stable offset of a log that a broker owns (DESIGN 3; log-format 4.5)."""

from typing import NamedTuple

import structlog

from tierd.errors import CorruptIndexError, MissingArtefactError
from tierd.log.broker.live_segment import open_readable
from tierd.log.files.directory import partition_fields
from tierd.log.files.partition_scan import PartitionScan, SegmentFiles, file_name
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.producers.producer_state import read_producer_snapshot
from tierd.log.producers.transactions import CompletedTransaction, OpenTransactions
from tierd.log.records.batch_header import iter_headers
from tierd.log.records.record_batch import control_type_of
from tierd.log.segments.segment_ranges import segments_from

log = structlog.get_logger()


class RecentTransactions(NamedTuple):
    """Transactions as the newest producer snapshot and the batches behind it tell them.

    Attributes:
        last_stable_offset: exclusive end of the decided records.
        aborted: the aborted transactions whose markers are behind the snapshot; for these no index is needed. Their
            ``last_stable_offset`` is the offset of the marker.
    """

    last_stable_offset: int
    aborted: tuple[AbortedTransaction, ...]


def last_stable_offset(
    scan: PartitionScan, *, high_watermark: int, enough: int | None = None, log_start_offset: int | None = None
) -> int:
    """Return the exclusive end of the decided records: no transaction is open below it. Blocking.

    The function reads the newest producer snapshot at or below the high watermark, and the batches from there to the
    high watermark. A snapshot that is missing or unreadable costs a longer walk, from the snapshot before it or from
    the log start.

    Args:
        scan: the partition.
        high_watermark: exclusive; a broker may still truncate the batches above it, their markers included.
        enough: end the walk once so many offsets are known to be stable. The answer may then be below the last stable
            offset, and is at least ``enough`` if ``enough`` is stable.
        log_start_offset: first readable offset, and the smallest possible answer. None for the first local segment; a
            log whose beginning is in the tier begins earlier.

    Raises:
        CorruptRecordError: a batch on the way is damaged.
        SegmentChangedError: a file vanished.
        LogDirOfflineError: a file cannot be read.
    """
    if not scan.segments:
        return high_watermark
    state, offset = newest_state(scan, high_watermark)
    if enough is not None and enough <= offset and not state.first_offsets:
        return offset
    _walk(state, scan, offset, high_watermark)
    return stable_end(state, scan, high_watermark, log_start_offset)


def recent_transactions(
    scan: PartitionScan, *, high_watermark: int, log_start_offset: int | None = None
) -> RecentTransactions:
    """Return the last stable offset, and the recent aborted transactions without a look at an index. Blocking.

    After a power cut the transaction index of the active segment may lack entries that its log has.

    Args:
        scan: the partition.
        high_watermark: exclusive, as in ``last_stable_offset``.
        log_start_offset: as in ``last_stable_offset``.

    Raises:
        As ``last_stable_offset``.
    """
    if not scan.segments:
        return RecentTransactions(high_watermark, ())
    state, offset = newest_state(scan, high_watermark)
    completed = _walk(state, scan, offset, high_watermark)
    aborted = tuple(
        AbortedTransaction(each.producer_id, each.first_offset, each.last_offset, each.last_offset)
        for each in completed
        if each.is_aborted
    )
    return RecentTransactions(stable_end(state, scan, high_watermark, log_start_offset), aborted)


def stable_end(state: OpenTransactions, scan: PartitionScan, high_watermark: int, log_start_offset: int | None) -> int:
    """Return the last stable offset, for the transactions that are open at the high watermark."""
    log_start = scan.segments[0].base_offset if log_start_offset is None else log_start_offset
    unstable = state.first_unstable_offset
    return high_watermark if unstable is None else min(max(unstable, log_start), high_watermark)


def newest_state(scan: PartitionScan, high_watermark: int) -> tuple[OpenTransactions, int]:
    """Return the newest state that can be read, and the exclusive end of the offsets that it covers."""
    log_start = scan.segments[0].base_offset
    for offset in reversed(scan.snapshots):
        if not log_start <= offset <= high_watermark:
            continue
        path = scan.directory.path / file_name(offset, ".snapshot")
        try:
            return OpenTransactions.from_snapshot(read_producer_snapshot(path)), offset
        except (MissingArtefactError, CorruptIndexError) as error:
            log.warning(
                "producer_snapshot_unreadable", **partition_fields(path.parent), file=str(path), problem=str(error)
            )
    return OpenTransactions(), log_start


def _walk(
    state: OpenTransactions, scan: PartitionScan, from_offset: int, high_watermark: int
) -> list[CompletedTransaction]:
    """Apply the batches of ``[from_offset, high_watermark)`` to ``state``; return the transactions that they ended."""
    completed: list[CompletedTransaction] = []
    for segment in segments_from(scan.segments, from_offset):
        if segment.base_offset >= high_watermark:
            break
        _apply(state, segment, from_offset, high_watermark, completed)
    return completed


def _apply(
    state: OpenTransactions,
    segment: SegmentFiles,
    from_offset: int,
    high_watermark: int,
    completed: list[CompletedTransaction],
) -> None:
    with open_readable(segment) as (source, end):
        # A rolled segment ends with a complete batch: a walk that stops at damage misses the transactions behind it.
        is_active = segment.next_base_offset is None
        for header in iter_headers(source, end=end, may_be_torn=is_active):
            if header.last_offset >= high_watermark:
                return
            if header.last_offset >= from_offset and header.is_transactional:
                ended = state.apply(header, control_type_of(source, header))
                if ended is not None:
                    completed.append(ended)
