"""DirCheckpoints: the offsets of its logs that a log dir stores between two runs (log-format 1.3 and 1.4).

``recovery-point-offset-checkpoint``   first offset that is not known to be flushed, of every log
``log-start-offset-checkpoint``        log start, where it is not the base of the first segment
``replication-offset-checkpoint``      high watermark
``cleaner-offset-checkpoint``          exclusive end of the cleaned part of a compacted log
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import structlog

from tierd.log.files.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    load_offset_checkpoint,
    write_offset_checkpoint,
)
from tierd.log.files.disk import Disk
from tierd.log.log_errors import CheckpointError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.model import TopicPartition

log = structlog.get_logger()


class DirCheckpoints:
    """The checkpoints of one log dir. One writer at a time."""

    def __init__(self, disk: Disk, log_dir: Path, *, untouched: Collection[TopicPartition] = ()) -> None:
        """Take ``log_dir`` into use; the entries of ``untouched`` partitions stay in the files."""
        self._disk = disk
        self._log_dir = log_dir
        self._untouched = untouched

    def recovery_points(self) -> dict[TopicPartition, int]:
        """Read them; empty, with a warning, when they cannot be read: then everything is recovered."""
        return self._read_or_reset(RECOVERY_POINT_CHECKPOINT)

    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """Read the log starts; none, with a warning, if they cannot be read: then the first segments decide."""
        return self._read_or_reset(LOG_START_OFFSET_CHECKPOINT)

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Read them.

        Raises:
            CheckpointError: they cannot be understood.
            OSError: they cannot be read.
        """
        return self._read(REPLICATION_OFFSET_CHECKPOINT)

    def cleaner_offsets(self) -> dict[TopicPartition, int]:
        """Read them; empty, with a warning, when they cannot be read: then every compacted log is cleaned anew."""
        return self._read_or_reset(CLEANER_OFFSET_CHECKPOINT)

    def write_cleaner_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the file by ``offsets``.

        Raises:
            OSError: the disk is full or failing; the old file is still there.
        """
        self._write(CLEANER_OFFSET_CHECKPOINT, offsets)

    def write_recovery_points(self, logs: Iterable[UnifiedLog]) -> None:
        """Replace the file by the recovery points of ``logs``.

        Raises:
            OSError: the disk is full or failing; the old file is still there.
        """
        self._write(RECOVERY_POINT_CHECKPOINT, {each.topic_partition: each.recovery_point for each in logs})

    def write_log_start_offsets(self, logs: Iterable[UnifiedLog]) -> None:
        """Replace the file by the log starts of those of ``logs`` that need one.

        Raises:
            OSError: the disk is full or failing; the old file is still there.
        """
        needed = {each.topic_partition: each.log_start_offset for each in logs if needs_log_start(each)}
        self._write(LOG_START_OFFSET_CHECKPOINT, needed)

    def write_high_watermarks(self, logs: Iterable[UnifiedLog]) -> None:
        """Replace the file by the high watermarks of ``logs``.

        Raises:
            OSError: the disk is full or failing; the old file is still there.
        """
        self._write(REPLICATION_OFFSET_CHECKPOINT, {each.topic_partition: each.high_watermark for each in logs})

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        known = self._read_or_reset(name) if self._untouched else {}
        kept = {partition: offset for partition, offset in known.items() if partition in self._untouched}
        write_offset_checkpoint(self._disk, self._log_dir / name, {**kept, **offsets})

    def _read_or_reset(self, name: str) -> dict[TopicPartition, int]:
        try:
            return self._read(name)
        except (OSError, CheckpointError) as error:
            log.warning("checkpoint_unreadable", file=str(self._log_dir / name), error=str(error))
            return {}

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return load_offset_checkpoint(self._disk, self._log_dir / name)
        except FileNotFoundError:
            return {}


def needs_log_start(each: UnifiedLog) -> bool:
    """Return True if the checkpoint needs the log start: the log is tiered, or it starts above its first segment."""
    return each.is_tiered or each.log_start_offset > each.segments[0].base_offset
