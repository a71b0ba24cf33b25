"""The last stable offset of a log that a broker owns (DESIGN 3; log-format 4.5)."""

import structlog

from tierd.errors import CorruptIndexError, MissingArtefactError
from tierd.log.broker.live_segment import open_readable
from tierd.log.files.event_fields import partition_fields
from tierd.log.files.partition_scan import PartitionScan, SegmentFiles, file_name
from tierd.log.producers.producer_state import read_producer_snapshot
from tierd.log.producers.transactions import OpenTransactions
from tierd.log.records.batch_header import iter_headers
from tierd.log.records.record_batch import control_type_of

log = structlog.get_logger()


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


def _apply(state: OpenTransactions, segment: SegmentFiles, from_offset: int, high_watermark: int) -> None:
    with open_readable(segment) as (source, end):
        # A rolled segment ends with a complete batch: a walk that stops at damage misses the transactions behind it.
        is_active = segment.next_base_offset is None
        for header in iter_headers(source, end=end, may_be_torn=is_active):
            if header.last_offset >= high_watermark:
                return
            if header.last_offset >= from_offset and header.is_transactional:
                state.apply(header, control_type_of(source, header))
