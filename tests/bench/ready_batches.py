"""Data source that does nothing but hand over batches that are ready: the most that any source in Python can reach."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import repeat

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_KEY_BYTES = 16


class ReadyBatches(DataSource):
    """Rows of a key, a value, an offset and a timestamp, in equal batches.

    Options: ``tasks``, ``batches`` of each task, ``rows`` of each batch, ``value_bytes``.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "ready"

    def schema(self) -> str:
        """Return the columns of a row."""
        return "key binary, value binary, offset long, timestamp timestamp"

    def reader(self, schema: StructType) -> "ReadyReader":
        """Return the reader of a query."""
        return ReadyReader(schema, self.options)


class ReadyReader(DataSourceReader):
    """Reader whose tasks yield one batch many times; a worker makes the batch once."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = to_arrow_schema(schema, timezone="UTC")
        names = ("tasks", "batches", "rows", "value_bytes")
        self._tasks, self._batches, self._rows, self._value_bytes = (int(options[name]) for name in names)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        return [InputPartition(n) for n in range(self._tasks)]

    def read(self, _: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task."""
        batch = _batch(self._schema, self._rows, self._value_bytes)
        yield from repeat(batch, self._batches)


@cache
def _batch(schema: pa.Schema, rows: int, value_bytes: int) -> pa.RecordBatch:
    numbers = np.arange(rows)
    columns = [
        *(_fields(rows, size) for size in (_KEY_BYTES, value_bytes)),
        pa.array(numbers),
        pa.array(numbers * 1_000, type=schema.field("timestamp").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _fields(count: int, size: int) -> pa.BinaryArray:
    data = np.random.default_rng(0).bytes(count * size)
    return pa.array([data[at : at + size] for at in range(0, len(data), size)])
