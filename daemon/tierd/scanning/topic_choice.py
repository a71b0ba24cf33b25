"""The topics of tier and local log, and the incarnation of a topic that a name means. Pure."""

import difflib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from tierd.errors import UnknownPartitionError
from tierd.model import TopicIdPartition, uuid_to_text


@dataclass(frozen=True, slots=True)
class TieredTopic:
    """One incarnation of a topic: a topic that was deleted and created again has another id.

    Attributes:
        topic_id: as Kafka prints it.
        partitions: numbers of the partitions that the tier or a log dir of this host has, ascending.
        is_local: a log dir of this host has a partition of it.
    """

    name: str
    topic_id: str
    partitions: tuple[int, ...]
    is_local: bool


def tiered_topics(known: Iterable[TopicIdPartition], local: Collection[TopicIdPartition]) -> list[TieredTopic]:
    """Return every incarnation of every topic, in order of names and ids; ``known`` may contain ``local``."""
    numbers: defaultdict[tuple[str, UUID], set[int]] = defaultdict(set)
    for partition in (*known, *local):
        numbers[partition.topic, partition.topic_id].add(partition.partition)
    here = {(partition.topic, partition.topic_id) for partition in local}
    return [
        TieredTopic(name, uuid_to_text(topic_id), tuple(sorted(found)), (name, topic_id) in here)
        for (name, topic_id), found in sorted(numbers.items())
    ]


def incarnation(name: str, topics: Collection[TieredTopic], copied: Mapping[str, tuple[bool, int]]) -> TieredTopic:
    """Return the incarnation that ``name`` means: the local one, else the one that was copied last.

    Args:
        name: the topic.
        topics: all topics.
        copied: for the ids of the incarnations, if there are several, the key of ``copied_last_ms``.

    Raises:
        UnknownPartitionError: there is no such topic.
    """
    found = [topic for topic in topics if topic.name == name]
    if not found:
        near = difflib.get_close_matches(name, sorted({topic.name for topic in topics}), n=1)
        raise UnknownPartitionError(
            f"no log dir and no metadata knows a topic {name}{f'; did you mean {near[0]}?' if near else ''}",
            remedy="a topic gets into the tier with its first rolled segment; topics() lists the topics",
        )
    return max(found, key=lambda topic: (topic.is_local, copied.get(topic.topic_id, (False, -1))))


def chosen_partitions(topic: TieredTopic, wanted: Iterable[int] | None) -> tuple[int, ...]:
    """Return the partitions to read, ascending; None means all.

    Raises:
        UnknownPartitionError: neither the tier nor a log dir has one of them.
    """
    if wanted is None:
        return topic.partitions
    numbers = sorted(set(wanted))
    missing = [number for number in numbers if number not in topic.partitions]
    if missing:
        raise UnknownPartitionError(
            f"no log dir and no metadata knows {topic.name}-{missing[0]}",
            remedy=f"the partitions of topic {topic.name} are {', '.join(map(str, topic.partitions))}",
        )
    return tuple(numbers)
