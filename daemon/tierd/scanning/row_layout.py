"""RowLayout: the columns of a read, and the size of its batches."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

import pyarrow as pa

from tierd.errors import ScanRequestError

ROW_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.dictionary(pa.int32(), pa.string())),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
        pa.field("leaderEpoch", pa.int32()),
    ]
)
"""The columns of Spark's Kafka source, in its order, and the leader epoch."""

BATCH_BYTES: Final = 16 << 20
_LEAST_BATCH_BYTES: Final = 1 << 10
_MOST_BATCH_BYTES: Final = 1 << 30  # a column of bytes holds 2 GiB, and a single record may come on top


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Columns and batch size of a read.

    Attributes:
        schema: the columns, some of ``ROW_SCHEMA``.
        batch_bytes: largest size of a batch, unless a single record is larger.
    """

    schema: pa.Schema = ROW_SCHEMA
    batch_bytes: int = BATCH_BYTES

    @classmethod
    def of(cls, columns: Iterable[str] | None, *, batch_bytes: int) -> Self:
        """Take the columns by their names, in the given order; None for all.

        Raises:
            ScanRequestError: there is no such column, one is named twice, none is named, or the size is not possible.
        """
        if not _LEAST_BATCH_BYTES <= batch_bytes <= _MOST_BATCH_BYTES:
            raise ScanRequestError(
                f"batch_bytes={batch_bytes} is not possible",
                remedy=f"give a size from {_LEAST_BATCH_BYTES} to {_MOST_BATCH_BYTES} bytes",
            )
        return cls(ROW_SCHEMA if columns is None else _chosen(columns), batch_bytes)

    def select(self, columns: Iterable[str]) -> Self:
        """Return the same layout with other columns.

        Raises:
            ScanRequestError: as ``of``.
        """
        return type(self)(_chosen(columns), self.batch_bytes)


def _chosen(columns: Iterable[str]) -> pa.Schema:
    names = [columns] if isinstance(columns, str) else list(columns)
    known = f"the columns are {', '.join(ROW_SCHEMA.names)}"
    for name in names:
        if name not in ROW_SCHEMA.names:
            near = difflib.get_close_matches(str(name), ROW_SCHEMA.names, n=1, cutoff=0.0)[0]
            raise ScanRequestError(f"there is no column {name}; the nearest is {near}", remedy=known)
    if not names or len(set(names)) < len(names):
        raise ScanRequestError("the list of columns is empty, or names a column twice", remedy=known)
    return pa.schema([ROW_SCHEMA.field(name) for name in names])
