"""The last stable offset of a log that a broker owns (DESIGN 3; log-format 4.5)."""

import structlog

from tierd.errors import CorruptIndexError, MissingArtefactError
from tierd.log.broker.live_segment import readable_bytes
from tierd.log.files.event_fields import partition_fields
from tierd.log.files.partition_scan import PartitionScan, SegmentFiles, file_name
from tierd.log.files.source import open_source
from tierd.log.producers.producer_state import read_producer_snapshot
from tierd.log.producers.transactions import OpenTransactions
from tierd.log.records.batch_header import iter_headers
from tierd.log.records.record_batch import control_type_of

log = structlog.get_logger()


def last_stable_offset(
    scan: PartitionScan, *, high_watermark: int, enough: int | None = None, log_start_offset: int | None = None
) -> int:
    """Where a transaction may still be open, exclusive: everything below it is decided. Blocking.

    The newest producer snapshot at or below the high watermark, then the batches from there to the high watermark.
    A snapshot that is missing or unreadable costs a longer walk from the one before it, in the end from the log start.

    Args:
        scan: the partition.
        high_watermark: exclusive; what is above it may still be truncated away, its markers included.
        enough: spare the walk once this much is known to be stable; the answer may then be below the true one,
            but never below ``enough`` if that is stable.
        log_start_offset: where readers may begin: the answer is never below it. None: at the first local segment; a
            log whose beginning is in the tier begins earlier.

    Raises:
        CorruptRecordError: a batch on the way is damaged.
        SegmentChangedError: a file vanished.
        LogDirOfflineError: a file cannot be read.
    """
    if not scan.segments:
        return high_watermark
    log_start = scan.segments[0].base_offset if log_start_offset is None else log_start_offset
    state, offset = _newest_state(scan, high_watermark)
    if enough is not None and enough <= offset and not state.first_offsets:
        return offset
    for segment in scan.segments:
        if segment.base_offset >= high_watermark:
            break
        if segment.next_base_offset is None or segment.next_base_offset > offset:
            _apply(state, segment, offset, high_watermark)
    unstable = state.first_unstable_offset
    return high_watermark if unstable is None else min(max(unstable, log_start), high_watermark)


def _newest_state(scan: PartitionScan, high_watermark: int) -> tuple[OpenTransactions, int]:
    """The newest state that can be read, and the offset up to which it counts, exclusive."""
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


def _apply(state: OpenTransactions, segment: SegmentFiles, from_offset: int, high_watermark: int) -> None:
    with open_source(segment.log) as source:
        # A rolled segment ends with a whole batch: to stop at damage would miss the transactions behind it.
        is_active = segment.next_base_offset is None
        for header in iter_headers(source, end=readable_bytes(source, segment), may_be_torn=is_active):
            if header.last_offset >= high_watermark:
                return
            if header.last_offset >= from_offset and header.is_transactional:
                state.apply(header, control_type_of(source, header))
