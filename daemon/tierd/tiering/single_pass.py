"""One pass over partitions in this process, without a supervisor, as ``tierd copy`` makes it."""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tierd.errors import TierError, UnknownPartitionError
from tierd.model import TopicPartition
from tierd.tiering.partition_status import PartitionStatus
from tierd.tiering.replicas.replica import Replica
from tierd.tiering.status_board import StatusBoard
from tierd.tiering.supervision import TaskHealth


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """Outcome of one pass over one partition; ``error`` is None when it ended well."""

    partition: TopicPartition
    status: PartitionStatus
    error: TierError | None


def copied_replicas(replicas: Iterable[Replica], partitions: Collection[TopicPartition] | None) -> list[Replica]:
    """Return the replicas that are copied here: those of ``partitions``, None for all.

    Raises:
        UnknownPartitionError: a named partition is in no log dir, or this broker does not lead it.
    """
    chosen = [replica for replica in replicas if replica.tasks.copy is not None and replica.is_among(partitions)]
    missing = set(partitions or ()) - {replica.local.partition.topic_partition for replica in chosen}
    if missing:
        raise UnknownPartitionError(
            f"{', '.join(map(str, sorted(missing)))}: in no log dir, excluded, not led here, or not copied",
            remedy="compare the name with tierd status, and topics and leadership in the configuration",
        )
    return chosen


async def pass_over(replicas: Iterable[Replica], board: StatusBoard) -> tuple[CopyOutcome, ...]:
    """Copy what is due of each of ``copied_replicas``, all at once, and return the outcomes, by name."""
    async with asyncio.TaskGroup() as group:
        passes = [
            group.create_task(_pass_once(replica, board), name=f"copy {replica.local.partition}")
            for replica in replicas
        ]
    return tuple(sorted((p.result() for p in passes), key=lambda outcome: outcome.partition))


async def _pass_once(replica: Replica, board: StatusBoard) -> CopyOutcome:
    assert replica.tasks.copy is not None, "only led replicas are chosen"
    error: TierError | None = None
    try:
        await replica.tasks.copy.run_once()
    except TierError as failure:
        error = failure
    health = TaskHealth(failures=1, last_error=str(error)) if error else TaskHealth()
    return CopyOutcome(replica.local.partition.topic_partition, board.of(replica, [health]), error)
