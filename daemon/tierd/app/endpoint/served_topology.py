"""Topics as an endpoint shows them: the incarnation of a name, the leaders and their epochs. Decisions only, no I/O."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from tierd.model import TopicIdPartition
from tierd.serve import ServedPartition, ServedTopic
from tierd.tiering import TopicPolicy


@dataclass(frozen=True, slots=True)
class KnownPartition:
    """A partition that can be served, as one source of knowledge has it.

    Attributes:
        leader_epoch: the highest one that the source knows; -1 for none.
        broker_id: broker that leads it; None where the source does not know.
    """

    partition: TopicIdPartition
    leader_epoch: int = -1
    broker_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyFacts:
    """Facts of one moment.

    Attributes:
        replicas: partitions in the log dirs of this host.
        stored: partitions of the metadata store.
        leaders: by the brokers' metadata; also of partitions that nothing else knows.
        newest: by name of a topic the incarnation that was copied last, for names of which the store has several.
    """

    replicas: Sequence[KnownPartition] = ()
    stored: Sequence[KnownPartition] = ()
    leaders: Mapping[TopicIdPartition, KnownPartition] = field(default_factory=dict)
    newest: Mapping[str, UUID] = field(default_factory=dict)


def incarnations(facts: TopologyFacts) -> dict[str, UUID]:
    """Return the topic id under which each name is served: the newest incarnation.

    The brokers know best, then the log dirs, whose names the broker gives to the present incarnation; then the tier.
    """
    chosen: dict[str, UUID] = {}
    for stored in facts.stored:
        name = stored.partition.topic
        chosen[name] = facts.newest.get(name, stored.partition.topic_id)
    for source in (facts.replicas, facts.leaders.values()):
        for known in source:
            chosen[known.partition.topic] = known.partition.topic_id
    return chosen


def ambiguous_topics(stored: Iterable[KnownPartition]) -> dict[str, set[UUID]]:
    """Return the names of which the store has several incarnations, with their topic ids."""
    ids: defaultdict[str, set[UUID]] = defaultdict(set)
    for known in stored:
        ids[known.partition.topic].add(known.partition.topic_id)
    return {name: found for name, found in ids.items() if len(found) > 1}


class ServedTopics:
    """Topics from facts. It remembers the leader epochs that were shown: none goes back."""

    def __init__(self) -> None:
        self._epochs: dict[TopicIdPartition, int] = {}
        self._topics: Mapping[str, ServedTopic] = {}

    def build(
        self,
        facts: TopologyFacts,
        *,
        node_ids: Sequence[int],
        endpoint_of: Callable[[int], int | None],
        settings_of: Callable[[str], Mapping[str, str]],
    ) -> Mapping[str, ServedTopic]:
        """Return the topics by name; the same object while nothing has changed.

        Args:
            facts: of this moment.
            node_ids: the live endpoints, at least one.
            endpoint_of: returns the node id of the live endpoint beside a broker; None where there is none.
            settings_of: returns the settings of a topic.
        """
        ids = incarnations(facts)
        known = self._known(facts, ids)
        partitions: defaultdict[str, list[ServedPartition]] = defaultdict(list)
        for partition, each in known.items():
            leader_id = None if each.broker_id is None else endpoint_of(each.broker_id)
            if leader_id is None:
                leader_id = spread(partition, node_ids)
            partitions[partition.topic].append(ServedPartition(partition, leader_id, each.leader_epoch))
        topics = {
            name: ServedTopic(name, ids[name], tuple(sorted(found, key=_number)), settings=settings_of(name))
            for name, found in sorted(partitions.items())
        }
        if topics != self._topics:
            self._topics = topics
        return self._topics

    def _known(self, facts: TopologyFacts, ids: Mapping[str, UUID]) -> dict[TopicIdPartition, KnownPartition]:
        """Return each partition once, with the leader of its highest known epoch."""
        merged: dict[TopicIdPartition, KnownPartition] = {}
        for source in (facts.replicas, facts.stored):
            for each in source:
                if ids.get(each.partition.topic) == each.partition.topic_id:
                    merged[each.partition] = _newer(merged.get(each.partition), each)
        known = {
            partition: self._not_back(_newer(each, facts.leaders.get(partition))) for partition, each in merged.items()
        }
        self._epochs = {partition: each.leader_epoch for partition, each in known.items()}
        return known

    def _not_back(self, known: KnownPartition) -> KnownPartition:
        shown = self._epochs.get(known.partition, -1)
        return known if known.leader_epoch >= shown else KnownPartition(known.partition, shown, known.broker_id)


def spread(partition: TopicIdPartition, node_ids: Iterable[int]) -> int:
    """Return one of ``node_ids`` by rendezvous hash: when an endpoint comes or goes, only its partitions move."""
    name = f"{partition.topic_id}/{partition.partition}"

    def weight(node_id: int) -> tuple[bytes, int]:
        return hashlib.blake2b(f"{node_id}/{name}".encode(), digest_size=8).digest(), node_id

    return max(node_ids, key=weight)


def _newer(known: KnownPartition | None, other: KnownPartition | None) -> KnownPartition:
    """Return the one with the higher epoch; of equal ones the one that names a leader."""
    if known is None or other is None:
        found = known or other
        assert found is not None, "one of both is given"
        return found
    if known.leader_epoch != other.leader_epoch:
        return known if known.leader_epoch > other.leader_epoch else other
    return known if known.broker_id is not None else other


def _number(served: ServedPartition) -> int:
    return served.partition.partition


def shown_settings(policy: TopicPolicy) -> Mapping[str, str]:
    """Return the settings that a policy stands for."""
    shown = {
        "retention.ms": str(policy.retention_ms),
        "retention.bytes": str(policy.retention_bytes),
        "local.retention.ms": str(policy.local_retention_ms),
        "local.retention.bytes": str(policy.local_retention_bytes),
        "segment.bytes": str(policy.segment_bytes),
        "remote.storage.enable": "true",
        "remote.log.copy.disable": "false" if policy.copy_enabled else "true",
    }
    if policy.cleanup_policy:
        shown["cleanup.policy"] = ",".join(sorted(policy.cleanup_policy))
    return shown
