"""State of the deletion of a partition's remote data (remote-tiering 3.2; KIP-405)."""

from dataclasses import dataclass
from enum import IntEnum

from tierd.errors import InvalidSegmentTransitionError
from tierd.model.identifiers import TopicIdPartition


class RemotePartitionDeleteState(IntEnum):
    """State of a partition's deletion; the numbers are Kafka's.

    ::

        (absent) ──► DELETE_PARTITION_MARKED ──► DELETE_PARTITION_STARTED ──► DELETE_PARTITION_FINISHED

    Every state may become itself, for retries. There is no way back.
    """

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2

    def may_become(self, target: "RemotePartitionDeleteState") -> bool:
        """Return True if the lifecycle has this step."""
        return target - self in (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemotePartitionDeleteMetadata:
    """One step in the deletion of a partition.

    Attributes:
        partition: owner of the remote data that goes; a topic created again under the same name has another id.
        state: as it is from this event on.
        event_timestamp_ms: wall clock of this event.
        broker_id: the broker that produced this event.
    """

    partition: TopicIdPartition
    state: RemotePartitionDeleteState
    event_timestamp_ms: int
    broker_id: int

    def require_follows(self, present: RemotePartitionDeleteState | None) -> None:
        """Raise unless the lifecycle leads from ``present``, None when nothing was deleted so far, to this state.

        Raises:
            InvalidSegmentTransitionError: it does not.
        """
        marked = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
        if not (self.state is marked if present is None else present.may_become(self.state)):
            held = "not being deleted" if present is None else present.name
            raise InvalidSegmentTransitionError(
                f"{self.partition} is {held}, cannot become {self.state.name}",
                remedy="take the steps in order: marked, started, finished",
            )
