"""RecordRows: the fields of records that decide which records stay, as columns."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np

from tierd.errors import BatchTooLargeError
from tierd.kernels import Columns
from tierd.log import Record, RecordBatch, columns_of

MAX_OPENED_RECORDS: Final = 1 << 21
"""The columns of a record take some 200 bytes: of the smallest records, 256 MiB would take six GiB."""


class RecordRows(NamedTuple):
    """Records of a batch, or of several.

    Attributes:
        payload: bytes that hold the keys.
        offset: int64[n], ascending.
        timestamp_ms: int64[n].
        key_start: int32[n], in ``payload``.
        key_size: int32[n], -1 for null.
        value_size: int32[n], -1 for null.
    """

    payload: bytes | memoryview
    offset: np.ndarray
    timestamp_ms: np.ndarray
    key_start: np.ndarray
    key_size: np.ndarray
    value_size: np.ndarray

    @property
    def size(self) -> int:
        """Return the number of rows."""
        return self.offset.size

    @classmethod
    def of_columns(cls, payload: bytes | memoryview, columns: Columns) -> Self:
        """Return the rows that were decoded from ``payload``."""
        return cls(
            payload,
            np.asarray(columns.offset),
            np.asarray(columns.timestamp_ms),
            np.asarray(columns.key_start),
            np.asarray(columns.key_size),
            np.asarray(columns.value_size),
        )

    @classmethod
    def of_records(cls, records: Sequence[Record]) -> Self:
        """Return the rows of records that were decoded one by one, such as legacy records."""
        sizes = np.array([_size(record.key) for record in records], dtype=np.int32)
        ends = np.cumsum(np.maximum(sizes, 0), dtype=np.int32)
        return cls(
            b"".join(record.key or b"" for record in records),
            np.array([record.offset for record in records], dtype=np.int64),
            np.array([record.timestamp_ms for record in records], dtype=np.int64),
            ends - np.maximum(sizes, 0),
            sizes,
            np.array([_size(record.value) for record in records], dtype=np.int32),
        )

    def where(self, chosen: np.ndarray | slice) -> Self:
        """Return the rows of ``chosen``, bool[n] or a slice; the payload is shared."""
        payload, *columns = self
        return type(self)(payload, *(column[chosen] for column in columns))

    def key(self, index: int) -> bytes:
        """Return the key of a record that has one."""
        start = int(self.key_start[index])
        return bytes(self.payload[start : start + int(self.key_size[index])])


class Opened(NamedTuple):
    """Records of a batch.

    Attributes:
        rows: the fields of the records.
        records: the encoded records, not compressed, without the header; empty for a legacy batch.
    """

    rows: RecordRows
    records: bytes | memoryview


def open_batch(batch: RecordBatch) -> Opened:
    """Open a batch of any magic.

    Raises:
        BatchTooLargeError: the batch unpacks to too many bytes, or has more than ``MAX_OPENED_RECORDS`` records.
        InvalidRecordError: the records cannot be decoded.
    """
    if batch.record_count > MAX_OPENED_RECORDS:
        problem = f"a batch of {batch.record_count} records; tierd opens at most {MAX_OPENED_RECORDS} at once"
        raise BatchTooLargeError(batch.name, batch.position, problem)
    if batch.magic < 2:
        return Opened(RecordRows.of_records(list(batch.records())), b"")
    found = columns_of(batch)
    return Opened(RecordRows.of_columns(found.payload, found.columns), found.payload)


def _size(content: bytes | None) -> int:
    return -1 if content is None else len(content)
