"""Recovery of one segment after a crash: cuts the file behind its last sound batch, and rebuilds the indexes.

The recovery is one pass over the file in a window of fixed size: headers, checksums, indexes, leader epochs and
producers. Records are not decoded (log-format 6.4; Kafka: LogSegment.recover). ``_RecoveryWalk`` is an inlined twin of
``log.records.batch_walk``. A property test holds the two equal.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

import structlog

from tierd.errors import CorruptRecordError, OffsetOverflowError
from tierd.kernels import crc32c
from tierd.log.files.directory import partition_fields
from tierd.log.files.disk import Readable
from tierd.log.files.leader_epoch import LeaderEpochFileCache
from tierd.log.indexes.index_build import IndexBuilder
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.producers.active_producer import BATCHES_KEPT
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.transactions import EndMarker, end_marker_of
from tierd.log.records.batch_header import (
    CRC_START_V2,
    IS_CONTROL,
    IS_TRANSACTIONAL,
    LOG_OVERHEAD_BYTES,
    OVERHEAD_BYTES,
    BatchHeader,
    crc_matches,
    iter_headers,
    parse_header,
)
from tierd.log.records.log_config import MAX_INT
from tierd.log.records.record_batch import with_data
from tierd.log.segments.log_segment import LogSegment
from tierd.model import TimestampOffset

_WINDOW_BYTES = 1 << 20
_HEADER = struct.Struct(">qiibIhi8xqq10x")  # HEADER_V2 without the fields that recovery does not need, for speed

_TRANSACTION_BITS = IS_TRANSACTIONAL | IS_CONTROL  # the attributes that decide about the producer's transaction

_LOG = structlog.get_logger(__name__)


def recover_segment(segment: LogSegment, *, producers: ProducerStateManager, epochs: LeaderEpochFileCache) -> int:
    """Cut a segment behind its last valid batch, rebuild its indexes, and return the number of bytes cut. Blocking.

    Nothing is synced. The indexes are trimmed; ``grow_indexes`` gives the indexes of an active segment their room.

    Args:
        segment: the recovery trusts the log file only, as far as checksums are right and offsets ascend.
        producers: the state at the base of the segment; afterwards the state behind its last batch.
        epochs: receives every leader epoch that is newer than its latest epoch.

    Raises:
        OffsetOverflowError: an offset is too far from the base; the segment has to be split. Nothing was cut.
        EndMarkerError: a marker of a producer has a type that ends no transaction.
        InvalidTransactionStateError: a batch lies within a transaction of its producer and is no part of it.
        OSError: a file cannot be read or written.
    """
    segment.offset_index.truncate()
    segment.time_index.truncate()
    segment.transaction_index.reset()
    with segment.log.reading() as source:
        walk = _RecoveryWalk(segment, source, producers, epochs)
        walk.run()
    cut = segment.log.truncate(walk.position)
    walk.indexes.finish(walk.max_timestamp_ms, walk.shallow_offset)
    segment.offset_index.fill(walk.indexes.offsets)
    segment.time_index.fill(walk.indexes.times)
    segment.recovered(TimestampOffset(walk.max_timestamp_ms, walk.shallow_offset))
    segment.release_handles()  # there may be more segments to recover than files that may be open
    return cut


class _RecoveryWalk:
    """One pass over a segment.

    Attributes:
        position: end of the valid bytes so far.
        max_timestamp_ms: of the valid batches so far.
        shallow_offset: last offset of the earliest batch with that timestamp.
    """

    def __init__(
        self, segment: LogSegment, source: Readable, producers: ProducerStateManager, epochs: LeaderEpochFileCache
    ) -> None:
        self.position = 0
        self.max_timestamp_ms = -1
        self.shallow_offset = segment.base_offset
        self.indexes = IndexBuilder(
            segment.base_offset,
            interval_bytes=segment.config.index_interval_bytes,
            max_bytes=segment.config.segment_index_bytes,
        )
        self._segment = segment
        self._source = source
        self._end = segment.size_bytes
        self._name = str(segment.path)
        self._where = partition_fields(segment.path.parent)
        self._expected = segment.base_offset  # the smallest offset that may follow
        self._limit = segment.base_offset + MAX_INT
        self._producers = producers
        self._replay = _ProducerReplay(producers, self._header_at)
        self._producers_known_to = -1  # exclusive
        self._epochs = epochs
        self._epoch = -1 if epochs.latest_epoch is None else epochs.latest_epoch

    def run(self) -> None:
        window = memoryview(bytearray(min(_WINDOW_BYTES, self._end)))
        try:
            while self.position < self._end:
                data = window[: self._end - self.position]
                self._source.read_into(data, self.position)
                self._walk_window(data)
        except CorruptRecordError as error:
            _LOG.warning(
                "segment_recovery_stopped", **self._where, file=self._name, position=self.position, cause=str(error)
            )
        self._replay.finish()
        if self._producers_known_to >= 0:
            self._producers.update_map_end_offset(self._producers_known_to)

    def _walk_window(self, data: memoryview) -> None:
        """Take the batches of ``data``, which begins at ``position``. An incomplete batch at its end is read again."""
        origin = self.position
        while (at := self._walk_magic_2(data, origin)) < len(data):
            header = parse_header(data, at, name=self._name, position=self.position)
            if header is None or header.end_position > self._end:
                if at:
                    return
                raise self._corrupt(f"an incomplete batch, {self._end - self.position} bytes")
            if header.end_position <= origin + len(data):
                self._take(header, data[at : at + header.size_bytes])
            elif not at:
                self._take(header, None)
                return
            else:
                return

    def _walk_magic_2(self, data: memoryview, origin: int) -> int:
        """Take complete batches of magic 2 from ``position`` on, and return the place in ``data`` behind the last one.

        The function inlines ``_take`` and has its state in local names, because every line runs once per batch.
        """
        unpack, crc_of, indexes, run_of = _HEADER.unpack_from, crc32c, self.indexes, self._replay.runs.get
        at, end, index_behind = self.position - origin, len(data), indexes.next_position - origin
        expected, limit, epoch_seen = self._expected, self._limit, self._epoch
        known_to, max_timestamp_ms, shallow = self._producers_known_to, self.max_timestamp_ms, self.shallow_offset
        try:
            while end - at >= OVERHEAD_BYTES:
                base, length, epoch, magic, crc, attributes, delta, max_ms, producer_id = unpack(data, at)
                after, last = at + length + LOG_OVERHEAD_BYTES, base + delta
                if magic != 2 or after > end or length < OVERHEAD_BYTES - LOG_OVERHEAD_BYTES:
                    break
                if crc_of(data[at + CRC_START_V2 : after]) != crc:
                    raise self._corrupt("wrong checksum of the batch", at + origin)
                if base < expected or delta < 0 or last > limit:
                    raise self._misplaced(base, last, at + origin)
                if max_ms > max_timestamp_ms:
                    max_timestamp_ms, shallow = max_ms, last
                if at > index_behind:
                    indexes.add(last, at + origin, max_timestamp_ms, shallow)
                    index_behind = indexes.next_position - origin
                start, at, expected = at, after, last + 1
                if epoch > epoch_seen:
                    self._epochs.assign(epoch=epoch, start_offset=base)
                    epoch_seen = epoch
                if producer_id >= 0:
                    run = run_of((producer_id, attributes & _TRANSACTION_BITS))
                    if run is None:
                        self._replay_batch(self._header_at(start + origin), data[start:at])
                    else:
                        run.append(start + origin)
                known_to = expected
        finally:
            self.position, self._expected, self._epoch = at + origin, expected, epoch_seen
            self._producers_known_to, self.max_timestamp_ms, self.shallow_offset = known_to, max_timestamp_ms, shallow
        return at

    def _take(self, header: BatchHeader, data: memoryview | None) -> None:
        """Take one batch of any magic. ``data`` has its bytes; None for a batch that is larger than the window."""
        is_valid = crc_matches(self._source, header) if data is None else with_data(header, data).is_valid
        if not is_valid:
            raise self._corrupt("wrong checksum of the batch")
        if header.base_offset < self._expected or header.last_offset > self._limit:
            raise self._misplaced(header.base_offset, header.last_offset)
        if header.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.shallow_offset = header.max_timestamp_ms, header.last_offset
        if self.position > self.indexes.next_position:
            self.indexes.add(header.last_offset, self.position, self.max_timestamp_ms, self.shallow_offset)
        self.position, self._expected = header.end_position, header.last_offset + 1
        if header.magic < 2:
            return
        if header.partition_leader_epoch > self._epoch:
            self._epochs.assign(epoch=header.partition_leader_epoch, start_offset=header.base_offset)
            self._epoch = header.partition_leader_epoch
        if header.producer_id >= 0:
            self._replay_batch(header, data)
        self._producers_known_to = self._expected

    def _replay_batch(self, header: BatchHeader, data: memoryview | None) -> None:
        marker = None
        if header.is_control:
            if data is None:
                raise self._corrupt(f"a marker of {header.size_bytes} bytes", header.position)
            marker = end_marker_of(with_data(header, data))
        aborted = self._replay.replay(header, marker)
        if aborted:
            self._segment.transaction_index.append(aborted)

    def _header_at(self, position: int) -> BatchHeader:
        header = parse_header(self._source.read(position, OVERHEAD_BYTES), 0, name=self._name, position=position)
        if header is None:
            raise self._source.changed()
        return header

    def _misplaced(self, base: int, last: int, position: int | None = None) -> CorruptRecordError | OffsetOverflowError:
        if base >= self._expected and last > self._limit and self._ends_beyond_limit():
            return OffsetOverflowError(
                f"{self._name}: offset {last} is not within {MAX_INT} of the segment's base",
                remedy="an old broker wrote the segment; it is split when the log is loaded",
            )
        return self._corrupt(f"offsets {base} to {last}, where {self._expected} is the smallest possible", position)

    def _ends_beyond_limit(self) -> bool:
        """Return true if the last offset of the file overflows. An overflow only in the middle is damage."""
        last = -1
        with suppress(CorruptRecordError):  # what follows a crash
            for header in iter_headers(self._source, position=self.position, end=self._end):
                last = header.last_offset
        return last > self._limit

    def _corrupt(self, problem: str, position: int | None = None) -> CorruptRecordError:
        return CorruptRecordError(self._name, self.position if position is None else position, problem)


class _ProducerReplay:
    """Replay of a log's batches into the state of producers, without the work that the next batch undoes.

    The state of a producer is its last five batches and its open transaction. Of a run of data batches of one producer
    that neither begin nor end a transaction, the last five alone leave a trace; they may wait for the end of the run.
    Batches come in the order of the log; afterwards ``finish`` is called, or the state is thrown away.

    Attributes:
        runs: positions, by producer id and kind, of batches that only continue a run: the walk appends to the run
            instead of calling ``replay``. Control batches are in no run.
    """

    def __init__(self, producers: ProducerStateManager, header_at: Callable[[int], BatchHeader]) -> None:
        """Replay into ``producers``; ``header_at`` reads the header at a position that was appended to a run."""
        self.runs: dict[tuple[int, int], deque[int]] = {}
        self._producers = producers
        self._header_at = header_at

    def replay(self, header: BatchHeader, marker: EndMarker | None) -> AbortedTransaction | None:
        """Replay the waiting batches of its producer, then the batch itself; as ``ProducerStateManager.replay``."""
        producer_id, kind = header.producer_id, header.attributes & _TRANSACTION_BITS
        for known in (0, IS_TRANSACTIONAL):
            self._replay_run(self.runs.pop((producer_id, known), ()))
        aborted = self._producers.replay(header, marker)
        if not kind & IS_CONTROL:
            self.runs[producer_id, kind] = deque(maxlen=BATCHES_KEPT)
        return aborted

    def finish(self) -> None:
        """Replay the waiting batches."""
        for run in self.runs.values():
            self._replay_run(run)
        self.runs.clear()

    def _replay_run(self, run: Iterable[int]) -> None:
        for position in run:
            self._producers.replay(self._header_at(position), None)
