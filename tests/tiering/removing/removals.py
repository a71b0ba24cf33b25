"""Removers of one process, put together from their parts."""

import asyncio

from tests.tiering.removing.world import SWEEP_SETTINGS, Process
from tierd.config import ExpireSettings
from tierd.errors import TierError
from tierd.model import TopicIdPartition
from tierd.tiering.removing.partition_contents import PartitionContents
from tierd.tiering.removing.partition_removal import PartitionRemover
from tierd.tiering.removing.sweep import UploadSweep
from tierd.tiering.removing.undeletion import Undeletion


def undeletion_of(process: Process) -> Undeletion:
    """Return the undeletion of segments."""
    return Undeletion(
        metadata=process.metadata,
        remote=process.storage,
        deletion=process.deletion,
        log_starts=process.log_starts,
        policies=lambda _: process.world.policy,
        clock=process.world.clock,
        broker_id=process.broker_id,
    )


def upload_sweep_of(process: Process) -> UploadSweep:
    """Return the sweep of unfinished uploads."""
    return UploadSweep(
        storage=process.storage,
        metadata=process.metadata,
        being_copied=process.being_copied,
        recorder=process.recorder,
        clock=process.world.clock,
        settings=SWEEP_SETTINGS,
    )


def remover_of(
    process: Process,
    *,
    grace_s: float = 3600.0,
    errors: list[tuple[TopicIdPartition, TierError]] | None = None,
    uploads: UploadSweep | None = None,
) -> PartitionRemover:
    """Return the remover of partitions; failures go to ``errors``, and without ``errors`` they fail the test."""

    def on_error(partition: TopicIdPartition, error: TierError) -> None:
        if errors is None:
            raise AssertionError(f"{partition}: {error}") from error
        errors.append((partition, error))

    settings = ExpireSettings(grace_s=grace_s, concurrency=process.width)
    return PartitionRemover(
        store=process.kv,
        metadata=process.metadata,
        contents=PartitionContents(
            metadata=process.metadata,
            deletion=process.deletion,
            being_copied=process.being_copied,
            slots=asyncio.Semaphore(4),
            log_starts=process.log_starts,
            uploads=uploads or upload_sweep_of(process),
            clock=process.world.clock,
            settings=settings,
        ),
        recorder=process.recorder,
        clock=process.world.clock,
        broker_id=process.broker_id,
        settings=settings,
        on_error=on_error,
    )
