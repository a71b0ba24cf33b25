"""Conversion of decoded records to Arrow batches with the columns that a query asked for; no other column is made."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from tierd.errors import InvalidRecordError
from tierd.kernels import Gathered, GatheredHeaders, gather, gather_headers
from tierd.log import BatchRun, Record, RecordColumns
from tierd.model import TopicPartition
from tierd.pipeline.pipeline_errors import ReadOptionError

Int32s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int32]]
Int64s: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
ArrowArray: TypeAlias = "pa.Array[Any]"  # of whatever type the schema has there

TIMESTAMP_TYPES: Final = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
_BATCH_BYTES: Final = 16 << 20  # of keys, values and headers in one Arrow batch, unless a single record has more
_MS_US: Final = 1_000
_LARGEST_MS: Final = ((1 << 63) - 1) // _MS_US


class Chosen(NamedTuple):
    """Chosen records of some columns.

    Attributes:
        columns: the records.
        rows: places of the chosen records, ascending; None: all.
        timestamp_type: of each chosen record, or of all.
    """

    columns: RecordColumns
    rows: Int64s | None
    timestamp_type: int | Int32s

    def __len__(self) -> int:
        return len(self.columns) if self.rows is None else len(self.rows)

    def numbers(self, column: memoryview) -> "np.ndarray[tuple[int], np.dtype[np.int64 | np.int32]]":
        """Return the values of ``column`` for the chosen records."""
        whole = np.asarray(column)
        return whole if self.rows is None else whole[self.rows]


class ArrowRows:
    """Maker of the Arrow batches of one partition."""

    def __init__(self, schema: pa.Schema, name: TopicPartition) -> None:
        """Prepare to make rows of ``schema``, whose columns are among those of the source."""
        self._schema = schema
        self._name = name

    def batches(self, chosen: Chosen) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, in batches of bounded size."""
        for part in _bounded(chosen, self._schema.names):
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
            "timestamp": lambda r: _require_expressible(r.timestamp_ms, self._name) * _MS_US,
            "timestampType": lambda r: TIMESTAMP_TYPES[r.timestamp_type],
            "headers": lambda r: [{"key": key, "value": value} for key, value in r.headers],
        }
        columns = [pa.array([values[f.name](r) for r in records], type=f.type) for f in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def timestamp_types(runs: list[BatchRun], rows: Int64s | None) -> int | Int32s:
    """Return the timestamp types of some records, as Spark's Kafka source numbers them."""
    kinds = [int(run.is_log_append_time) for run in runs]
    if len(set(kinds)) <= 1:
        return kinds[0] if kinds else 0
    each = np.repeat(np.array(kinds, dtype=np.int32), [run.end - run.first for run in runs])
    return each if rows is None else each[rows]


def _bounded(chosen: Chosen, names: list[str]) -> Iterator[Chosen]:
    """Cut ``chosen`` so that no part has many more bytes than ``_BATCH_BYTES``."""
    if len(memoryview(chosen.columns.payload)) <= _BATCH_BYTES or not {"key", "value", "headers"} & set(names):
        if len(chosen):
            yield chosen
        return
    rows = np.arange(len(chosen.columns)) if chosen.rows is None else chosen.rows
    starts = np.asarray(chosen.columns.columns.key_start)
    ends = np.append(starts[1:], chosen.columns.columns.end)
    filled = np.cumsum((ends - starts)[rows]) // _BATCH_BYTES
    for places in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(filled)) + 1):
        if len(places):
            types = chosen.timestamp_type
            yield Chosen(chosen.columns, rows[places], types if isinstance(types, int) else types[places])


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
        _require_expressible(extreme_ms, name)
    micros = times_ms * _MS_US
    return pa.Array.from_buffers(kind, len(micros), [None, _buffer(micros)], null_count=0)


def _require_expressible(timestamp_ms: int, name: TopicPartition) -> int:
    """Return ``timestamp_ms``, which must be expressible in microseconds.

    Raises:
        ReadOptionError: it is not; a producer gave nanoseconds, perhaps.
    """
    if abs(timestamp_ms) > _LARGEST_MS:
        raise ReadOptionError(
            f"{name} has a record of {timestamp_ms} ms since the epoch, which no timestamp of Spark can express",
            remedy="leave it out with a filter, or read without the column timestamp: name the others in schema()",
        )
    return timestamp_ms


def _timestamp_type(chosen: Chosen, kind: pa.DataType, _: TopicPartition) -> ArrowArray:
    if isinstance(chosen.timestamp_type, int):
        return _repeated(chosen.timestamp_type, kind, len(chosen))
    return pa.array(chosen.timestamp_type, type=kind)


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


def _repeated(value: str | int, kind: pa.DataType, count: int) -> ArrowArray:
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
}
