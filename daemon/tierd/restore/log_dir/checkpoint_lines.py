"""A partition's lines in the checkpoints of a log dir; other lines stay (changelog-restore 4.2, step 12)."""

from collections.abc import Callable
from dataclasses import dataclass

from tierd.log import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    OsDisk,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from tierd.model import TopicPartition
from tierd.restore.log_dir.held_log_dir import CHECKPOINTS, HeldLogDir


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointLines:
    """Offsets that the checkpoints get for a restored partition.

    Attributes:
        log_start_offset: written also where it is the base of the first segment: with a tier it alone counts.
        log_end_offset: recovery point, because every batch was checked and synced.
        is_only_copy: the high watermark is the log end; otherwise a lower known one stays, and the leader says more.
        may_keep_cleaned: the offset of the log cleaner stays, unless it lies above the log end.
    """

    log_start_offset: int
    log_end_offset: int
    is_only_copy: bool
    may_keep_cleaned: bool

    def update(self, held: HeldLogDir, partition: TopicPartition) -> None:
        """Write the lines; a repetition changes nothing more. Blocking.

        Raises:
            CheckpointError: a checkpoint cannot be understood.
            OSError: the disk is full or failing.
        """
        changes: dict[str, Callable[[int | None], int | None]] = {
            RECOVERY_POINT_CHECKPOINT: lambda _: self.log_end_offset,
            LOG_START_OFFSET_CHECKPOINT: lambda _: self.log_start_offset,
            REPLICATION_OFFSET_CHECKPOINT: self._high_watermark,
            CLEANER_OFFSET_CHECKPOINT: self._cleaned,
        }
        for name in CHECKPOINTS:
            path = held.target.log_dir / name
            offsets = read_offset_checkpoint(path)
            before = offsets.get(partition)
            after = changes[name](before)
            if after == before:
                continue
            if after is None:
                del offsets[partition]
            else:
                offsets[partition] = after
            write_offset_checkpoint(OsDisk(), path, offsets)
            held.give_to_owner(path)

    def _high_watermark(self, before: int | None) -> int | None:
        if self.is_only_copy:
            return self.log_end_offset
        return None if before is None else min(before, self.log_end_offset)

    def _cleaned(self, before: int | None) -> int | None:
        return before if before is not None and self.may_keep_cleaned and before <= self.log_end_offset else None
