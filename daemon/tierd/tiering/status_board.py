"""StatusBoard: puts the status of every partition together from its replica, tasks, intake and metadata."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tierd.errors import TierError
from tierd.metadata import RemoteLogMetadataManager
from tierd.tiering.copying.intake import Intake
from tierd.tiering.local.log_offsets import LogOffsets
from tierd.tiering.partition_status import PartitionStatus, partition_status
from tierd.tiering.replicas.replica import Replica, ReplicaTable
from tierd.tiering.replicas.replica_scanner import Replicas
from tierd.tiering.supervision import Supervisor, TaskHealth

_WATERMARK_TIMEOUT_S: Final = 2.0  # a disk that hangs must not keep the status of the others back


class StatusBoard:
    """Reader of the status of all partitions. It keeps no state of its own."""

    def __init__(
        self,
        replicas: ReplicaTable,
        *,
        log_dirs: Replicas,
        supervisor: Supervisor,
        metadata: RemoteLogMetadataManager,
        intake: Intake,
        log_offsets: LogOffsets,
    ) -> None:
        self._replicas = replicas
        self._log_dirs = log_dirs
        self._supervisor = supervisor
        self._log_offsets = log_offsets
        self._metadata = metadata
        self._intake = intake

    def all(self) -> tuple[PartitionStatus, ...]:
        """Return the status of every partition, by name."""
        health = self._supervisor.statistics()
        return tuple(
            self.of(replica, [health.get(task.name, TaskHealth()) for task in replica.tasks.all()])
            for replica in sorted(self._replicas.all(), key=lambda replica: replica.local.partition.topic_partition)
        )

    async def current(self) -> tuple[PartitionStatus, ...]:
        """Return the same as ``all``, with the high watermarks of this moment: a task at rest reads none.

        Where a log dir does not answer soon, the high watermarks are those that its tasks saw last.
        """
        told: dict[str, int] = {}
        for log_dir in {replica.local.log_dir for replica in self._replicas.all()}:
            with contextlib.suppress(TierError, TimeoutError):
                async with asyncio.timeout(_WATERMARK_TIMEOUT_S):
                    watermarks = await self._log_offsets.high_watermarks(log_dir)
                told.update((str(log_dir / str(partition)), offset) for partition, offset in watermarks.items())
        return tuple(
            replace(status, high_watermark=told.get(status.directory, status.high_watermark)) for status in self.all()
        )

    def of(self, replica: Replica, health: Sequence[TaskHealth]) -> PartitionStatus:
        """Return the status of one partition whose tasks have this health."""
        return partition_status(
            replica.local,
            leadership=replica.leadership,
            tasks=replica.tasks,
            health=max(health, key=lambda each: each.failures, default=TaskHealth()),
            paused=self._intake.is_paused(replica.local.partition.topic_partition),
            problem=replica.problem or self._offline_problem(replica),
            log_start_offset=self._log_start_offset(replica),
        )

    def _log_start_offset(self, replica: Replica) -> int | None:
        """Return the log start of a led log from the metadata: expiration moves the log start on there first."""
        if replica.tasks.expire is None:
            return None
        try:
            return self._metadata.view(replica.local.partition).log_start_offset
        except TierError:  # not loaded, or deleted as a whole
            return None

    def _offline_problem(self, replica: Replica) -> str:
        return next((s.problem for s in self._log_dirs.log_dirs() if s.path == replica.local.log_dir), "")
