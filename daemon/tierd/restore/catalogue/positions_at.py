"""PositionsAt: the cut over all nodes at one moment, combined from the last positions object of each (DESIGN 13)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore.catalogue.catalogue_objects import (
    CommittedPosition,
    CoordinatedGroups,
    PartitionPositions,
    Positions,
)

K = TypeVar("K")
E = TypeVar("E", PartitionPositions, CoordinatedGroups)


class LoweredCommit(NamedTuple):
    """Committed offset above the high watermark of the cut, which ``PositionsAt`` has lowered to that."""

    group: str
    partition: TopicPartition
    committed_offset: int
    lowered_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsAt:
    """Positions of a cluster at one moment.

    Attributes:
        partitions: of each partition, what the node with the highest leader epoch said; of two with one epoch, the
            later one.
        groups: committed offsets by group, none above the high watermark of its partition. A group counts as the node
            with the highest leader epoch of its partition of ``__consumer_offsets`` has it.
        lowered: the commits that were lowered, by group and partition.
        taken_ms: moment of each node's object, which says how fine the cut is.
        watermarks: high watermarks by name; of several incarnations of a topic, of the one that was seen last.
    """

    partitions: Mapping[TopicIdPartition, PartitionPositions]
    groups: Mapping[str, Mapping[TopicPartition, CommittedPosition]]
    lowered: tuple[LoweredCommit, ...]
    taken_ms: Mapping[int, int]
    watermarks: Mapping[TopicPartition, int]

    def high_watermark(self, partition: TopicPartition, commit: CommittedPosition) -> int | None:
        """Return the high watermark that bounds ``commit``; None for a partition that no node led.

        A topic that was deleted and created again may have two ids. The commit's own topic id decides, or where the
        commit has none, the id that was seen last.
        """
        if commit.topic_id is not None:
            identity = TopicIdPartition(commit.topic_id, partition.topic, partition.partition)
            if identity in self.partitions:
                return self.partitions[identity].high_watermark
        return self.watermarks.get(partition)


def positions_at(found: Iterable[Positions]) -> PositionsAt:
    """Combine the last positions of each node, one object a node."""
    objects = sorted(found, key=lambda each: (each.taken_ms, each.node_id))
    partitions = _of_highest_epoch(item for each in objects for item in each.partitions.items())
    coordinated = _of_highest_epoch(item for each in objects for item in each.coordinated.items())
    groups = {group: dict(commits) for each in coordinated.values() for group, commits in each.groups.items()}
    cut = PositionsAt(
        partitions=partitions,
        groups=groups,
        lowered=(),
        taken_ms={each.node_id: each.taken_ms for each in objects},
        watermarks={
            partition.topic_partition: partitions[partition].high_watermark
            for positions in objects
            for partition in positions.partitions
        },
    )
    lowered = tuple(_above_cut(cut))
    for each in lowered:
        commits = groups[each.group]
        commits[each.partition] = replace(commits[each.partition], offset=each.lowered_offset)
    return replace(cut, lowered=lowered)


def _of_highest_epoch(found: Iterable[tuple[K, E]]) -> dict[K, E]:
    """Return what the highest leader epoch of each partition says; of two with one epoch, the later one."""
    newest: dict[K, E] = {}
    for partition, each in found:
        known = newest.get(partition)
        if known is None or each.leader_epoch >= known.leader_epoch:
            newest[partition] = each
    return newest


def _above_cut(cut: PositionsAt) -> Iterable[LoweredCommit]:
    for group, commits in sorted(cut.groups.items()):
        for partition, commit in sorted(commits.items()):
            watermark = cut.high_watermark(partition, commit)
            if watermark is not None and commit.offset > watermark:
                yield LoweredCommit(group, partition, commit.offset, watermark)
