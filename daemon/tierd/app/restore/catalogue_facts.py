"""CatalogueFacts: what the catalogue in the bucket tells a plan of topics, log ends and committed offsets."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tierd.app.restore.restore_source import RestoreSource
from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore import (
    CataloguedNode,
    CataloguedSnapshot,
    CataloguedTopic,
    KnownEnd,
    PositionsAt,
    committed_ends,
    known_ends,
    parse_cluster_snapshot,
    positions_at,
    read_positions_at,
)


@dataclass(frozen=True, slots=True)
class CatalogueFacts:
    """Content of the catalogue, as far as a plan needs it; empty where a tier has none.

    Attributes:
        topics: the newest version of each topic, by topic id.
        ends: the newest log ends.
        committed: the largest committed offsets.
        cut: positions at the time of the target; None where none is asked for.
        problems: objects that could not be used.
    """

    topics: Mapping[UUID, CataloguedTopic] = field(default_factory=dict)
    ends: Mapping[TopicIdPartition, KnownEnd] = field(default_factory=dict)
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)
    cut: PositionsAt | None = None
    problems: tuple[str, ...] = ()

    def settings(self, topic_id: UUID) -> Mapping[str, str]:
        """Return the settings of a topic that are in force, as far as the catalogue has them.

        It has those that differ from the brokers' defaults and ``EFFECTIVE_SETTINGS``, if a broker was asked.
        """
        topic = self.topics.get(topic_id)
        return {**topic.effective, **topic.config} if topic is not None and topic.is_from_cluster else {}

    def is_log_append_time(self, topic_id: UUID) -> bool:
        """Return True if the brokers stamp the records of the topic."""
        return self.settings(topic_id).get("message.timestamp.type") == "LogAppendTime"

    def replicas(self, partition: TopicIdPartition) -> tuple[int, ...]:
        """Return the brokers with a replica; empty where no broker was asked."""
        topic = self.topics.get(partition.topic_id)
        if topic is None or not topic.is_from_cluster:
            return ()
        return topic.assignment.get(partition.partition, ())

    def is_of(self, partition: TopicIdPartition, node_id: int) -> bool | None:
        """Return True if the broker has a replica; None where the catalogue does not know.

        Where no broker was asked, the catalogue knows the nodes that have led the partition, and no others.
        """
        topic = self.topics.get(partition.topic_id)
        seen = () if topic is None else topic.assignment.get(partition.partition, ())
        if node_id in seen:
            return True
        return False if topic is not None and topic.is_from_cluster and seen else None


async def read_catalogue(
    source: RestoreSource, partitions: Collection[TopicIdPartition], *, at_ms: int | None
) -> CatalogueFacts:
    """Read the catalogue of the tier, for these partitions and a moment.

    Raises:
        RemoteStorageError: the store failed, or the objects are of a later tierd.
    """
    storage = source.catalogue
    newest = await read_positions_at(storage, None)
    problems = list(newest.problems)
    cut = None
    if at_ms is not None:
        found = await read_positions_at(storage, at_ms)
        cut, problems = positions_at(found.positions), [*problems, *found.problems]
    wanted, topics = {partition.topic_id for partition in partitions}, {}
    for identity in await storage.list_topics():
        if identity.topic_id not in wanted:
            continue
        stored = await storage.read_topic(identity)
        if stored is not None and stored.versions:
            topics[identity.topic_id] = stored.versions[-1]
        elif stored is not None:
            problems.append(stored.damage)
    return CatalogueFacts(
        topics=topics,
        ends=known_ends(newest.positions),
        committed=committed_ends(newest.positions),
        cut=cut,
        problems=tuple(dict.fromkeys(problems)),
    )


async def read_node_of(source: RestoreSource, node_id: int) -> CataloguedNode | None:
    """Return the files of a node; None where the catalogue does not have it.

    Raises:
        RemoteStorageError: the store failed, or the object is damaged or of a later tierd.
    """
    return await source.catalogue.read_node(node_id)


async def read_newest_snapshot(source: RestoreSource) -> CataloguedSnapshot | None:
    """Return the newest snapshot of the cluster metadata of any node; None where the catalogue has none.

    Raises:
        RemoteStorageError: the store failed, or an object is damaged or of a later tierd.
        CorruptRecordError: the snapshot is damaged.
    """
    storage = source.catalogue
    newest: CataloguedNode | None = None
    for node_id in await storage.list_nodes():
        node = await storage.read_node(node_id)
        if node is not None and (newest is None or node.metadata_snapshot_name > newest.metadata_snapshot_name):
            newest = node
    if newest is None or newest.metadata_snapshot is None:
        return None
    content = newest.metadata_snapshot
    snapshot = await asyncio.to_thread(parse_cluster_snapshot, newest.metadata_snapshot_name, content)
    if snapshot.end_offset == 0:
        return None  # the storage was formatted with it: it has no topics
    return CataloguedSnapshot(
        content=content, snapshot=snapshot, node_id=newest.node_id, observed_ms=newest.observed_ms
    )
