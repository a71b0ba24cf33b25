"""Queries without a Spark session: the classes of the data source, as Spark calls them."""

import base64
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, Filter, InputPartition
from pyspark.sql.types import StructType

from tierd.arrow import TIMESTAMP_TYPES
from tierd.config import load_config
from tierd.metadata import OwnBranch
from tierd.model import Lineage
from tierd.pipeline.access import TierAccess
from tierd.pipeline.source.batch_reader import TierBatchReader
from tierd.pipeline.source.data_source import FilteringTieredLogDataSource, TieredLogDataSource
from tierd.pipeline.source.stream_reader import TierStreamReader

Row = Mapping[str, Any]
Reader = TierBatchReader | TierStreamReader
_TYPE_NAMES = {number: name for name, number in TIMESTAMP_TYPES.items()}


class Queries:
    """Queries of the tier of one installation."""

    def __init__(self, config_file: Path, **options: str) -> None:
        """Store the options of every query."""
        self.options = {"config": str(config_file), **options}

    def source(self, **options: str) -> TieredLogDataSource:
        """Return the source of a Spark that makes a reader for each scan."""
        return FilteringTieredLogDataSource(CaseInsensitiveDict({**self.options, **options}))

    def access(self) -> TierAccess:
        config_file = Path(self.options["config"])
        return TierAccess.from_config(load_config(config_file, {}), config_file)

    def remote_ends(self) -> dict[str, int]:
        """Return the exclusive end of the finished segments of every partition."""
        with self.access().open() as tier:
            found = {str(name): OwnBranch(tier.view(name), Lineage()).finished for name in tier.partitions()}
        return {name: finished[-1].end_offset + 1 for name, finished in found.items() if finished}

    def reader(self, schema: str | None = None, **options: str) -> TierBatchReader:
        source = self.source(**options)
        return source.reader(source.schema() if schema is None else as_struct(schema))

    def stream(self, **options: str) -> TierStreamReader:
        source = self.source(**options)
        return source.streamReader(source.schema())

    def batches(
        self, schema: str | None = None, filters: Sequence[Filter] = (), **options: str
    ) -> Iterator[pa.RecordBatch]:
        reader = self.reader(schema, **options)
        list(reader.pushFilters(list(filters)))
        yield from read_all(reader, reader.partitions())

    def rows(self, schema: str | None = None, filters: Sequence[Filter] = (), **options: str) -> list[Row]:
        return [row for batch in self.batches(schema, filters, **options) for row in batch.to_pylist()]


def as_struct(schema: str) -> StructType:
    parsed = StructType.fromDDL(schema)
    assert isinstance(parsed, StructType)
    return parsed


def read_all(reader: Reader, partitions: Sequence[InputPartition]) -> Iterator[pa.RecordBatch]:
    """Read every task, with reader and task pickled as Spark does it."""
    for partition in partitions:
        sent: tuple[Reader, InputPartition] = pickle.loads(pickle.dumps((reader, partition)))
        yield from sent[0].read(sent[1])


def as_oracle(row: Row) -> dict[str, Any]:
    """Return a row in the form of the oracles."""
    return {
        "offset": row["offset"],
        "timestamp": round(row["timestamp"].timestamp() * 1000),
        "timestampType": _TYPE_NAMES[row["timestampType"]],
        "key": _text(row["key"]),
        "value": _text(row["value"]),
        "headers": [[header["key"], _text(header["value"])] for header in row["headers"]],
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
