"""A producer snapshot made anew from the one before it and the batches in between (log-format 6.6)."""

from pathlib import Path

from tierd.log.files.disk import Disk
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.producer_state import parse_producer_snapshot
from tierd.log.producers.transactions import read_end_marker
from tierd.log.records.batch_header import iter_headers
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition

_NOBODY_EXPIRES_MS = 0


def rebuild_producer_snapshot(
    disk: Disk, log: Path, before: bytes | None, *, start_offset: int, end_offset: int
) -> Path:
    """Write the snapshot at the end of one segment beside its log, as the broker wrote it at the roll. Blocking.

    Args:
        disk: where the log lies.
        log: the only segment in its directory, which is the caller's own.
        before: the snapshot at ``start_offset``; None where the log begins there.
        start_offset: of the segment.
        end_offset: of the segment, inclusive.

    Raises:
        OSError: a file cannot be read or written.
        CorruptIndexError: ``before`` cannot be understood.
        LogError: a batch is damaged, or is not of the transaction that its producer has open.
    """
    directory, next_offset = log.parent, end_offset + 1
    if before is not None:
        parse_producer_snapshot(before, f"{log.name}, the producer snapshot before it")  # loading would pass over it
        (directory / f"{start_offset:020d}.snapshot").write_bytes(before)
    producers = ProducerStateManager(disk, directory, topic_partition=TopicPartition("segment", 0), config=LogConfig())
    producers.truncate_and_reload(
        log_start_offset=start_offset - (before is not None), log_end_offset=next_offset, now_ms=_NOBODY_EXPIRES_MS
    )
    file = disk.open(log, write=False)
    try:
        for header in iter_headers(file):
            if header.producer_id >= 0:
                producers.replay(header, read_end_marker(file, header))
    finally:
        file.close()
    producers.update_map_end_offset(next_offset)
    producers.take_snapshot(sync=False)
    return directory / f"{next_offset:020d}.snapshot"
