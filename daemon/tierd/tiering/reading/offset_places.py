"""Named offsets that the state of local log and tier tells, without a search or I/O (KIP-405, KIP-1005)."""

from enum import IntEnum

from tierd.errors import RetriableRemoteStorageError
from tierd.model import TimestampOffset
from tierd.tiering.copy_plan import highest_copied
from tierd.tiering.reading.tiered_log import TieredLog

_NO_TIMESTAMP = -1


class OffsetSpec(IntEnum):
    """Named offsets: the negative numbers that a ListOffsets request may have in place of a timestamp."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


def place(log: TieredLog, spec: OffsetSpec) -> TimestampOffset | None:
    """Return the place of an ``OffsetSpec`` that needs no search.

    Raises:
        ValueError: ``spec`` needs a search.
    """
    match spec:
        case OffsetSpec.EARLIEST:
            return _at(log, log.log_start_offset)
        case OffsetSpec.EARLIEST_LOCAL:
            return _at(log, local_start(log))
        case OffsetSpec.LATEST_TIERED:
            highest = _highest_remote_offset(log)
            return None if highest < 0 else _at(log, highest)
        case OffsetSpec.EARLIEST_PENDING_UPLOAD:
            highest = _highest_remote_offset(log)
            if highest < 0:
                is_all_local = local_start(log) == log.log_start_offset
                return _at(log, log.log_start_offset) if is_all_local else None
            return _at(log, max(highest + 1, log.log_start_offset))
        case _:
            raise ValueError(f"{spec.name} is no place that is known without a search")


def latest(log: TieredLog, *, end_offset: int) -> TimestampOffset:
    """Return ``end_offset``, the exclusive end of a reader of ``log``, with the last leader epoch."""
    last = log.lineage.latest
    return TimestampOffset(_NO_TIMESTAMP, end_offset, last.epoch if last else None)


def named_offset(log: TieredLog, spec: OffsetSpec) -> TimestampOffset | None:
    """Return the offset that ``spec`` names for a reader of uncommitted records; None without such an offset.

    Raises:
        ValueError: ``spec`` is ``MAX_TIMESTAMP``, which needs a search.
    """
    return latest(log, end_offset=log.end_offset) if spec is OffsetSpec.LATEST else place(log, spec)


def search_timed_out(timestamp_ms: int, *, limit_s: float) -> RetriableRemoteStorageError:
    """Return the error of a search for a timestamp, or an ``OffsetSpec``, that took longer than ``limit_s``."""
    return RetriableRemoteStorageError(
        f"the search for timestamp {timestamp_ms} did not end within {limit_s:g} s",
        remedy="ask again, or raise fetch.timestamp_timeout",
    )


def local_start(log: TieredLog) -> int:
    """Return the start of the local log; the end of the log on a host without a local log."""
    return log.end_offset if log.local_start_offset is None else max(log.local_start_offset, log.log_start_offset)


def _highest_remote_offset(log: TieredLog) -> int:
    """Return the last offset of our branch that counts as copied, inclusive; -1 without such an offset."""
    return highest_copied(
        log.lineage, log.view.copied_offset_for_epoch, log_end_offset=max(log.end_offset, log.high_watermark or 0)
    ).offset


def _at(log: TieredLog, offset: int) -> TimestampOffset:
    return TimestampOffset(_NO_TIMESTAMP, offset, log.lineage.epoch_for(offset))
