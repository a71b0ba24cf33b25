"""One segment inspected: every batch decoded and checked, and its indexes held against the batches."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import CorruptIndexError, CorruptRecordError, InvalidRecordError
from tierd.log.broker.live_segment import data_end, used_bytes
from tierd.log.files.source import Source, open_source
from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import TransactionIndex
from tierd.log.inspection.findings import Damage, Decoded, Finding, JsonValue, Note
from tierd.log.loading.artefact_checks import EpochCheck, OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from tierd.log.producers.transactions import OpenTransactions
from tierd.log.records.batch_header import BatchHeader, crc_matches, iter_headers
from tierd.log.records.record import Record
from tierd.log.records.record_batch import read_batch
from tierd.model import Lineage

_MAX_BATCH_BYTES = 256 << 20
_INDEX_REMEDY = "the index can be rebuilt: stop the broker, remove the file, start it; or tierd repair"
_TRANSACTIONS_REMEDY = (
    "stop the broker and remove the segment's .index: its recovery rebuilds the transaction index; or tierd repair"
)


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


def inspect_segment(
    path: Path, expected: SegmentExpectations, *, records: bool, deep: bool = False
) -> Iterator[Finding]:
    """Decode and check a log file; goes on behind a batch whose checksum is wrong, stops where no batch begins.

    Args:
        path: the file.
        expected: what it is held against.
        records: decode the records of sound batches, and say what they are.
        deep: decode them, and say what is wrong with them.

    Raises:
        SegmentChangedError: the file vanished.
        LogDirOfflineError: it cannot be read.
    """
    with open_source(path) as source:
        walk = _Walk(path, expected)
        is_rolled = expected.next_base_offset is not None
        used = source.size_bytes if is_rolled else used_bytes(source)
        end, limit = 0, data_end(source, used)
        try:
            for header in iter_headers(source, end=limit, may_be_torn=False):
                end = header.end_position
                is_valid = crc_matches(source, header)
                yield Decoded("batch", _batch_fields(header, is_valid=is_valid))
                yield from walk.check(source, header, is_valid=is_valid)
                if (records or deep) and is_valid:
                    findings = _records(source, header)
                    yield from findings if records else (each for each in findings if isinstance(each, Damage))
        except CorruptRecordError as error:
            yield Damage(path, error.position, str(error), error.remedy)
        yield from walk.finish(end, limit)
        if limit < source.size_bytes:
            yield from _room(source, limit, used)


def _room(source: Source, end: int, used: int) -> Iterator[Finding]:
    """Describe what follows the data of a file that ends with zeros."""
    if end < used:
        problem = f"an incomplete batch, {used - end} bytes, and then only zeros"
        yield Damage(source.path, end, problem, "a broker that is writing completes it, one that starts cuts it off")
    room = source.size_bytes - max(end, used)
    yield Note(source.path, f"{room} bytes of unused room behind the data (preallocate=true)")


class _Walk:
    def __init__(self, path: Path, expected: SegmentExpectations) -> None:
        self.path = path
        self.expected = expected
        self.next_offset = -1
        self._epochs = None if expected.lineage is None else EpochCheck(expected.lineage)
        self._offsets = None if expected.offset_index is None else OffsetIndexCheck(expected.offset_index)
        self._times = None if expected.time_index is None else TimeIndexCheck(expected.time_index)
        index = None if expected.open_transactions is None else expected.transaction_index
        self._aborted = None if index is None else TransactionIndexCheck(index)

    def check(self, source: Source, header: BatchHeader, *, is_valid: bool) -> Iterator[Finding]:
        if not is_valid:
            yield self._damage(header, "wrong checksum of the batch")
        if header.base_offset < max(self.next_offset, self.expected.base_offset):
            yield self._damage(header, f"offset {header.base_offset} is not above those before it")
        bound = self.expected.next_base_offset
        if bound is not None and header.last_offset >= bound:
            yield self._damage(header, f"offset {header.last_offset} belongs to the next segment")
        self.next_offset = header.last_offset + 1
        if self._epochs and (problem := self._epochs.follow(header)):
            yield self._damage(header, problem)
        if self._offsets and (problem := self._offsets.follow(header)):
            yield self._index_damage(self.expected.offset_index_path, problem)
        if self._times and (problem := self._times.follow(header)):
            yield self._index_damage(self.expected.time_index_path, problem)
        if is_valid:
            yield from self._check_transactions(source, header)

    def finish(self, end: int, size_bytes: int) -> Iterator[Finding]:
        """Report what no batch answered to; silent about indexes when the walk did not reach the end of the file."""
        if end != size_bytes:
            return
        if self._offsets and (problem := self._offsets.finish()):
            yield self._index_damage(self.expected.offset_index_path, problem)
        if self._times and (problem := self._times.finish()):
            yield self._index_damage(self.expected.time_index_path, problem)
        for problem in self._aborted.finish() if self._aborted else ():
            yield self._index_damage(self.expected.transaction_index_path, problem)

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
        if self._aborted and (problem := self._aborted.follow(header, kind, completed)):
            yield self._index_damage(self.expected.transaction_index_path, problem, _TRANSACTIONS_REMEDY)

    def _damage(self, header: BatchHeader, problem: str) -> Damage:
        return Damage(
            self.path, header.position, problem, "a replica may have the segment intact; do not remove it before"
        )

    def _index_damage(self, path: Path | None, problem: str, remedy: str = "") -> Damage:
        return Damage(path or self.path, None, problem, remedy or _INDEX_REMEDY)


def load_offset_index(path: Path, data: bytes, *, base_offset: int, is_active: bool) -> OffsetIndex:
    """Parse an offset index; only an active segment's may have unused room.

    Raises:
        CorruptIndexError: it is damaged.
    """
    index = OffsetIndex.from_bytes(data, base_offset, str(path))
    if not is_active and index.size_bytes != len(data):
        raise CorruptIndexError(f"{path}: zeros at the end, which a broker takes for entries", remedy=_INDEX_REMEDY)
    return index


def load_time_index(path: Path, data: bytes, *, base_offset: int, is_active: bool) -> TimeIndex:
    """Parse a time index; only an active segment's may have unused room.

    Raises:
        CorruptIndexError: it is damaged.
    """
    index = TimeIndex.from_bytes(data, base_offset, str(path))
    if not is_active and index.size_bytes != len(data):
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
    batch, previous = read_batch(source, header), -1
    try:
        for record in batch.records():
            if not max(previous + 1, _lowest(header)) <= record.offset <= header.last_offset:
                problem = (
                    f"a record of offset {record.offset} in the batch of {header.base_offset} to {header.last_offset}"
                )
                yield Damage(source.path, header.position, problem, "a replica may have the segment intact")
            previous = record.offset
            yield Decoded("record", record_fields(record, is_control=header.is_control))
    except InvalidRecordError as error:
        yield Damage(source.path, error.position, str(error), error.remedy)


def _lowest(header: BatchHeader) -> int:
    """The smallest offset that a record may have; a legacy wrapper only tells its last."""
    return header.base_offset if header.magic >= 2 else 0


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
