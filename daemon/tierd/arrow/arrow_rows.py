"""Conversion of decoded records to Arrow batches with the columns that a query asked for; no other column is made."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from tierd.arrow.wanted_records import Chosen, Int32s, WantedRecords
from tierd.errors import InvalidRecordError, TierError
from tierd.kernels import Gathered, GatheredHeaders, gather, gather_headers
from tierd.log import Record, RecordBatch, RecordColumns, iter_piece_columns
from tierd.model import TopicPartition

ArrowArray: TypeAlias = "pa.Array[Any]"  # of whatever type the schema has there

TIMESTAMP_TYPES: Final = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
BATCH_BYTES: Final = 16 << 20
_PER_MS: Final = {"ms": 1, "us": 1_000}  # units of a timestamp column in a millisecond
_LARGEST: Final = (1 << 63) - 1
_LEGACY_RECORDS: Final = 1 << 13


class TimestampNotExpressibleError(TierError, ValueError):
    """A record has a timestamp that the column of the timestamps cannot hold."""


class ArrowRows:
    """Maker of the Arrow batches of one partition."""

    def __init__(self, schema: pa.Schema, name: TopicPartition, *, batch_bytes: int = BATCH_BYTES) -> None:
        """Prepare to make rows.

        Args:
            schema: the columns of the rows, which are among those of the readers.
            name: the partition.
            batch_bytes: limit of keys, values and headers in one Arrow batch, unless a single record has more.
        """
        self._schema = schema
        self._name = name
        self._batch_bytes = batch_bytes
        self._has_payload = not {"key", "value", "headers"}.isdisjoint(schema.names)

    def batches(self, chosen: Chosen) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, in batches of bounded size."""
        for part in self._bounded(chosen):
            columns = [_MAKERS[field.name](part, field.type, self._name) for field in self._schema]
            if columns:
                yield pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def of_records(self, records: list[Record]) -> pa.RecordBatch:
        """Return the rows of records that were decoded one by one, such as legacy records."""
        values: Mapping[str, Callable[[Record], object]] = {
            "key": lambda r: r.key,
            "value": lambda r: r.value,
            "topic": lambda _: self._name.topic,
            "partition": lambda _: self._name.partition,
            "offset": lambda r: r.offset,
            "timestamp": lambda r: _in_unit(r.timestamp_ms, self._schema.field("timestamp").type, self._name),
            "timestampType": lambda r: TIMESTAMP_TYPES[r.timestamp_type],
            "headers": lambda r: [{"key": key, "value": value} for key, value in r.headers],
            "leaderEpoch": lambda r: _known_epoch(r.leader_epoch),
        }
        columns = [pa.array([values[f.name](r) for r in records], type=f.type) for f in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _bounded(self, chosen: Chosen) -> Iterator[Chosen]:
        """Cut ``chosen`` so that no part has many more bytes than a batch may have."""
        if len(memoryview(chosen.columns.payload)) <= self._batch_bytes or not self._has_payload:
            if len(chosen):
                yield chosen
            return
        rows = np.arange(len(chosen.columns)) if chosen.rows is None else chosen.rows
        starts = np.asarray(chosen.columns.columns.key_start)
        ends = np.append(starts[1:], chosen.columns.columns.end)
        filled = np.cumsum((ends - starts)[rows]) // self._batch_bytes
        for places in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(filled)) + 1):
            if len(places):
                yield Chosen(chosen.columns, rows[places], chosen.runs)


def _key(chosen: Chosen, kind: pa.DataType, _: TopicPartition) -> ArrowArray:
    columns = chosen.columns.columns
    starts, sizes = chosen.numbers(columns.key_start), chosen.numbers(columns.key_size)
    return _binary(gather(chosen.columns.payload, starts, sizes), kind, has_nulls=bool(sizes.min() < 0))


def _value(chosen: Chosen, kind: pa.DataType, _: TopicPartition) -> ArrowArray:
    columns = chosen.columns.columns
    starts, sizes = chosen.numbers(columns.value_start), chosen.numbers(columns.value_size)
    return _binary(gather(chosen.columns.payload, starts, sizes), kind, has_nulls=bool(sizes.min() < 0))


def _topic(chosen: Chosen, kind: pa.DataType, name: TopicPartition) -> ArrowArray:
    return _repeated(name.topic, kind, len(chosen))


def _partition(chosen: Chosen, kind: pa.DataType, name: TopicPartition) -> ArrowArray:
    return _repeated(name.partition, kind, len(chosen))


def _offset(chosen: Chosen, kind: pa.DataType, _: TopicPartition) -> ArrowArray:
    return pa.array(chosen.numbers(chosen.columns.columns.offset), type=kind)


def _timestamp(chosen: Chosen, kind: pa.DataType, name: TopicPartition) -> ArrowArray:
    times_ms = chosen.numbers(chosen.columns.columns.timestamp_ms)
    for extreme_ms in (int(times_ms.min()), int(times_ms.max())):
        _in_unit(extreme_ms, kind, name)
    times = times_ms * _per_ms(kind)
    return pa.Array.from_buffers(kind, len(times), [None, _buffer(times)], null_count=0)


def _per_ms(kind: pa.DataType) -> int:
    assert isinstance(kind, pa.TimestampType), "the schema has a timestamp there"
    return _PER_MS[kind.unit]


def _in_unit(timestamp_ms: int, kind: pa.DataType, name: TopicPartition) -> int:
    """Return ``timestamp_ms`` in the unit of the column.

    Raises:
        TimestampNotExpressibleError: the column cannot hold it; a producer gave nanoseconds, perhaps.
    """
    times = timestamp_ms * _per_ms(kind)
    if abs(times) > _LARGEST:
        raise TimestampNotExpressibleError(
            f"{name} has a record of {timestamp_ms} ms since the epoch, which no column of type {kind} can hold",
            remedy="read without the column timestamp",
        )
    return times


def _timestamp_type(chosen: Chosen, kind: pa.DataType, _: TopicPartition) -> ArrowArray:
    return _of_batches(chosen.of_batches(lambda run: int(run.is_log_append_time)), kind, len(chosen))


def _leader_epoch(chosen: Chosen, kind: pa.DataType, _: TopicPartition) -> ArrowArray:
    epochs = chosen.of_batches(lambda run: run.leader_epoch)
    if isinstance(epochs, int):
        return _repeated(_known_epoch(epochs), kind, len(chosen))
    return pa.array(epochs, mask=epochs < 0, type=kind)


def _known_epoch(leader_epoch: int) -> int | None:
    return None if leader_epoch < 0 else leader_epoch


def _of_batches(values: int | Int32s, kind: pa.DataType, count: int) -> ArrowArray:
    return _repeated(values, kind, count) if isinstance(values, int) else pa.array(values, type=kind)


def _headers(chosen: Chosen, kind: pa.DataType, _: TopicPartition) -> ArrowArray:
    columns, payload = chosen.columns.columns, chosen.columns.payload
    found = gather_headers(payload, chosen.numbers(columns.headers_start), chosen.numbers(columns.header_count))
    if not isinstance(found, GatheredHeaders):
        batch = chosen.columns.batch(0)
        raise InvalidRecordError(batch.name, batch.position, found.problem)
    assert isinstance(kind, pa.ListType), "the schema of the source has a list there"
    struct = kind.value_type
    assert isinstance(struct, pa.StructType), "of structs"
    fields = [
        _binary(found.keys, struct.field(0).type, has_nulls=False),
        _binary(found.values, struct.field(1).type, has_nulls=True),
    ]
    structs = pa.Array.from_buffers(struct, len(fields[0]), [None], null_count=0, children=fields)
    offsets = _buffer(found.offsets)
    return pa.Array.from_buffers(kind, len(chosen), [None, offsets], null_count=0, children=[structs])


def _repeated(value: str | int | None, kind: pa.DataType, count: int) -> ArrowArray:
    if isinstance(kind, pa.DictionaryType):
        return pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), pa.array([value], type=kind.value_type))
    scalar: Any = pa.scalar(value, type=kind)
    repeated: ArrowArray = pa.repeat(scalar, count)
    return repeated


def _buffer(values: "np.ndarray[Any, Any]") -> pa.Buffer:
    return pa.py_buffer(values.data)


def _binary(gathered: Gathered, kind: pa.DataType, *, has_nulls: bool) -> ArrowArray:
    validity = _buffer(gathered.validity) if has_nulls else None
    buffers = [validity, _buffer(gathered.offsets), _buffer(gathered.data)]
    return pa.Array.from_buffers(kind, len(gathered.offsets) - 1, buffers, null_count=-1 if has_nulls else 0)


_MAKERS: Final[Mapping[str, Callable[[Chosen, pa.DataType, TopicPartition], ArrowArray]]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
    "leaderEpoch": _leader_epoch,
}


def rows_of_pieces(
    pieces: Iterable[bytes | memoryview],
    wanted: WantedRecords,
    rows: ArrowRows,
    *,
    name: str,
    position: int,
    check_crc: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of a log as rows, in order of their offsets.

    Args:
        pieces: consecutive bytes that begin with a batch and end with a whole one, each below 1 GiB.
        wanted: the choice.
        rows: maker of the rows.
        name: the file, for errors.
        position: where in the file the first piece begins.
        check_crc: refuse a batch whose bytes do not have its checksum.

    Raises:
        BatchTooLargeError: a batch that is wanted unpacks to more than tierd opens.
        CorruptRecordError: an impossible header, a wrong checksum, records that cannot be decoded, an incomplete batch.
    """
    found = iter_piece_columns(pieces, name=name, position=position, check_crc=check_crc, wanted=wanted.may_want)
    for each in found:
        if isinstance(each, RecordColumns):
            yield from rows.batches(wanted.choose(each))
        else:
            yield from _legacy_rows(each, wanted, rows)


def _legacy_rows(entry: RecordBatch, wanted: WantedRecords, rows: ArrowRows) -> Iterator[pa.RecordBatch]:
    records = [record for record in entry.records() if wanted.wants(record.offset, record.timestamp_ms)]
    for first in range(0, len(records), _LEGACY_RECORDS):
        yield rows.of_records(records[first : first + _LEGACY_RECORDS])
