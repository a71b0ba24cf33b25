"""Staging of a partition: from checked logs to a directory that a broker starts on (changelog-restore 4.2, 5 to 11)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import RefusedError
from tierd.log import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    OsDisk,
    encode_lineage,
    encode_topic_id,
    file_name,
)
from tierd.model import EpochEntry, Lineage, TopicIdPartition
from tierd.restore.log_dir.kept_batches import CheckedLog, DroppedRange, KeptBatches, keep_batches, require_epochs
from tierd.restore.log_dir.local_remains import LocalRemains
from tierd.restore.log_dir.producer_snapshots import write_empty_snapshots, write_snapshots, write_transaction_indexes
from tierd.restore.log_dir.segment_staging import (
    IMPORTED_EPOCH,
    StagedSegment,
    stage_gap,
    stage_imported,
    stage_segment,
)
from tierd.restore.log_dir.self_check import check_loadable
from tierd.restore.log_dir.staged_files import make_empty, write_durably
from tierd.restore.log_dir.transaction_facts import TransactionFacts
from tierd.restore.plan.partition_plan import PartitionPlan, RestoreMode
from tierd.tasks import in_thread

_ALL = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenBatches:
    """Batches of the restored log, every one checked.

    Attributes:
        batches: ascending, without overlap.
        end_offset: exclusive end of the last one; the log start if there is none.
        transactions: of the batches before the end was lowered to where all are decided.
        dropped: what the checked logs have and the restored log lacks.
    """

    batches: tuple[KeptBatches, ...]
    end_offset: int
    transactions: TransactionFacts
    dropped: tuple[DroppedRange, ...]


async def choose_batches(plan: PartitionPlan, logs: Sequence[CheckedLog], local: LocalRemains) -> ChosenBatches:
    """Choose the batches of the restored log: up to the plan's end, and outside of mode ``replica`` up to a stable one.

    Raises:
        CorruptRecordError: batches are of another branch of the log than the plan's lineage.
        RefusedError: a batch reaches over the border of two segments, and a part of it would be lost.
        LogError: a file changed or cannot be read.
    """
    everything = (*logs, *local.logs)
    batches, dropped = await _keep(everything, _ALL)
    for each in batches:
        await in_thread(require_epochs, each, local.lineage)
    transactions = TransactionFacts()
    for each in batches:
        await in_thread(transactions.follow, each)
    end_offset = batches[-1].end_offset if batches else plan.log_start_offset
    stable = end_offset if plan.mode is RestoreMode.REPLICA else transactions.stable_end(end_offset)
    if stable < end_offset:
        batches, dropped = await _keep(everything, stable)
        dropped.append(DroppedRange(stable, end_offset, "transactions that no marker decides; they can never be read"))
        end_offset = batches[-1].end_offset if batches else plan.log_start_offset
    if local.refusals and local.end_offset > end_offset:
        reasons = "; ".join(f"{directory}: {reason}" for directory, reason in local.refusals.items())
        dropped.append(DroppedRange(end_offset, local.end_offset, reasons))
    return ChosenBatches(
        batches=tuple(batches),
        end_offset=end_offset,
        transactions=transactions,
        dropped=tuple(_lost(plan, dropped, batches)),
    )


async def _keep(logs: Sequence[CheckedLog], end_offset: int) -> tuple[list[KeptBatches], list[DroppedRange]]:
    batches: list[KeptBatches] = []
    dropped: list[DroppedRange] = []
    for log in logs:
        following = batches[-1].end_offset if batches else 0
        kept = await in_thread(keep_batches, log, next_offset=following, end_offset=end_offset)
        dropped.extend(kept.dropped)
        if kept.batches is not None:
            batches.append(kept.batches)
    return batches, dropped


def _lost(plan: PartitionPlan, dropped: Sequence[DroppedRange], batches: Sequence[KeptBatches]) -> list[DroppedRange]:
    """Return the ranges that no other segment has; one inside a log without compaction would be a hole.

    Raises:
        RefusedError: it is one.
    """
    lost = [each for each in dropped if not any(_covers(other, each) for other in batches)]
    end_offset = batches[-1].end_offset if batches else 0
    holes = [each for each in lost if each.start_offset < end_offset]
    if holes and not plan.is_compacted:
        hole = holes[0]
        raise RefusedError(
            f"{plan.partition}: offsets {hole.start_offset} to {hole.end_offset - 1} would be lost: {hole.reason}",
            remedy="run tierd verify for the partition, then plan the restore again",
        )
    return lost


def _covers(batches: KeptBatches, dropped: DroppedRange) -> bool:
    return batches.first_offset <= dropped.start_offset and dropped.end_offset <= batches.end_offset


class PartitionStage:
    """Staged directory of one partition while it is written.

    Args:
        directory: the staged directory; its last name is that in the log dir.
        scratch: for the self-check.
        plan: what is restored.
        partition: name and topic id of the restored directory.
    """

    def __init__(self, directory: Path, scratch: Path, plan: PartitionPlan, partition: TopicIdPartition) -> None:
        self._directory = directory
        self._scratch = scratch
        self._plan = plan
        self._partition = partition

    async def write(
        self, chosen: ChosenBatches, *, lineage: Lineage, known_end_offset: int
    ) -> tuple[tuple[StagedSegment, ...], int, int]:
        """Write the directory anew; return its segments with batches, its log start and its log end.

        Args:
            chosen: the batches.
            lineage: of the batches.
            known_end_offset: the next record is written at or above this offset, outside of mode ``replica``.

        Raises:
            LogError: the directory is not what was planned, or a checked file changed.
            OSError: the disk is full or failing.
        """
        await in_thread(self._begin)
        segments = tuple([each for batches in chosen.batches if (each := await self._stage(chosen, batches))])
        log_end = self._log_end(segments, chosen.end_offset, known_end_offset)
        first_base = segments[0].base_offset if segments else log_end
        log_start = max(self._plan.log_start_offset, first_base)
        await in_thread(self._finish, segments, lineage, log_start, log_end)
        await in_thread(
            check_loadable, self._directory, self._scratch, segments, log_start_offset=log_start, log_end_offset=log_end
        )
        return segments, log_start, log_end

    def _log_end(self, segments: Sequence[StagedSegment], end_offset: int, known_end_offset: int) -> int:
        """Return the offset of the next record.

        A copy of the log may have records up to ``known_end_offset`` that the restored log lacks, with the last leader
        epoch of both. So that the copy's end is no border of two batches of the restored log, the empty batch between
        ``end_offset`` and the log end goes one offset further. A standby finds the difference there, and truncates.
        """
        batches_end = max(end_offset, self._plan.log_start_offset)
        if self._plan.mode is RestoreMode.REPLICA:
            return batches_end
        known_end = max(batches_end, self._plan.end_offset, known_end_offset)
        is_copy_behind = self._plan.mode is RestoreMode.LAST_COPY and segments and known_end > batches_end
        return known_end + 1 if is_copy_behind else known_end

    def _begin(self) -> None:
        self._directory.parent.mkdir(exist_ok=True)
        make_empty(self._directory)

    async def _stage(self, chosen: ChosenBatches, batches: KeptBatches) -> StagedSegment | None:
        if self._plan.mode is RestoreMode.IMPORT:
            return await in_thread(stage_imported, batches, self._directory, is_aborted=chosen.transactions.is_aborted)
        has_wrong_transactions = batches.log.path in chosen.transactions.wrong_indexes
        return await in_thread(stage_segment, batches, self._directory, has_wrong_transactions=has_wrong_transactions)

    def _finish(self, segments: Sequence[StagedSegment], lineage: Lineage, log_start: int, log_end: int) -> None:
        """Write what is not of one segment, and make the names durable."""
        directory, mode = self._directory, self._plan.mode
        end = segments[-1].end_offset if segments else log_end
        epochs = lineage.entries_in(log_start, end)
        if mode is RestoreMode.IMPORT:
            epochs = Lineage((EpochEntry(IMPORTED_EPOCH, log_start),))
        gap: list[int] = []
        if mode is not RestoreMode.REPLICA:
            gap = stage_gap(directory, end, log_end, leader_epoch=epochs.latest.epoch if epochs.latest else 0)
        if not gap:  # an active segment of its own: the others stay equal to their copies
            write_durably(directory / file_name(log_end, ".log"), b"")
        if mode is RestoreMode.IMPORT:
            write_empty_snapshots(directory, [*(each.base_offset for each in segments[1:]), *gap, log_end])
        else:
            write_transaction_indexes(segments)
            write_snapshots(directory, segments, [*gap, log_end], is_decided=mode is not RestoreMode.REPLICA)
        write_durably(directory / LEADER_EPOCH_CHECKPOINT, encode_lineage(epochs))
        write_durably(directory / PARTITION_METADATA, encode_topic_id(self._partition.topic_id))
        OsDisk().sync_directory(directory)
