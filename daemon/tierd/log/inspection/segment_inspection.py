"""Inspection of one segment: decodes and checks every batch, and compares the indexes with the batches."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tierd.errors import CorruptIndexError, InvalidRecordError
from tierd.log.broker.live_segment import data_end, used_bytes
from tierd.log.files.source import Source, open_source
from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import TransactionIndex
from tierd.log.inspection.inspection_findings import Damage, Decoded, InspectionFinding, JsonValue, Note
from tierd.log.loading.artefact_checks import EpochCheck, OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from tierd.log.producers.transactions import OpenTransactions
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.batch_walk import BatchFault, DamagedBatch, NoBatch, walk
from tierd.log.records.record import Record
from tierd.log.records.record_batch import read_batch
from tierd.model import Lineage

IndexT = TypeVar("IndexT", OffsetIndex, TimeIndex)

_MAX_BATCH_BYTES = 256 << 20
_INDEX_REMEDY = "the index can be rebuilt: stop the broker, remove the file, start it; or tierd repair"
_TRANSACTIONS_REMEDY = (
    "stop the broker and remove the segment's .index: its recovery rebuilds the transaction index; or tierd repair"
)


@dataclass(slots=True)
class SegmentExpectations:
    """The facts that the batches of a segment have to agree with. Every part may be left out.

    Attributes:
        next_base_offset: exclusive; None when there is no next segment.
        log_start_offset: of the log; the leader epochs of batches below it may be forgotten.
        lineage: the leader epochs of the log; None when epochs are not checked.
        open_transactions: open at the start of the segment, and changed by its inspection; None when transactions are
            not checked.
    """

    base_offset: int = 0
    next_base_offset: int | None = None
    log_start_offset: int = 0
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
) -> Iterator[InspectionFinding]:
    """Decode and check a log file. The inspection goes on behind a damaged batch, and stops where no batch begins.

    Args:
        path: the log file.
        expected: facts that the batches have to agree with.
        records: decode the records of batches with a right checksum, and report each record.
        deep: decode the records of batches with a right checksum, and report those that are damaged.

    Raises:
        SegmentChangedError: the file vanished.
        LogDirOfflineError: the file cannot be read.
    """
    with open_source(path) as source:
        checks = _BatchChecks(path, expected)
        is_rolled = expected.next_base_offset is not None
        used = source.size_bytes if is_rolled else used_bytes(source)
        end, limit = 0, data_end(source, used)
        for found in walk(
            source, base_offset=expected.base_offset, next_base_offset=expected.next_base_offset, end=limit
        ):
            faults: tuple[BatchFault, ...] = ()
            match found:
                case BatchHeader():
                    header = found
                case DamagedBatch():
                    header, faults = found.header, found.faults
                case NoBatch(error):
                    yield Damage(path, error.position, str(error), error.remedy)
                    break
            end, is_valid = header.end_position, BatchFault.CHECKSUM not in faults
            yield Decoded("batch", _batch_fields(header, is_valid=is_valid))
            yield from checks.check(source, header, faults)
            if (records or deep) and is_valid:
                findings = _records(source, header)
                yield from findings if records else (each for each in findings if isinstance(each, Damage))
        yield from checks.finish(end, limit)
        if limit < source.size_bytes:
            yield from _room(source, limit, used)


def _room(source: Source, end: int, used: int) -> Iterator[InspectionFinding]:
    """Describe the bytes behind the data of a file that ends with zeros."""
    if end < used:
        problem = f"an incomplete batch, {used - end} bytes, and then only zeros"
        yield Damage(source.path, end, problem, "a broker that is writing completes it, one that starts cuts it off")
    room = source.size_bytes - max(end, used)
    yield Note(source.path, f"{room} bytes of unused room behind the data (preallocate=true)")


class _BatchChecks:
    """Checks of one batch after the other, beyond the faults that the walk finds."""

    def __init__(self, path: Path, expected: SegmentExpectations) -> None:
        self.path = path
        self.expected = expected
        self._epochs = None if expected.lineage is None else EpochCheck(expected.lineage)
        self._offsets = None if expected.offset_index is None else OffsetIndexCheck(expected.offset_index)
        self._times = None if expected.time_index is None else TimeIndexCheck(expected.time_index)
        index = None if expected.open_transactions is None else expected.transaction_index
        self._aborted = None if index is None else TransactionIndexCheck(index)

    def check(self, source: Source, header: BatchHeader, faults: Sequence[BatchFault]) -> Iterator[InspectionFinding]:
        """Report the faults of the next batch, and contradictions to the indexes and leader epochs."""
        for fault in faults:
            if problem := _problem_of(fault, header):
                yield self._damage(header, problem)
        is_visible = header.last_offset >= self.expected.log_start_offset
        if self._epochs and is_visible and (problem := self._epochs.follow(header)):
            yield self._damage(header, problem)
        if self._offsets and (problem := self._offsets.follow(header)):
            yield self._index_damage(self.expected.offset_index_path, problem)
        if self._times and (problem := self._times.follow(header)):
            yield self._index_damage(self.expected.time_index_path, problem)
        if BatchFault.CHECKSUM not in faults:
            yield from self._check_transactions(source, header)

    def finish(self, end: int, size_bytes: int) -> Iterator[InspectionFinding]:
        """Report index entries without a batch; nothing when the walk did not reach the end of the file."""
        if end != size_bytes:
            return
        if self._offsets and (problem := self._offsets.finish()):
            yield self._index_damage(self.expected.offset_index_path, problem)
        if self._times and (problem := self._times.finish()):
            yield self._index_damage(self.expected.time_index_path, problem)
        for problem in self._aborted.finish() if self._aborted else ():
            yield self._index_damage(self.expected.transaction_index_path, problem)

    def _check_transactions(self, source: Source, header: BatchHeader) -> Iterator[InspectionFinding]:
        state = self.expected.open_transactions
        if state is None or not header.is_transactional:
            return
        if not header.is_control and not header.record_count:
            return  # compaction emptied the batch, and the index may have lost the entry of its transaction
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


def _problem_of(fault: BatchFault, header: BatchHeader) -> str | None:
    """Describe a fault of a batch; None for an offset that is far from the base, which readers can read."""
    match fault:
        case BatchFault.CHECKSUM:
            return "wrong checksum of the batch"
        case BatchFault.OFFSET_AGAIN:
            return f"offset {header.base_offset} is not above those before it"
        case BatchFault.OFFSET_OF_NEXT_SEGMENT:
            return f"offset {header.last_offset} belongs to the next segment"
        case BatchFault.OFFSET_TOO_FAR:
            return None


def load_index(kind: type[IndexT], path: Path, data: bytes, *, base_offset: int, is_active: bool) -> IndexT:
    """Parse an offset or time index. Only the index of an active segment may have unused room.

    Raises:
        CorruptIndexError: the index is damaged.
    """
    index = kind.from_bytes(data, base_offset, str(path))
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


def _records(source: Source, header: BatchHeader) -> Iterator[InspectionFinding]:
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
    """Return the smallest offset that a record may have. A legacy wrapper has only its last offset."""
    return header.base_offset if header.magic >= 2 else 0


def record_fields(record: Record, *, is_control: bool = False) -> dict[str, JsonValue]:
    """Return a record in the form of ``tierd cat --json``."""
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
