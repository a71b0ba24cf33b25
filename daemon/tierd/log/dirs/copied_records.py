"""Copies of the records of one log in another one, from an offset on. Blocking."""

from typing import Final

from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.record_batch import iter_batches

_READ_BYTES: Final = 1 << 20


def first_batch_from(log: UnifiedLog, offset: int) -> int | None:
    """Return the base offset of the batch that has ``offset`` or follows it; None without one.

    Raises:
        TierError: the log cannot be read there.
    """
    data = log.read(offset, max_bytes=0, isolation=None).records
    return next((batch.base_offset for batch in iter_batches(data, name=str(log.directory), check_crc=False)), None)


def copy_records(of: UnifiedLog, to: UnifiedLog, *, now_ms: int) -> bool:
    """Append the next records of ``of`` to ``to``, about 1 MiB; return False once it has all, which are then durable.

    Raises:
        CorruptRecordError: a batch is damaged.
        TierError: an error of either log.
    """
    at, size = to.log_end_offset, 0
    if at < of.log_end_offset:
        data = of.read(at, max_bytes=min(_READ_BYTES, of.config.segment_bytes), isolation=None).records
        for batch in iter_batches(data, name=str(of.directory), check_crc=False):  # the append checks it
            size = batch.position + batch.size_bytes
    if size:
        to.append_as_follower(data[:size], now_ms=now_ms)
        return True
    to.close()
    return False
