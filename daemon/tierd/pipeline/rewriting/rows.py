"""RecordRows: the fields of a batch's records that decide about them, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from tierd.log import Record, RecordBatch, columns_of


@dataclass(frozen=True, slots=True)
class RecordRows:
    """The records of one batch.

    Attributes:
        payload: what holds the keys.
        offset: int64[n], ascending.
        timestamp_ms: int64[n].
        key_start: int32[n], in ``payload``.
        key_size: int32[n], -1 for null.
        value_size: int32[n], -1 for null.
    """

    payload: bytes | memoryview = field(repr=False)
    offset: np.ndarray
    timestamp_ms: np.ndarray
    key_start: np.ndarray
    key_size: np.ndarray
    value_size: np.ndarray

    def __len__(self) -> int:
        return self.offset.size

    @classmethod
    def of_batch(cls, batch: RecordBatch) -> Self:
        """Decode a batch of magic 2.

        Raises:
            InvalidRecordError: its records cannot be decoded.
        """
        records = columns_of(batch)
        columns = records.columns
        return cls(
            records.payload,
            np.asarray(columns.offset),
            np.asarray(columns.timestamp_ms),
            np.asarray(columns.key_start),
            np.asarray(columns.key_size),
            np.asarray(columns.value_size),
        )

    @classmethod
    def of_records(cls, records: Sequence[Record]) -> Self:
        """The rows of records that were decoded one by one: legacy ones."""
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

    def key(self, index: int) -> bytes:
        """The key of a record that has one."""
        start = int(self.key_start[index])
        return bytes(self.payload[start : start + int(self.key_size[index])])


def rows_of(batch: RecordBatch) -> RecordRows:
    """The rows of a batch of any magic.

    Raises:
        InvalidRecordError: its records cannot be decoded.
    """
    return RecordRows.of_batch(batch) if batch.magic >= 2 else RecordRows.of_records(list(batch.records()))


def _size(content: bytes | None) -> int:
    return -1 if content is None else len(content)
