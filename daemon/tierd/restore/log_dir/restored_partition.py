"""Request and result of one partition's restore into a log dir, as values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tierd.model import TopicIdPartition
from tierd.restore.log_dir.held_log_dir import HeldLogDir
from tierd.restore.log_dir.kept_batches import DroppedRange
from tierd.restore.log_dir.local_remains import JoinedRange


class RestoreStage(StrEnum):
    """Stage of a partition's restore, as the journal records it (changelog-restore 4.2)."""

    PLANNED = "planned"
    FETCHED = "fetched"  # one part
    VERIFIED = "verified"
    STAGED = "staged"
    SWAPPED = "swapped"
    CHECKPOINTED = "checkpointed"
    DONE = "done"


OnRestoreProgress = Callable[[RestoreStage, int], None]
"""Callback on the event loop: the stage, and the log bytes that arrived since the call before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirRequest:
    """Request to restore one partition into a held log dir.

    Attributes:
        log_dir: the target; the caller holds it for the whole run, and restores any number of partitions into it.
        partition: name and topic id of the restored directory. Except in mode ``import`` those of the plan.
        known_end_offset: largest log end and largest committed offset that anything knows of the partition; the
            next record is written at or above it, so that no offset is issued twice. Not used in mode ``replica``.
        merges_local: take from an existing directory of the partition what lies beyond the tier's end, if it is sound
            and of the same lineage. Not used in mode ``import``, nor when the plan has a target offset.
        standbys: log dirs of standbys, from which is taken what goes on at the end of the tier or of the existing
            directory. Not used when the plan has a target offset.
    """

    log_dir: HeldLogDir
    partition: TopicIdPartition
    known_end_offset: int = 0
    merges_local: bool = True
    standbys: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    """Report of one restored partition.

    Attributes:
        partition: as the restored directory has it.
        directory: in the log dir.
        log_start_offset: inclusive.
        end_offset: exclusive end of the restored batches.
        log_end_offset: offset of the next record. It lies above ``end_offset`` where higher offsets were known: the gap
            between both has empty batches, and no records.
        merged_offset: first offset that was taken from a directory; None when there was none.
        joined: what was taken from which directory, ascending.
        not_merged: reasons why batches beyond the tier's end stayed in directories, by directory.
        dropped: what was available and is not in the restored log.
        segment_count: segments with records; those of a gap and the active one are not counted.
        batch_count: of the restored batches.
        size_bytes: of the restored log files.
        highest_producer_id: of the files that were used and of the producer snapshots; -1 without a producer id.
        rebuilt_indexes: number of segments whose indexes were built anew.
        moved_aside: the place to which an existing directory went; None when there was none.
        manifest: JSON file with this report and the digest of every file.
    """

    partition: TopicIdPartition
    directory: Path
    log_start_offset: int
    end_offset: int
    log_end_offset: int
    merged_offset: int | None
    joined: tuple[JoinedRange, ...]
    not_merged: Mapping[Path, str]
    dropped: tuple[DroppedRange, ...]
    segment_count: int
    batch_count: int
    size_bytes: int
    highest_producer_id: int
    rebuilt_indexes: int
    moved_aside: Path | None
    manifest: Path
