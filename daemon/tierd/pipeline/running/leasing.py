"""PartitionLeases: keeps two daemons from runs on the same partition at once. Their writes are fenced besides."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.errors import LeaseHeldError, LeaseLostError, TierError
from tierd.metadata import KeyValueStore, Lease, MetadataKeyFactory, acquire_lease, release_lease, renew_lease
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.tasks import end_tasks, run_to_end

log = structlog.get_logger()

LEASE_S: Final = 120.0
_RENEWALS_A_LEASE: Final = 4
_AT_ONCE: Final = 16  # leases asked for together: one after the other, those of thousands would take minutes


class PartitionLeases:
    """Leases of this process on partitions, in the metadata store."""

    def __init__(self, store: KeyValueStore, keys: MetadataKeyFactory, *, holder: str, clock: Clock) -> None:
        """Prepare to ask for leases; ``holder`` names this process to others, and a process that takes its place."""
        self._store = store
        self._keys = keys
        self._holder = holder
        self._clock = clock

    @contextlib.asynccontextmanager
    async def held(
        self, partitions: Sequence[TopicIdPartition]
    ) -> AsyncIterator[tuple[list[TopicIdPartition], dict[TopicIdPartition, str]]]:
        """Hold the leases of these partitions; yield the partitions held, and the reasons for the others.

        Leases are renewed until the block ends, then released. The leases of a killed process expire after ``LEASE_S``.

        Raises:
            TierError: the store does not answer; nothing is held for longer than ``LEASE_S``.
        """
        leases: dict[TopicIdPartition, Lease] = {}
        refused: dict[TopicIdPartition, str] = {}

        async def acquire(partition: TopicIdPartition) -> None:
            try:
                leases[partition] = await self._acquire(partition)
            except LeaseHeldError as error:
                refused[partition] = str(error)

        renewing = asyncio.create_task(self._renew(leases), name="leases of the run")  # the last may come late
        try:
            await _for_each(partitions, acquire)
            yield [partition for partition in partitions if partition in leases], refused
        finally:
            try:
                await end_tasks([renewing])
            finally:
                await run_to_end(self._release(leases), name="release leases")

    async def _acquire(self, partition: TopicIdPartition) -> Lease:
        name = f"pipeline-{uuid_to_text(partition.topic_id)}-{partition.partition}"
        return await acquire_lease(
            self._store, self._keys, name, self._holder, ttl_s=LEASE_S, now_ms=self._clock.now_ms()
        )

    async def _renew(self, leases: dict[TopicIdPartition, Lease]) -> None:
        while True:
            await self._clock.sleep(LEASE_S / _RENEWALS_A_LEASE)
            await _for_each(list(leases), lambda partition: self._renew_one(leases, partition))

    async def _renew_one(self, leases: dict[TopicIdPartition, Lease], partition: TopicIdPartition) -> None:
        try:
            leases[partition] = await renew_lease(
                self._store, self._keys, leases[partition], ttl_s=LEASE_S, now_ms=self._clock.now_ms()
            )
        except LeaseLostError as error:  # commits of the partition are refused if its leadership was lost, too
            log.warning("pipeline_lease_lost", partition=str(partition), problem=str(error))
            del leases[partition]
        except TierError as error:
            log.warning("pipeline_lease_not_renewed", partition=str(partition), problem=str(error))

    async def _release(self, leases: dict[TopicIdPartition, Lease]) -> None:
        async def release(partition: TopicIdPartition) -> None:
            try:
                await release_lease(self._store, self._keys, leases[partition])
            except TierError as error:
                log.warning("pipeline_lease_not_released", partition=str(partition), problem=str(error))

        await _for_each(list(leases), release)


async def _for_each(partitions: Sequence[TopicIdPartition], do: Callable[[TopicIdPartition], Awaitable[None]]) -> None:
    """Call ``do`` for every partition, some at a time; the first failure cancels the other calls and is raised."""
    left = iter(partitions)

    async def work() -> None:
        for partition in left:
            await do(partition)

    workers = [asyncio.create_task(work(), name="leases") for _ in range(_AT_ONCE)]
    try:
        await asyncio.gather(*workers)
    finally:
        await end_tasks(workers)
