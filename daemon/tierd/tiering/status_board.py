"""StatusBoard: every partition's status at this moment, from whoever knows a part of it."""

from collections.abc import Mapping, Sequence

from tierd.errors import TierError
from tierd.metadata import RemoteLogMetadataManager
from tierd.tiering.copying.intake import Intake
from tierd.tiering.replica import Replica
from tierd.tiering.replicas import Replicas
from tierd.tiering.status import PartitionStatus, partition_status
from tierd.tiering.supervision import TaskHealth


class StatusBoard:
    """Looks at replicas, their tasks, the intake and the metadata; keeps nothing."""

    def __init__(self, replicas: Replicas, *, metadata: RemoteLogMetadataManager, intake: Intake) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._intake = intake

    def all(self, health: Mapping[str, TaskHealth]) -> tuple[PartitionStatus, ...]:
        """Every partition, by name; ``health`` is that of tasks by their names."""
        return tuple(
            self.of(replica, [health.get(task.name, TaskHealth()) for task in replica.tasks.all()])
            for replica in sorted(self._replicas.all(), key=lambda replica: replica.local.partition.topic_partition)
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
