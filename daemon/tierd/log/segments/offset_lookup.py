"""Search for an offset by timestamp in a log of tierd's own (log-format 8.2; Kafka: fetchOffsetByTimestamp)."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import dropwhile, islice

from tierd.errors import SegmentChangedError
from tierd.log.files.partition_scan import SegmentFiles
from tierd.log.records.log_config import MAX_LONG
from tierd.log.records.record_batch import read_batch
from tierd.log.segments.log_read import LogReader, PublishedSnapshot
from tierd.log.segments.log_snapshot import first_in_segments, headers_from, indexed_timestamp, known_epoch
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
    """Facts about the log that a lookup needs besides the records.

    Attributes:
        log_end_offset: exclusive.
        lineage: the leader epochs.
        last_fetchable_offset: exclusive end of the records that the requester may read; None for a replica, which may
            read all records.
        is_tiered: older records are in a tier.
        highest_remote_offset: inclusive; -1 for an empty tier.
    """

    log_start_offset: int
    local_log_start_offset: int
    log_end_offset: int
    lineage: Lineage
    last_fetchable_offset: int | None = None
    is_tiered: bool = False
    highest_remote_offset: int = -1


RemoteLookup = Callable[[int, int], TimestampOffset | None]
"""A search of the tier for a timestamp, from an offset on."""


def offset_by_timestamp(
    reader: LogReader, timestamp_ms: int, facts: LookupFacts, *, remote: RemoteLookup | None = None
) -> TimestampOffset | None:
    """Find the first record whose timestamp is at least ``timestamp_ms``, or the place of a negative name. Blocking.

    Args:
        reader: the local log. Any thread may search.
        timestamp_ms: or ``LATEST``, ``EARLIEST``, ``MAX_TIMESTAMP``, ``EARLIEST_LOCAL``, ``LATEST_TIERED``.
        facts: the facts at this moment.
        remote: searched first, if the log is tiered and not empty.

    Returns:
        None when there is no such record, or the requester may not read the record yet.

    Raises:
        ValueError: ``timestamp_ms`` is negative and is no name.
        CorruptRecordError: a batch on the way is damaged.
        SegmentChangedError: the files are gone, or change again and again.
        OSError: a file cannot be read.
    """
    if timestamp_ms < 0 and timestamp_ms != MAX_TIMESTAMP:
        return _place(timestamp_ms, facts)
    if timestamp_ms == MAX_TIMESTAMP:
        found = reader.retrying(lambda log: _first_with_max_timestamp(PublishedSnapshot(reader, log)))
    else:
        found = _first_since(reader, timestamp_ms, facts, remote)
    end = facts.last_fetchable_offset
    return None if found is None or (end is not None and found.offset >= end) else found


def _place(name: int, facts: LookupFacts) -> TimestampOffset:
    """Return the place of a negative name that needs no search."""
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
    return reader.retrying(lambda log: _first_in_log(PublishedSnapshot(reader, log), timestamp_ms, start))


def _first_in_log(log: PublishedSnapshot, timestamp_ms: int, start: int) -> TimestampOffset | None:
    """Search the first segment whose largest timestamp reaches ``timestamp_ms``, and no other, as Kafka does."""
    candidates = (
        segment
        for index, segment in enumerate(log.segments())
        if _largest_timestamp_ms(log, segment, index) >= timestamp_ms
    )
    return first_in_segments(log, islice(candidates, 1), timestamp_ms, start=start)


def _first_with_max_timestamp(log: PublishedSnapshot) -> TimestampOffset | None:
    largest: TimestampOffset | None = None
    found_in: SegmentFiles | None = None
    for index, segment in enumerate(log.segments()):
        candidate = _max_timestamp(log, segment, index)
        if largest is None or candidate.timestamp_ms > largest.timestamp_ms:
            largest, found_in = candidate, segment
    if largest is None or found_in is None:
        return None
    with log.open_log(found_in) as opened:
        headers = headers_from(log, found_in, opened, largest.offset)
        for header in dropwhile(lambda header: header.max_timestamp_ms != largest.timestamp_ms, headers):
            for record in read_batch(opened.source, header).records() if header.magic else ():
                if record.timestamp_ms == header.max_timestamp_ms:
                    return TimestampOffset(record.timestamp_ms, record.offset, known_epoch(header))
            return None
    return None


def _max_timestamp(log: PublishedSnapshot, segment: SegmentFiles, index: int) -> TimestampOffset:
    """Return the largest timestamp of a segment and the last offset of its batch; (-1, base offset) without any.

    The writer knows the largest timestamp of a segment that it appended to. The last entry of the time index has it
    for another rolled segment. In the active segment more batches may follow that entry, and the batches in the buffer
    of the writer do not count.
    """
    log_end = log.published.log_end
    known = log.published.segments[index].known_max_timestamp
    if known is not None and (known.offset < log_end.offset or known.timestamp_ms < 0):
        return known
    none = TimestampOffset(-1, segment.base_offset)
    largest = indexed_timestamp(log, segment, MAX_LONG) or none
    if segment.next_base_offset is not None:
        return largest
    if largest.offset >= log_end.offset:
        largest = none
    with log.open_log(segment) as opened:
        for header in headers_from(log, segment, opened, largest.offset):
            if header.max_timestamp_ms > largest.timestamp_ms:
                largest = TimestampOffset(header.max_timestamp_ms, header.last_offset)
    return largest


def _largest_timestamp_ms(log: PublishedSnapshot, segment: SegmentFiles, index: int) -> int:
    """Return the largest timestamp of a segment; for one without timestamps the time when its file last changed."""
    largest = _max_timestamp(log, segment, index)
    if largest.timestamp_ms >= 0:
        return largest.timestamp_ms
    status = log.reader.disk.status(segment.log)
    if status is None:
        raise SegmentChangedError(f"{segment.log}: not there, or gone while it was read", remedy="read again")
    return status.mtime_ms
