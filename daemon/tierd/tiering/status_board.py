"""StatusBoard: every partition's status at this moment, from whoever knows a part of it."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tierd.errors import TierError
from tierd.metadata import RemoteLogMetadataManager
from tierd.tiering.copying.intake import Intake
from tierd.tiering.local.log_offsets import LogOffsets
from tierd.tiering.replica import Replica
from tierd.tiering.replicas import Replicas
from tierd.tiering.status import PartitionStatus, partition_status
from tierd.tiering.supervision import TaskHealth

_WATERMARK_TIMEOUT_S: Final = 2.0  # a disk that hangs must not keep the status of the others back


class StatusBoard:
    """Looks at replicas, their tasks, the intake and the metadata; keeps nothing."""

    def __init__(
        self,
        replicas: Replicas,
        *,
        metadata: RemoteLogMetadataManager,
        intake: Intake,
        log_offsets: LogOffsets,
    ) -> None:
        self._replicas = replicas
        self._log_offsets = log_offsets
        self._metadata = metadata
        self._intake = intake

    def all(self, health: Mapping[str, TaskHealth]) -> tuple[PartitionStatus, ...]:
        """Every partition, by name; ``health`` is that of tasks by their names."""
        return tuple(
            self.of(replica, [health.get(task.name, TaskHealth()) for task in replica.tasks.all()])
            for replica in sorted(self._replicas.all(), key=lambda replica: replica.local.partition.topic_partition)
        )

    async def current(self, health: Mapping[str, TaskHealth]) -> tuple[PartitionStatus, ...]:
        """Return the same as ``all``, with the high watermarks as they are now: a task that fails or rests reads none.

        A log dir that does not tell them soon has those that its tasks saw last.
        """
        told: dict[str, int] = {}
        for log_dir in {replica.local.log_dir for replica in self._replicas.all()}:
            with contextlib.suppress(TierError, TimeoutError):
                async with asyncio.timeout(_WATERMARK_TIMEOUT_S):
                    watermarks = await self._log_offsets.high_watermarks(log_dir)
                told.update((str(log_dir / str(partition)), offset) for partition, offset in watermarks.items())
        return tuple(
            replace(status, high_watermark=told.get(status.directory, status.high_watermark))
            for status in self.all(health)
        )

    def of(self, replica: Replica, health: Sequence[TaskHealth]) -> PartitionStatus:
        """One partition whose tasks fare like this."""
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
        """Where a led log begins: expiration moves that on, and the copy task need not have heard."""
        if replica.tasks.expire is None:
            return None
        try:
            return self._metadata.view(replica.local.partition).log_start_offset
        except TierError:  # not loaded, or deleted as a whole
            return None

    def _offline_problem(self, replica: Replica) -> str:
        return next((s.problem for s in self._replicas.log_dirs() if s.path == replica.local.log_dir), "")
