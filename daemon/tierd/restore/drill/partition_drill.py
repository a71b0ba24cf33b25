"""PartitionDrill: restores partitions into scratch with the code of a real restore, and proves the result."""

import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from tierd.errors import LogDirLockedError, LogDirOfflineError, RemoteResourceNotFoundError, TierError
from tierd.metadata import PartitionView
from tierd.model import RemoteLogSegmentState, TopicIdPartition, uuid_to_text
from tierd.remote import RemoteStorageManager
from tierd.restore.drill.drill_command import CommandFailure, DrillCommand
from tierd.restore.drill.record_samples import compare_samples
from tierd.restore.log_dir.held_log_dir import HeldLogDir, LogDirTarget, held_log_dir
from tierd.restore.log_dir.partition_restore import restore_partition
from tierd.restore.log_dir.restored_partition import LogDirRequest, RestoredPartition
from tierd.restore.plan.partition_plan import PartitionPlan
from tierd.tasks import in_thread

RESTORED: Final = "restored"
LOADED: Final = "loaded"
COMPARED: Final = "compared"
COMMAND: Final = "command"

_ATTEMPTS: Final = 3
_PARTITIONS_FILE: Final = "partitions.tsv"

Replan = Callable[[TopicIdPartition], Awaitable[PartitionPlan]]
"""Function that plans a partition again, since retention or a compaction has removed segments of its plan."""


class Proof(NamedTuple):
    """Proof of one partition.

    Attributes:
        plan: that was carried out, which is a later one where segments of the first went meanwhile.
        restored: report of the restore.
        samples: number of batches that were compared with the tier.
        checks: what was done, in order.
        failure: of ``drill.command``; None where the command agreed, or where none is configured.
    """

    plan: PartitionPlan
    restored: RestoredPartition
    samples: int
    checks: tuple[str, ...]
    failure: CommandFailure | None

    def after(self, failure: CommandFailure | None) -> Self:
        """Return the proof after the command ran on the log dir."""
        return self._replace(checks=(*self.checks, COMMAND), failure=failure)


class PartitionDrill:
    """Drill of any partition of one tier.

    Args:
        storage: the tier, read without a cache.
        cluster_id: of the tier.
        command: runs on the restored log dir; None where none is configured.
        replan: plans a partition again whose segments are gone.
        random: returns a number in [0, 1).
        arrived: called with the log bytes that arrived.
    """

    def __init__(
        self,
        storage: RemoteStorageManager,
        *,
        cluster_id: str,
        command: DrillCommand | None,
        replan: Replan,
        random: Callable[[], float],
        arrived: Callable[[int], None],
    ) -> None:
        self._storage = storage
        self._cluster_id = cluster_id
        self._command = command
        self._replan = replan
        self._random = random
        self._arrived = arrived

    async def run(self, plan: PartitionPlan, place: Path) -> Proof:
        """Restore a partition into an empty directory and prove the result; the caller removes the directory.

        The restore itself checks every batch, and has our loader open the log. Then samples of it are compared with
        the tier, and the command runs.

        Raises:
            RefusedError: the plan is refused.
            RemoteStorageError: the store failed, or has lost or damaged an object.
            LogError: the restored log cannot be loaded, or is another one than was planned.
            OSError: the scratch directory is full or failing.
        """
        target = await self._target(place)
        async with held_log_dir(target, [plan]) as held:
            proof = await self._restored_in_the_end(plan, held)
        if self._command is None:
            return proof
        # The lock of the log dir is released: a broker that the command starts takes it.
        facts = _facts(proof.restored, self._cluster_id)
        return proof.after(await self._command.run(target.log_dir, str(plan.partition), facts))

    async def run_all(
        self, plans: Sequence[PartitionPlan], place: Path, *, of_one: tuple[type[TierError], ...]
    ) -> dict[TopicIdPartition, Proof | TierError]:
        """Restore partitions into one log dir and prove each of them; the caller removes the directory.

        A partition that fails does not keep the others from being restored. The command runs once, on the whole log
        dir, if no partition failed; its failure is one of every partition.

        Args:
            plans: of the partitions.
            place: an empty directory.
            of_one: errors that concern one partition alone.

        Raises:
            RemoteStorageError: the store does not answer.
            OSError: the scratch directory is full or failing.
        """
        target = await self._target(place)
        proofs: dict[TopicIdPartition, Proof] = {}
        failed: dict[TopicIdPartition, Proof | TierError] = {}
        async with held_log_dir(target, plans) as held:
            for plan in plans:
                try:
                    proofs[plan.partition] = await self._restored_in_the_end(plan, held)
                except (LogDirLockedError, LogDirOfflineError):
                    raise
                except of_one as error:
                    failed[plan.partition] = error
        if self._command is not None and proofs and not failed:
            reports = [proof.restored for proof in proofs.values()]
            facts = await in_thread(_write_partitions, place / _PARTITIONS_FILE, reports)
            failure = await self._command.run(target.log_dir, None, {"CLUSTER_ID": self._cluster_id, **facts})
            proofs = {partition: proof.after(failure) for partition, proof in proofs.items()}
        return {**failed, **proofs}

    async def _target(self, place: Path) -> LogDirTarget:
        """Make the log dir of a drill in its empty directory."""
        log_dir = place / "log-dir"
        await in_thread(log_dir.mkdir, mode=0o700)
        return LogDirTarget(log_dir=log_dir, stage=place / "stage", cluster_id=self._cluster_id)

    async def _restored_in_the_end(self, plan: PartitionPlan, held: HeldLogDir) -> Proof:
        """Restore a partition and compare it with the tier, by a new plan where segments went meanwhile."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._restored(plan, held)
            except RemoteResourceNotFoundError:
                again = await self._replan(plan.partition)
                if attempt == _ATTEMPTS or again.parts == plan.parts:
                    raise
                await in_thread(_remove_restored, held.target, plan)  # what it has of segments that are gone now
                plan = again
        raise AssertionError("the last attempt returns or raises")

    async def _restored(self, plan: PartitionPlan, held: HeldLogDir) -> Proof:
        request = LogDirRequest(
            log_dir=held, partition=plan.partition, known_end_offset=plan.known_end_offset, merges_local=False
        )
        restored = await restore_partition(
            plan, request, self._storage, on_progress=lambda _, size_bytes: self._arrived(size_bytes)
        )
        samples = await compare_samples(restored, plan, self._storage, random=self._random)
        return Proof(plan, restored, samples, (RESTORED, LOADED, COMPARED), None)


def has_something(view: PartitionView) -> bool:
    """Return True if the tier has a segment of the partition that stays: otherwise there is nothing to be proven."""
    return any(metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for metadata in view.list())


def _remove_restored(target: LogDirTarget, plan: PartitionPlan) -> None:
    """Remove a partition from the log dir and from the stage, so that another plan restores all of it."""
    for directory in (target.log_dir, target.stage):
        shutil.rmtree(directory / str(plan.partition), ignore_errors=True)


def _facts(restored: RestoredPartition, cluster_id: str) -> dict[str, str]:
    return {
        "CLUSTER_ID": cluster_id,
        "TOPIC_ID": uuid_to_text(restored.partition.topic_id),
        "LOG_START_OFFSET": str(restored.log_start_offset),
        "END_OFFSET": str(restored.end_offset),
        "LOG_END_OFFSET": str(restored.log_end_offset),
    }


def _write_partitions(file: Path, reports: Sequence[RestoredPartition]) -> Mapping[str, str]:
    """Write a line for each partition, and return the fact that names the file."""
    lines = (
        "\t".join(
            (
                str(each.partition),
                uuid_to_text(each.partition.topic_id),
                str(each.log_start_offset),
                str(each.end_offset),
                str(each.log_end_offset),
            )
        )
        for each in reports
    )
    file.write_text("".join(f"{line}\n" for line in lines))
    return {"PARTITIONS": str(file)}
