"""NewBatch: the bytes of a batch in the output: copied, emptied or rewritten (log-format 9.6)."""

from dataclasses import dataclass, field
from itertools import compress
from typing import Self

import numpy as np

from tierd.errors import InvalidRecordError
from tierd.kernels import RecordFault, select_records
from tierd.log import BatchHeader, RecordBatch, empty_batch, rewrite_batch, upgrade_batch
from tierd.model import TimestampRange
from tierd.pipeline.rewriting.record_rows import Opened, RecordRows

_LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True)
class NewBatch:
    """Batch of the output, with the facts that indexes and counts need.

    Attributes:
        last_offset: of the header.
        max_timestamp_ms: of the header.
        timestamps: range of the records' and the header's timestamps; None without records, or where they are unknown.
    """

    data: bytes | bytearray | memoryview = field(repr=False)
    last_offset: int
    record_count: int
    max_timestamp_ms: int
    timestamps: TimestampRange | None

    @classmethod
    def copied(cls, batch: RecordBatch, rows: RecordRows | None) -> Self:
        """Return the batch byte for byte; ``rows`` is None for a control batch, whose record the header describes."""
        if rows is None:
            count, times = batch.record_count, np.array([batch.max_timestamp_ms])
        else:
            count, times = rows.size, rows.timestamp_ms
        max_ms = batch.max_timestamp_ms
        return cls(batch.data, batch.last_offset, count, max_ms, _range(times, max_ms) if count else None)

    @classmethod
    def unread(cls, batch: RecordBatch) -> Self:
        """Return an unopened batch byte for byte; a legacy header without a record count counts as one record."""
        return cls(batch.data, batch.last_offset, max(batch.record_count, 1), batch.max_timestamp_ms, None)

    @classmethod
    def emptied(cls, batch: BatchHeader, rows: RecordRows | None) -> Self:
        """Return the header alone; the base offset of a legacy batch is taken from ``rows``."""
        base_offset = batch.base_offset if batch.magic >= 2 or rows is None else int(rows.offset[0])
        data = empty_batch(batch, base_offset=base_offset)
        return cls(data, batch.last_offset, 0, batch.max_timestamp_ms, None)

    @classmethod
    def of_kept(cls, batch: RecordBatch, opened: Opened, keep: np.ndarray, horizon_ms: int | None) -> Self:
        """Return the kept records, at least one, in magic 2; ``horizon_ms`` if the batch gets a delete horizon now.

        Raises:
            InvalidRecordError: the records cannot be decoded, or magic 2 cannot express them.
        """
        if batch.magic < 2:
            return cls._upgraded(batch, keep, horizon_ms)
        return cls._rewritten(batch, opened, keep, horizon_ms)

    @classmethod
    def _upgraded(cls, batch: RecordBatch, keep: np.ndarray, horizon_ms: int | None) -> Self:
        kept = list(compress(batch.records(), keep.tolist()))
        is_appended = batch.timestamp_type == _LOG_APPEND_TIME
        times = np.array([record.timestamp_ms for record in kept])
        max_ms = batch.max_timestamp_ms if is_appended else int(times.max())
        data = upgrade_batch(batch, kept, delete_horizon_ms=horizon_ms)
        return cls(data, kept[-1].offset, len(kept), max_ms, _range(times, max_ms))

    @classmethod
    def _rewritten(cls, batch: RecordBatch, opened: Opened, keep: np.ndarray, horizon_ms: int | None) -> Self:
        kept_ms = opened.rows.timestamp_ms[keep]
        is_appended = batch.timestamp_type == _LOG_APPEND_TIME
        keeps_base = is_appended or batch.delete_horizon_ms is not None
        # otherwise the timestamp of the first record, as in Kafka's builder, which has no other
        base_ms = batch.base_timestamp_ms if keeps_base else int(kept_ms[0])
        base_ms = base_ms if horizon_ms is None else horizon_ms
        shift_ms = batch.base_timestamp_ms - base_ms
        records = select_records(opened.records, opened.rows.size, keep, timestamp_shift_ms=shift_ms)
        if isinstance(records, RecordFault):
            raise InvalidRecordError(batch.name, batch.position, records.problem)
        max_ms = batch.max_timestamp_ms if is_appended else max(-1, int(kept_ms.max()))
        data = rewrite_batch(
            batch,
            records,
            record_count=kept_ms.size,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=max_ms,
            has_delete_horizon=horizon_ms is not None or batch.delete_horizon_ms is not None,
        )
        return cls(data, batch.last_offset, kept_ms.size, max_ms, _range(kept_ms, max_ms))


def _range(times: np.ndarray, max_timestamp_ms: int) -> TimestampRange:
    """Return the range that covers the timestamps of records and header, so that a reader of either finds the batch."""
    return TimestampRange(min(int(times.min()), max_timestamp_ms), max(int(times.max()), max_timestamp_ms))
