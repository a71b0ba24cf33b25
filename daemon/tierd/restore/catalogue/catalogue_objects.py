"""The catalogue's objects as values (DESIGN 13): topics, and positions at one wall-clock moment.

::

    <prefix>/<cluster id>/catalogue/topics/<topic>-<topic id>.json
    <prefix>/<cluster id>/catalogue/positions/<UTC time>-<node id>.json.zst
    <prefix>/<cluster id>/catalogue/nodes/<node id>.json
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tierd.model import TopicIdPartition, TopicPartition

EFFECTIVE_SETTINGS: Final = ("cleanup.policy", "message.timestamp.type", "retention.bytes", "retention.ms")
"""Settings of a topic that the plan of a restore needs also where the topic leaves them to the brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguedTopic:
    """One topic as the cluster knew it at ``observed_ms``.

    Attributes:
        partition_count: the largest number that was seen in log dirs, where no broker was asked.
        replication_factor: 0 where no broker was asked.
        config: non-default settings only; empty where no broker was asked.
        effective: values of ``EFFECTIVE_SETTINGS`` that are in force, by the topic or by the defaults of the brokers;
            empty where no broker was asked, or by a tierd before these were kept.
        assignment: the replicas of each partition, the preferred leader first; where no broker was asked, the nodes
            that were seen to lead it.
        is_from_cluster: a broker was asked; False for what log dirs say alone.
    """

    name: str
    topic_id: UUID
    partition_count: int
    replication_factor: int
    config: Mapping[str, str]
    assignment: Mapping[int, tuple[int, ...]]
    observed_ms: int
    is_from_cluster: bool = True
    effective: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPositions:
    """Offsets of one partition's local log at the moment of its positions object.

    Attributes:
        log_start_offset: inclusive; of the local log, the tier may begin earlier.
        log_end_offset: exclusive.
        high_watermark: exclusive; a broker writes it down every five seconds, so it is a lower bound.
        leader_epoch: epoch under which the node led.
    """

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedPosition:
    """Committed offset of a consumer group for one partition.

    Attributes:
        offset: the next offset that the group reads.
        leader_epoch: -1 where the commit had none.
        metadata: the client's text.
        committed_ms: time of the commit.
        topic_id: of the partition; None where the commit had none, as before Kafka 4.1.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatedGroups:
    """Groups whose commits are in one partition of ``__consumer_offsets``.

    Attributes:
        leader_epoch: epoch under which the node led that partition.
        groups: committed offsets by group. A group that is not here has none.
    """

    leader_epoch: int
    groups: Mapping[str, Mapping[TopicPartition, CommittedPosition]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """Positions of one node at one wall-clock moment.

    Attributes:
        partitions: those that the node led.
        coordinated: the partitions of ``__consumer_offsets`` that the node led, with the groups in each.
    """

    node_id: int
    taken_ms: int
    partitions: Mapping[TopicIdPartition, PartitionPositions]
    coordinated: Mapping[int, CoordinatedGroups]

    @property
    def groups(self) -> dict[str, Mapping[TopicPartition, CommittedPosition]]:
        """Return the committed offsets of the groups that the node coordinated, by group."""
        return {group: commits for each in self.coordinated.values() for group, commits in each.groups.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CataloguedNode:
    """Files of one node that a new disk needs, as they were at ``observed_ms``.

    Attributes:
        meta_properties: content of the file of each log dir, by the path of the log dir.
        metadata_snapshot: the newest snapshot of the cluster metadata; None where no log dir has one.
        metadata_snapshot_name: its file name, ``<end offset>-<epoch>.checkpoint``; empty without a snapshot.
        metadata_log_dir: path of the log dir that has the cluster metadata; empty without a snapshot.
    """

    node_id: int
    meta_properties: Mapping[str, str]
    metadata_snapshot: bytes | None
    metadata_snapshot_name: str
    observed_ms: int
    metadata_log_dir: str = ""
