"""One segment inspected: every batch decoded and checked, and its indexes held against the batches."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tierd.errors import CorruptIndexError, CorruptRecordError, InvalidRecordError
from tierd.log.batch_header import BatchHeader, crc_matches, iter_headers
from tierd.log.files import Source, open_source
from tierd.log.inspection.findings import Damage, Decoded, Finding, JsonValue
from tierd.log.offset_index import OffsetIndex
from tierd.log.record import ControlRecordType, Record
from tierd.log.record_batch import read_batch
from tierd.log.time_index import TimeIndex
from tierd.log.transaction_index import AbortedTransaction, TransactionIndex
from tierd.log.transactions import OpenTransactions
from tierd.model import Lineage

_MAX_BATCH_BYTES = 256 << 20
_INDEX_REMEDY = "the index can be rebuilt: stop the broker, remove the file, start it"


@dataclass(slots=True)
class SegmentExpectations:
    """What a segment's batches are held against; every part may be left out. ``transactions`` is carried on.

    Attributes:
        next_base_offset: exclusive; None when there is no next segment.
        lineage: None: not checked.
        open_transactions: as of the segment's start; None: not checked.
    """

    base_offset: int = 0
    next_base_offset: int | None = None
    lineage: Lineage | None = None
    offset_index: OffsetIndex | None = None
    time_index: TimeIndex | None = None
    transaction_index: TransactionIndex | None = None
    transaction_index_path: Path | None = None
    offset_index_path: Path | None = None
    time_index_path: Path | None = None
    open_transactions: OpenTransactions | None = None


def inspect_segment(path: Path, expected: SegmentExpectations, *, records: bool) -> Iterator[Finding]:
    """Decode and check a log file; goes on behind a batch whose checksum is wrong, stops where no batch begins.

    Raises:
        SegmentChangedError: the file vanished.
        LogDirOfflineError: it cannot be read.
    """
    with open_source(path) as source:
        walk = _Walk(path, expected)
        end = 0
        try:
            for header in iter_headers(source, may_be_torn=False):
                end = header.end_position
                is_valid = crc_matches(source, header)
                yield Decoded("batch", _batch_fields(header, is_valid=is_valid))
                yield from walk.check(source, header, is_valid=is_valid)
                if records and is_valid:
                    yield from _records(source, header)
        except CorruptRecordError as error:
            yield Damage(path, error.position, str(error), error.remedy)
        yield from walk.finish(end, source.size_bytes)


@dataclass(slots=True)
class _Walk:
    path: Path
    expected: SegmentExpectations
    next_offset: int = -1
    offset_at: int = 0  # entry of the offset index that is next
    pending_offset: int | None = None  # offset of an index entry whose batch set is being walked
    time_at: int = 0
    lineage_failed: bool = False
    aborted_seen: dict[int, AbortedTransaction] = field(default_factory=dict)

    def check(self, source: Source, header: BatchHeader, *, is_valid: bool) -> Iterator[Finding]:
        if not is_valid:
            yield self._damage(header, "wrong checksum of the batch")
        if header.base_offset < max(self.next_offset, self.expected.base_offset):
            yield self._damage(header, f"offset {header.base_offset} is not above those before it")
        bound = self.expected.next_base_offset
        if bound is not None and header.last_offset >= bound:
            yield self._damage(header, f"offset {header.last_offset} belongs to the next segment")
        self.next_offset = header.last_offset + 1
        yield from self._check_epoch(header)
        yield from self._check_offset_index(header)
        yield from self._check_time_index(header)
        if is_valid:
            yield from self._check_transactions(source, header)

    def finish(self, end: int, size_bytes: int) -> Iterator[Finding]:
        """Report what no batch answered to; silent about indexes when the walk did not reach the end of the file."""
        if end != size_bytes:
            return
        index = self.expected.offset_index
        if index is not None and self.expected.offset_index_path is not None and self.offset_at < len(index):
            offset, position = index[self.offset_at]
            yield Damage(
                self.expected.offset_index_path,
                None,
                f"entry {self.offset_at} says that offset {offset} is at {position}, where no batch begins",
                _INDEX_REMEDY,
            )
        times = self.expected.time_index
        if times is not None and self.expected.time_index_path is not None and self.time_at < len(times):
            entry = times.entries[self.time_at]
            yield Damage(
                self.expected.time_index_path,
                None,
                f"entry {self.time_at} says that offset {entry.offset} has timestamp {entry.timestamp_ms}: not so",
                _INDEX_REMEDY,
            )
        yield from self._unanswered_aborts()

    def _check_epoch(self, header: BatchHeader) -> Iterator[Finding]:
        lineage, epoch = self.expected.lineage, header.partition_leader_epoch
        if lineage is None or epoch < 0 or self.lineage_failed:
            return
        if lineage.earliest and header.base_offset < lineage.earliest.start_offset:
            return  # below the log start, which the broker has forgotten
        known = lineage.epoch_for(header.base_offset)
        if known != epoch:
            self.lineage_failed = True
            said = "no epoch" if known is None else f"epoch {known}"
            yield self._damage(
                header, f"leader epoch {epoch} at offset {header.base_offset}, where leader-epoch-checkpoint has {said}"
            )

    def _check_offset_index(self, header: BatchHeader) -> Iterator[Finding]:
        index, path = self.expected.offset_index, self.expected.offset_index_path
        if index is None or path is None:
            return
        if self.offset_at < len(index) and index[self.offset_at].position == header.position:
            self.pending_offset = index[self.offset_at].offset
            self.offset_at += 1
        elif self.offset_at < len(index) and index[self.offset_at].position < header.position:
            offset, position = index[self.offset_at]
            yield Damage(
                path, None, f"entry {self.offset_at}: no batch begins at {position} (offset {offset})", _INDEX_REMEDY
            )
            self.expected.offset_index = None
            return
        if self.pending_offset is not None and header.last_offset >= self.pending_offset:
            if header.last_offset != self.pending_offset:
                yield Damage(
                    path,
                    None,
                    f"entry {self.offset_at - 1}: no batch ends with offset {self.pending_offset}",
                    _INDEX_REMEDY,
                )
                self.expected.offset_index = None
            self.pending_offset = None

    def _check_time_index(self, header: BatchHeader) -> Iterator[Finding]:
        times, path = self.expected.time_index, self.expected.time_index_path
        if times is None or path is None:
            return
        while self.time_at < len(times) and times.entries[self.time_at].offset <= header.last_offset:
            entry = times.entries[self.time_at]
            if entry.offset < header.base_offset or entry.timestamp_ms != header.max_timestamp_ms:
                yield Damage(
                    path,
                    None,
                    f"entry {self.time_at}: offset {entry.offset} does not have timestamp {entry.timestamp_ms}",
                    _INDEX_REMEDY,
                )
                self.expected.time_index = None
                return
            self.time_at += 1

    def _check_transactions(self, source: Source, header: BatchHeader) -> Iterator[Finding]:
        state = self.expected.open_transactions
        if state is None or not header.is_transactional:
            return
        if not header.is_control and not header.record_count:
            return  # what compaction left of a batch; its marker may have lost its entry in the index
        try:
            kind = read_batch(source, header).control_type() if header.size_bytes <= _MAX_BATCH_BYTES else None
        except InvalidRecordError as error:
            yield self._damage(header, str(error))
            return
        completed = state.apply(header, kind)
        index = self.expected.transaction_index
        if index is None:
            return
        if kind is ControlRecordType.ABORT:
            for entry in index.entries:
                if entry.last_offset == header.last_offset and entry.producer_id == header.producer_id:
                    self.aborted_seen[header.last_offset] = entry
        if completed is not None and completed.is_aborted and header.last_offset not in self.aborted_seen:
            yield Damage(
                self.expected.transaction_index_path or self.path,
                None,
                f"no entry for the transaction of producer {completed.producer_id} that was aborted at offset "
                f"{completed.last_offset}: its records would be served as committed",
                "stop the broker and remove the segment's .index: its recovery rebuilds the transaction index",
            )

    def _unanswered_aborts(self) -> Iterator[Finding]:
        index = self.expected.transaction_index
        if index is None or self.expected.open_transactions is None:
            return
        for entry in index.entries:
            if entry.last_offset not in self.aborted_seen:
                yield Damage(
                    self.expected.transaction_index_path or self.path,
                    None,
                    f"an entry for offset {entry.last_offset}, where producer {entry.producer_id} aborted nothing",
                    _INDEX_REMEDY,
                )

    def _damage(self, header: BatchHeader, problem: str) -> Damage:
        return Damage(
            self.path, header.position, problem, "a replica may have the segment intact; do not remove it before"
        )


def load_offset_index(path: Path, data: bytes, *, base_offset: int, is_active: bool) -> OffsetIndex:
    """Parse an offset index; only an active segment's may have unused room.

    Raises:
        CorruptIndexError: it is damaged.
    """
    index = OffsetIndex.from_bytes(data, base_offset, str(path))
    if not is_active and len(index) * 8 != len(data):
        raise CorruptIndexError(f"{path}: zeros at the end, which a broker takes for entries", remedy=_INDEX_REMEDY)
    return index


def load_time_index(path: Path, data: bytes, *, base_offset: int, is_active: bool) -> TimeIndex:
    """Parse a time index; only an active segment's may have unused room.

    Raises:
        CorruptIndexError: it is damaged.
    """
    index = TimeIndex.from_bytes(data, base_offset, str(path))
    if not is_active and len(index) * 12 != len(data):
        raise CorruptIndexError(f"{path}: zeros at the end, which a broker takes for entries", remedy=_INDEX_REMEDY)
    return index


def _batch_fields(header: BatchHeader, *, is_valid: bool) -> dict[str, JsonValue]:
    codec = header.attributes & 7
    names = ("none", "gzip", "snappy", "lz4", "zstd")
    fields: dict[str, JsonValue] = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count if header.record_count >= 0 else None,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon_ms,
        "position": header.position,
        "timestampType": header.timestamp_type,
        "maxTimestamp": header.max_timestamp_ms,
        "size": header.size_bytes,
        "magic": header.magic,
        "compresscodec": names[codec] if codec < len(names) else f"unknown ({codec})",
        "crc": header.crc,
        "isvalid": is_valid,
    }
    return fields


def _records(source: Source, header: BatchHeader) -> Iterator[Finding]:
    if header.size_bytes > _MAX_BATCH_BYTES:
        yield Damage(source.path, header.position, f"a batch of {header.size_bytes} bytes is too large to be opened")
        return
    batch = read_batch(source, header)
    try:
        for record in batch.records():
            yield Decoded("record", record_fields(record, is_control=header.is_control))
    except InvalidRecordError as error:
        yield Damage(source.path, error.position, str(error), error.remedy)


def record_fields(record: Record, *, is_control: bool = False) -> dict[str, JsonValue]:
    """A record in the form of ``tierd cat --json``."""
    headers: list[JsonValue] = [[name, _text(value)] for name, value in record.headers]
    fields: dict[str, JsonValue] = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": record.timestamp_type,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": headers,
        "leaderEpoch": record.leader_epoch,
    }
    return fields | ({"isControl": True} if is_control else {})


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()
