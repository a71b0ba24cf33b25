"""What removes in one process, put together from its parts."""

import asyncio

from tests.tiering.removing.world import Process
from tierd.errors import TierError
from tierd.model import TopicIdPartition
from tierd.tiering.removing.partition_removal import PartitionRemover
from tierd.tiering.removing.sweep import UploadSweep
from tierd.tiering.removing.undelete import Undeletion


def undeletion_of(process: Process) -> Undeletion:
    """What takes segments back."""
    return Undeletion(
        metadata=process.metadata,
        remote=process.storage,
        deletion=process.deletion,
        log_starts=process.log_starts,
        policies=lambda _: process.world.policy,
        clock=process.world.clock,
        broker_id=process.broker_id,
    )


def remover_of(
    process: Process,
    *,
    grace_s: float = 3600.0,
    errors: list[tuple[TopicIdPartition, TierError]] | None = None,
    uploads: UploadSweep | None = None,
) -> PartitionRemover:
    """What deletes partitions; its failures go to ``errors``, and without that a failure fails the test."""

    def on_error(partition: TopicIdPartition, error: TierError) -> None:
        if errors is None:
            raise AssertionError(f"{partition}: {error}") from error
        errors.append((partition, error))

    return PartitionRemover(
        store=process.kv,
        metadata=process.metadata,
        deletion=process.deletion,
        being_copied=process.being_copied,
        slots=asyncio.Semaphore(4),
        log_starts=process.log_starts,
        recorder=process.recorder,
        clock=process.world.clock,
        broker_id=process.broker_id,
        grace_s=grace_s,
        width=process.width,
        on_error=on_error,
        uploads=uploads,
    )
