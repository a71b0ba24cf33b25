"""From a timestamp to an offset, as ListOffsets asks (log-format 8.2; Kafka: UnifiedLog.fetchOffsetByTimestamp)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import dropwhile

from tierd.errors import SegmentChangedError
from tierd.log.files.disk import Readable
from tierd.log.files.partition_scan import SegmentFiles
from tierd.log.indexes.index_lookup import lookup_timestamp
from tierd.log.records.batch_header import BatchHeader, iter_headers
from tierd.log.records.log_config import MAX_LONG
from tierd.log.records.record_batch import read_batch
from tierd.log.segments.log_read import LogReader, readable_end
from tierd.log.segments.log_segments import PublishedLog
from tierd.log.segments.segment_reader import indexed_position
from tierd.model import Lineage, TimestampOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

_NO_TIMESTAMP = -1
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupFacts:
    """What a lookup has to know of the log besides its records.

    Attributes:
        log_end_offset: exclusive.
        lineage: the leader epochs.
        last_fetchable_offset: exclusive end of what the requester may read; None for a replica, who may read all.
        is_tiered: older records are in a tier.
        highest_remote_offset: inclusive; -1 when nothing is in the tier.
    """

    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    lineage: Lineage
    last_fetchable_offset: int | None = None
    is_tiered: bool = False
    highest_remote_offset: int = -1


RemoteLookup = Callable[[int, int], TimestampOffset | None]
"""Searches the tier for a timestamp, from an offset on."""


def offset_by_timestamp(
    reader: LogReader, timestamp_ms: int, facts: LookupFacts, *, remote: RemoteLookup | None = None
) -> TimestampOffset | None:
    """Find the first record at or behind a timestamp, or what one of the negative names stands for. Blocking.

    Args:
        reader: the local log; any thread.
        timestamp_ms: or ``LATEST``, ``EARLIEST``, ``MAX_TIMESTAMP``, ``EARLIEST_LOCAL``, ``LATEST_TIERED``.
        facts: at this moment.
        remote: asked first, if the log is tiered and holds anything.

    Returns:
        None when there is no such record, or the requester may not read it yet.

    Raises:
        ValueError: a negative number that stands for nothing.
        CorruptRecordError: a batch on the way is damaged.
        SegmentChangedError: the files are gone, or change again and again.
        OSError: a file cannot be read.
    """
    if timestamp_ms < 0 and timestamp_ms != MAX_TIMESTAMP:
        return _place(timestamp_ms, facts)
    if timestamp_ms == MAX_TIMESTAMP:
        found = reader.retrying(lambda log: _first_with_max_timestamp(reader, log))
    else:
        found = _first_since(reader, timestamp_ms, facts, remote)
    end = facts.last_fetchable_offset
    return None if found is None or (end is not None and found.offset >= end) else found


def _place(name: int, facts: LookupFacts) -> TimestampOffset:
    """What one of the negative names stands for, but the one that needs a search."""
    lineage = facts.lineage
    if name == LATEST:
        end = facts.log_end_offset if facts.last_fetchable_offset is None else facts.last_fetchable_offset
        return TimestampOffset(_NO_TIMESTAMP, end, lineage.latest.epoch if lineage.latest else None)
    if name == EARLIEST_LOCAL and facts.is_tiered:
        start = facts.local_log_start_offset
        return TimestampOffset(_NO_TIMESTAMP, start, lineage.epoch_for(start))
    if name in (EARLIEST, EARLIEST_LOCAL):
        first, start = lineage.earliest, facts.log_start_offset
        epoch = first.epoch if first is not None and first.start_offset <= start else None
        return TimestampOffset(_NO_TIMESTAMP, start, epoch)
    if name == LATEST_TIERED:
        highest = facts.highest_remote_offset if facts.is_tiered else -1
        return TimestampOffset(_NO_TIMESTAMP, highest, _NO_EPOCH if highest == -1 else lineage.epoch_for(highest))
    raise ValueError(f"timestamp {name} stands for nothing")


def _first_since(
    reader: LogReader, timestamp_ms: int, facts: LookupFacts, remote: RemoteLookup | None
) -> TimestampOffset | None:
    start = facts.log_start_offset
    if facts.is_tiered and start < facts.log_end_offset:
        if remote is not None and (found := remote(timestamp_ms, start)) is not None:
            return found
        start = facts.local_log_start_offset
    return reader.retrying(lambda log: _first_in_log(reader, log, timestamp_ms, start))


def _first_in_log(reader: LogReader, log: PublishedLog, timestamp_ms: int, start: int) -> TimestampOffset | None:
    """Search the first segment whose largest timestamp reaches ``timestamp_ms``, and no other, as Kafka does."""
    for index in range(len(log.segments)):
        if _largest_timestamp_ms(reader, log, index) >= timestamp_ms:
            return _first_in_segment(reader, log, index, timestamp_ms, start)
    return None


def _first_in_segment(
    reader: LogReader, log: PublishedLog, index: int, timestamp_ms: int, start: int
) -> TimestampOffset | None:
    files = log.files(index)
    hint = _time_index_entry(reader, files, timestamp_ms)
    with reader.open_file(files.log) as source:
        for header in _headers_from(reader, log, files, source, max(hint.offset, start)):
            if header.max_timestamp_ms < timestamp_ms or header.last_offset < start:
                continue
            for record in read_batch(source, header).records():
                if record.timestamp_ms >= timestamp_ms and record.offset >= start:
                    return TimestampOffset(record.timestamp_ms, record.offset, _epoch(header))
    return None


def _first_with_max_timestamp(reader: LogReader, log: PublishedLog) -> TimestampOffset | None:
    largest: TimestampOffset | None = None
    found_in = -1
    for index in range(len(log.segments)):
        candidate = _max_timestamp(reader, log, index)
        if largest is None or candidate.timestamp_ms > largest.timestamp_ms:
            largest, found_in = candidate, index
    if largest is None:
        return None
    files = log.files(found_in)
    with reader.open_file(files.log) as source:
        headers = _headers_from(reader, log, files, source, largest.offset)
        for header in dropwhile(lambda header: header.max_timestamp_ms != largest.timestamp_ms, headers):
            for record in read_batch(source, header).records() if header.magic else ():
                if record.timestamp_ms == header.max_timestamp_ms:
                    return TimestampOffset(record.timestamp_ms, record.offset, _epoch(header))
            return None
    return None


def _headers_from(
    reader: LogReader, log: PublishedLog, files: SegmentFiles, source: Readable, offset: int
) -> Iterator[BatchHeader]:
    """The published batches from an indexed place at or before ``offset`` on."""
    position = indexed_position(reader.open_file, source, files, offset)
    return iter_headers(source, position=position, end=readable_end(log, files, source))


def _max_timestamp(reader: LogReader, log: PublishedLog, index: int) -> TimestampOffset:
    """The largest timestamp of a segment and the last offset of its batch; (-1, base offset) without any.

    The writer knows it of a segment that it appended to; of another rolled one the last entry of the time index says
    it. In the active segment there may be more behind that entry, and what the writer has in its buffer does not count.
    """
    known, files = log.segments[index].known_max_timestamp, log.files(index)
    if known is not None and (known.offset < log.log_end.offset or known.timestamp_ms < 0):
        return known
    largest = _time_index_entry(reader, files, MAX_LONG)
    if files.next_base_offset is not None:
        return largest
    if largest.offset >= log.log_end.offset:
        largest = TimestampOffset(-1, files.base_offset)
    with reader.open_file(files.log) as source:
        for header in _headers_from(reader, log, files, source, largest.offset):
            if header.max_timestamp_ms > largest.timestamp_ms:
                largest = TimestampOffset(header.max_timestamp_ms, header.last_offset)
    return largest


def _largest_timestamp_ms(reader: LogReader, log: PublishedLog, index: int) -> int:
    """Like ``_max_timestamp``, but of a segment without timestamps the time of its last change."""
    largest = _max_timestamp(reader, log, index)
    if largest.timestamp_ms >= 0:
        return largest.timestamp_ms
    path = log.files(index).log
    status = reader.disk.status(path)
    if status is None:
        raise SegmentChangedError(f"{path}: not there, or gone while it was read", remedy="read again")
    return status.mtime_ms


def _time_index_entry(reader: LogReader, files: SegmentFiles, timestamp_ms: int) -> TimestampOffset:
    try:
        with reader.open_file(files.time_index) as source:
            return lookup_timestamp(source, base_offset=files.base_offset, timestamp_ms=timestamp_ms)
    except SegmentChangedError:  # made when it is first needed: the search from the start is only slower
        return TimestampOffset(-1, files.base_offset)


def _epoch(header: BatchHeader) -> int | None:
    return header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
