"""Ends of partitions as the catalogue has seen them, so that no offset is issued twice (trap 3). Decisions only."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore.catalogue.catalogue_objects import Positions

MOST_AHEAD: Final = 1 << 31
"""Offsets that a partition may have got between the last known log end and a commit."""


class KnownEnd(NamedTuple):
    """Log end of a partition as the catalogue has seen it, exclusive, and the time of that positions object."""

    end_offset: int
    taken_ms: int


def known_ends(positions: Iterable[Positions]) -> dict[TopicIdPartition, KnownEnd]:
    """Return the largest log end of every partition; of equal ones the one that was seen first."""
    ends: dict[TopicIdPartition, KnownEnd] = {}
    for each in positions:
        for partition, found in each.partitions.items():
            candidate, present = KnownEnd(found.log_end_offset, each.taken_ms), ends.get(partition)
            if present is None or _rank(candidate) > _rank(present):
                ends[partition] = candidate
    return ends


def committed_ends(positions: Iterable[Positions]) -> dict[TopicPartition, int]:
    """Return the largest offset that any group has committed for every partition.

    Brokers take any offset that a client commits. One that the log of a partition cannot have reached is passed over,
    where the positions have the log end of the partition.
    """
    objects = list(positions)
    log_ends: dict[TopicPartition, int] = {}
    for partition, known in known_ends(objects).items():
        name = partition.topic_partition
        log_ends[name] = max(known.end_offset, log_ends.get(name, 0))
    ends: dict[TopicPartition, int] = {}
    for each in objects:
        for commits in each.groups.values():
            for name, commit in commits.items():
                if name not in log_ends or commit.offset - log_ends[name] <= MOST_AHEAD:
                    ends[name] = max(commit.offset, ends.get(name, 0))
    return ends


def _rank(end: KnownEnd) -> tuple[int, int]:
    return end.end_offset, -end.taken_ms
