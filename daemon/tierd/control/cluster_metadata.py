"""Cluster metadata from a broker's answers, as values: parsed once, at the door."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Address of a broker; ``node_id`` is None for a broker that only the configuration names."""

    host: str
    port: int
    node_id: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """The leader and the replicas of a partition; ``leader_id`` is -1 while there is no leader."""

    partition: int
    leader_id: int
    leader_epoch: int
    replica_ids: tuple[int, ...] = ()


class TopicKnowledge(Enum):
    """State of a topic id according to a broker's answer."""

    KNOWN = "known"
    UNKNOWN = "unknown"  # no topic with this id in the metadata that this broker has
    DENIED = "denied"  # there is one, and tierd may not describe it
    FAILED = "failed"  # the broker could not say


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """A broker's answer about one topic id; ``partitions`` are in no order, and none unless it is KNOWN."""

    topic_id: UUID
    knowledge: TopicKnowledge
    partitions: tuple[PartitionLeader, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """A broker's answer to a Metadata request.

    Attributes:
        brokers: those alive, as far as this broker knows.
        cluster_id: None from a broker that does not know it yet.
        controller_id: None while the broker knows none. With KRaft it is any broker alive.
    """

    cluster_id: str | None
    brokers: tuple[BrokerAddress, ...]
    topics: tuple[TopicLeaders, ...]
    controller_id: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerSoftware:
    """Version and abilities of a broker.

    Attributes:
        requests: API key to lowest and highest version, both inclusive.
        metadata_version: highest level of the feature ``metadata.version`` that it supports; None with ZooKeeper.
    """

    requests: Mapping[int, tuple[int, int]]
    metadata_version: int | None


@dataclass(frozen=True, slots=True)
class QuorumLeader:
    """The active controller as the metadata quorum has it; ``node_id`` is None where ``error`` or no leader is."""

    node_id: int | None
    epoch: int = -1
    error: str = ""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """A broker's answer about one topic's settings; None where the broker gave none, with the reason in ``error``.

    Attributes:
        defaults: settings that the topic leaves to the brokers, where only those of the topic were asked for.
    """

    topic: str
    settings: dict[str, str] | None
    error: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)
