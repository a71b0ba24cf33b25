"""Changes in a batch's bytes without opening its records (log-format 2.2; Kafka: MutableRecordBatch).

Each function takes exactly one batch, in a ``bytearray`` or a writable view; of a legacy format one entry.
"""

import struct
import zlib

from tierd.errors import TierErrorCode
from tierd.log.log_errors import AppendError
from tierd.log.records.batch_header import (
    CRC_START_LEGACY,
    FLAGS_AT,
    HAS_DELETE_HORIZON,
    IS_LOG_APPEND_TIME,
    IS_TRANSACTIONAL,
    LOG_OVERHEAD_BYTES,
    MAGIC_END,
    OVERHEAD_BYTES,
    stamp_crc,
)
from tierd.log.records.log_config import TimestampType

BatchBytes = bytearray | memoryview

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_TIMESTAMP = struct.Struct(">q")
_CRC = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")  # id, epoch, sequence

_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_LAST_OFFSET_DELTA_AT = 23
_MAX_TIMESTAMP_AT = 35
_PRODUCER_AT = 43
_LEGACY_CRC_AT = 12
_LEGACY_FLAGS_AT = 17
_LEGACY_TIMESTAMP_AT = 18


def set_last_offset(batch: BatchBytes, offset: int) -> None:
    """Move the batch so that it ends at ``offset``; the checksum does not cover it.

    Raises:
        ValueError: the batch would begin below 0.
    """
    delta = _LAST_OFFSET_DELTA.unpack_from(batch, _LAST_OFFSET_DELTA_AT)[0] if _magic(batch) >= 2 else 0
    if offset < delta:
        raise ValueError(f"a batch of {delta + 1} offsets cannot end at {offset}")
    _BASE_OFFSET.pack_into(batch, 0, offset - delta)


def set_leader_epoch(batch: BatchBytes, epoch: int) -> None:
    """Write the leader's epoch into the header, where no checksum covers it.

    Raises:
        AppendError: a legacy entry has no place for it.
    """
    magic = _magic(batch)
    if magic < 2:
        raise AppendError(f"magic {magic} has no leader epoch", code=TierErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    _LEADER_EPOCH.pack_into(batch, _LEADER_EPOCH_AT, epoch)


def set_max_timestamp(batch: BatchBytes, timestamp_type: TimestampType, timestamp_ms: int) -> None:
    """Say who stamped the batch, and its largest timestamp; the checksum is computed anew only if either changes.

    Base timestamp and deltas stay: under CreateTime the records keep theirs, under LogAppendTime readers ignore them.

    Raises:
        AppendError: magic 0 has no timestamps.
    """
    magic = _magic(batch)
    if magic == 0:
        raise AppendError("magic 0 has no timestamps", code=TierErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    flags_at, timestamp_at = (FLAGS_AT, _MAX_TIMESTAMP_AT) if magic >= 2 else (_LEGACY_FLAGS_AT, _LEGACY_TIMESTAMP_AT)
    flags = batch[flags_at] & ~IS_LOG_APPEND_TIME
    flags |= IS_LOG_APPEND_TIME if timestamp_type is TimestampType.LOG_APPEND_TIME else 0
    if batch[flags_at] == flags and _TIMESTAMP.unpack_from(batch, timestamp_at)[0] == timestamp_ms:
        return
    batch[flags_at] = flags
    _TIMESTAMP.pack_into(batch, timestamp_at, timestamp_ms)
    if magic >= 2:
        stamp_crc(batch)
    else:
        _CRC.pack_into(batch, _LEGACY_CRC_AT, zlib.crc32(memoryview(batch)[CRC_START_LEGACY:]))


def _magic(batch: BatchBytes) -> int:
    size = len(batch)
    length = int.from_bytes(batch[8:LOG_OVERHEAD_BYTES], "big", signed=True)
    if (
        size < MAGIC_END
        or size != length + LOG_OVERHEAD_BYTES
        or size < (OVERHEAD_BYTES if batch[_MAGIC_AT] >= 2 else 26)
    ):
        raise ValueError(f"{size} bytes are not one batch")
    return batch[_MAGIC_AT]


def forget_producer(batch: BatchBytes) -> None:
    """Make a batch of magic 2 one of a producer without an id, and stamp its checksum; its records stay as they are.

    Producer id, epoch and sequence become -1. The bits for a transaction and for a delete horizon are cleared. The base
    timestamp stays: it is the base of the records' timestamps with and without the bit. A legacy entry has no producer.
    """
    if _magic(batch) < 2:
        return
    _PRODUCER.pack_into(batch, _PRODUCER_AT, -1, -1, -1)
    batch[FLAGS_AT] &= ~(IS_TRANSACTIONAL | HAS_DELETE_HORIZON) & 0xFF
    stamp_crc(batch)
