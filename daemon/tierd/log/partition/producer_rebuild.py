"""Rebuild of the producer state from snapshots and from the batches behind them (log-format 6.6)."""

from collections.abc import Iterator

import structlog

from tierd.errors import CorruptRecordError
from tierd.log.files.directory import partition_fields
from tierd.log.files.disk import Disk, Readable
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.transactions import read_end_marker
from tierd.log.records.batch_header import BatchHeader, crc_matches, iter_headers
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.log_segments import LogSegments

log = structlog.get_logger()


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: LogSegments,
    *,
    disk: Disk,
    log_start_offset: int,
    end_offset: int,
    reload_from_clean_shutdown: bool,
    now_ms: int,
) -> int:
    """Bring ``producers`` to the state at ``end_offset``, exclusive (Kafka: UnifiedLog.rebuildProducerState).

    Snapshots are taken on the way at the bases of the last two segments, and at the end. Without any snapshot after a
    clean stop there were no producers, and nothing is scanned.

    Returns:
        How many segments were scanned.

    Raises:
        OSError: a file cannot be read or written.
        CorruptRecordError: a batch that has to be scanned is damaged.
        EndMarkerError: a marker that neither aborts nor commits.
        InvalidTransactionStateError: a batch within a transaction that is not of it.
    """
    points = segments.base_offsets[-2:]
    if producers.latest_snapshot_offset is None and reload_from_clean_shutdown:
        for offset in (*points, end_offset):
            producers.update_map_end_offset(offset)
            producers.take_snapshot(sync=True)
        return 0
    # Nothing is scanned where no producer ever was; but an expired producer may have been in a transaction here.
    was_empty = producers.is_empty and not producers.has_forgotten and producers.map_end_offset >= end_offset
    producers.truncate_and_reload(log_start_offset=log_start_offset, log_end_offset=end_offset, now_ms=now_ms)
    scanned = 0
    if end_offset > producers.map_end_offset and not (was_empty and producers.is_empty):
        last = segments.floor(end_offset)
        for segment in segments.range(producers.map_end_offset, end_offset):
            start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.update_map_end_offset(start)
            if segment.base_offset in points:
                producers.take_snapshot(sync=True)
            _replay(producers, disk, segment, start=start, end=end_offset if segment is last else None)
            scanned += 1
    producers.update_map_end_offset(end_offset)
    producers.take_snapshot(sync=True)
    if segments.first is not None:
        where = partition_fields(segments.first.path.parent)
        log.debug("producer_state_rebuilt", **where, offset=end_offset, scanned=scanned)
    return scanned


def _replay(producers: ProducerStateManager, disk: Disk, segment: LogSegment, *, start: int, end: int | None) -> None:
    """Apply the batches of one segment from ``start`` on, as a replica would (Kafka: loadProducersFromRecords)."""
    file = disk.open(segment.path, write=False)
    try:
        for header in _headers_from(file, segment, start):
            if end is not None and header.last_offset >= end:
                break
            if header.producer_id >= 0:
                producers.replay(header, read_end_marker(file, header))
    finally:
        file.close()


def _headers_from(file: Readable, segment: LogSegment, start: int) -> Iterator[BatchHeader]:
    """Yield the batches from the one that holds ``start`` on. A wrong index costs a walk from the front, no more."""
    position = _position_of(file, segment, start)
    for header in iter_headers(file, position=position, end=segment.size_bytes):
        if header.last_offset >= start:
            yield header


def _position_of(file: Readable, segment: LogSegment, start: int) -> int:
    if start <= segment.base_offset:
        return 0
    position = segment.offset_index.lookup(start).position
    try:
        first = next(iter_headers(file, position=position, end=segment.size_bytes), None)
    except CorruptRecordError:
        return 0
    is_batch = first is not None and segment.base_offset <= first.base_offset <= start and crc_matches(file, first)
    return position if is_batch else 0
