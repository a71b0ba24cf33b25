"""Choice of the partitions that a drill restores: a sample that rotates through all of them. Pure."""

from collections.abc import Iterable

from tierd.metadata import PartitionView
from tierd.model import RemoteLogSegmentState, TopicIdPartition
from tierd.restore.drill.drilled_partition import DrillProofs


def rotation(candidates: Iterable[TopicIdPartition], proofs: DrillProofs) -> list[TopicIdPartition]:
    """Return the candidates in the order in which drills take them: never drilled first, then the oldest drill.

    A partition whose last drill was no proof waits for its turn like the others. Otherwise a few partitions that
    always fail would keep all others from being drilled.
    """

    def rank(partition: TopicIdPartition) -> tuple[int, TopicIdPartition]:
        last = proofs.last.get(partition)
        return (-1 if last is None else last.began_ms, partition)

    return sorted(candidates, key=rank)


def has_something(view: PartitionView) -> bool:
    """Return True if the tier has a segment of the partition that stays: otherwise there is nothing to be proven."""
    return any(metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED for metadata in view.list())
