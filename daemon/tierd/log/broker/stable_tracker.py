"""StableOffsetTracker: the last stable offset of a broker's log, followed from one high watermark to the next."""

import threading
from dataclasses import dataclass, field
from typing import NamedTuple

from tierd.errors import CorruptRecordError
from tierd.log.broker.live_segment import live_headers
from tierd.log.broker.stable_offset import newest_state, stable_end
from tierd.log.files.partition_scan import PartitionScan, SegmentFiles
from tierd.log.files.source import Source, open_source
from tierd.log.producers.transactions import OpenTransactions
from tierd.log.records.batch_header import OVERHEAD_BYTES, BatchHeader, parse_header
from tierd.log.records.record_batch import control_type_of
from tierd.log.segments.segment_ranges import segments_from
from tierd.log.segments.segment_reading import indexed_position


@dataclass(slots=True)
class _FollowedTransactions:
    """Transactions open at an offset.

    Attributes:
        offset: exclusive end of the batches that ``state`` knows, from a producer snapshot or from the log.
        epoch: entry of the lineage that the last of these batches belongs to; another one says that the log was cut
            back below ``offset``.
        inode: of the file in which the batch at ``offset`` begins at ``position``.
        last: the batch before ``position`` in that file; None without one. Another batch in its place says that the
            log was cut back and written anew, or that the file is another one with the same inode.
        end_offset: exclusive end of the batches that were there. After a crash a producer snapshot may lie behind it.
    """

    state: OpenTransactions
    offset: int
    epoch: int | None
    inode: int = -1
    position: int = 0
    last: BatchHeader | None = None
    end_offset: int = 0


class _LogRewrittenError(Exception):
    """The batches that were followed are not those of the log any more."""


class FollowedEnd(NamedTuple):
    """Ends of a log that was followed up to its high watermark.

    Attributes:
        last_stable_offset: exclusive end of the decided records.
        end_offset: exclusive end of the batches that are there, at most the high watermark.
    """

    last_stable_offset: int
    end_offset: int


@dataclass(slots=True)
class StableOffsetTracker:
    """Last stable offset of one log. Each batch is looked at once, however often the caller asks. For any thread."""

    _followed: _FollowedTransactions | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, scan: PartitionScan, *, high_watermark: int, log_start_offset: int | None) -> FollowedEnd:
        """Return the end of the decided records, as ``last_stable_offset`` of the log does, and of all. Blocking.

        A high watermark may be newer than the scan: the segments behind those of the scan are not known to be decided.

        The first call, and the first one behind a log that was cut back, reads all batches behind the newest producer
        snapshot; later calls read the batches between their high watermark and the one before.

        Raises:
            CorruptRecordError: a batch on the way is damaged.
            SegmentChangedError: a file vanished.
            LogDirOfflineError: a file cannot be read.
        """
        if not scan.segments:
            return FollowedEnd(high_watermark, high_watermark)
        with self._lock:
            followed, self._followed = self._followed, None  # an error on the way leaves half a state
            if followed is None or not _goes_on(followed, scan, high_watermark):
                followed = _begun(scan, high_watermark)
            try:
                _advance(followed, scan, high_watermark)
            except _LogRewrittenError:
                followed = _begun(scan, high_watermark)
                _advance(followed, scan, high_watermark)
            self._followed = followed
            active = scan.segments[-1].base_offset
            known_end = min(high_watermark, max(followed.offset, active))
            stable = stable_end(followed.state, scan, known_end, log_start_offset)
            return FollowedEnd(stable, min(high_watermark, max(followed.end_offset, active)))


def _begun(scan: PartitionScan, high_watermark: int) -> _FollowedTransactions:
    state, offset = newest_state(scan, high_watermark)
    return _FollowedTransactions(state, offset, _epoch_at(scan, offset))


def _goes_on(followed: _FollowedTransactions, scan: PartitionScan, high_watermark: int) -> bool:
    """Return True if the batches that were followed are still those of the log."""
    if high_watermark < followed.offset or followed.offset < scan.segments[0].base_offset:
        return False
    return _epoch_at(scan, followed.offset) == followed.epoch


def _epoch_at(scan: PartitionScan, offset: int) -> int | None:
    """Return the epoch of the record before ``offset``."""
    return scan.lineage.epoch_for(offset - 1)


def _advance(followed: _FollowedTransactions, scan: PartitionScan, high_watermark: int) -> None:
    for segment in segments_from(scan.segments, followed.offset):
        if segment.base_offset >= high_watermark:
            break
        _apply(followed, segment, high_watermark)
    followed.epoch = _epoch_at(scan, followed.offset)


def _apply(followed: _FollowedTransactions, segment: SegmentFiles, high_watermark: int) -> None:
    with open_source(segment.log) as source:
        last, position = followed.last, followed.position
        if source.inode != followed.inode or last is None:
            position = indexed_position(open_source, source, segment, followed.offset)
            followed.last = None
        elif not _is_there(source, last):
            raise _LogRewrittenError
        followed.inode, followed.position = source.inode, position
        for header in live_headers(source, segment, position=position):
            if header.last_offset >= high_watermark:
                return
            followed.last, followed.end_offset = header, header.last_offset + 1
            if header.last_offset >= followed.offset:
                if header.is_transactional:
                    followed.state.apply(header, control_type_of(source, header))
                followed.offset = header.last_offset + 1
            followed.position = header.end_position


def _is_there(source: Source, batch: BatchHeader) -> bool:
    data = source.read(batch.position, OVERHEAD_BYTES)
    try:
        return parse_header(data, 0, name=batch.name, position=batch.position) == batch
    except CorruptRecordError:
        return False
