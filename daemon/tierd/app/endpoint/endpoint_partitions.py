"""EndpointPartitions: everything that one endpoint serves, from the log dirs, the metadata store and the brokers."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tierd.app.endpoint.endpoint_log import EndpointLog
from tierd.app.endpoint.endpoint_peers import EndpointPeers
from tierd.app.endpoint.partition_source import PartitionSource, SourceParts
from tierd.app.endpoint.replica_inventory import ReplicaInventory
from tierd.app.endpoint.served_topology import ServedTopics, TopologyFacts
from tierd.app.endpoint.stored_partitions import StoredPartitions
from tierd.clock import Clock
from tierd.model import TopicIdPartition
from tierd.serve import EndpointNode, ServedCluster, ServedTopic
from tierd.tiering import FetchService

if TYPE_CHECKING:  # at run time only where it is configured
    from tierd.app.endpoint.cluster_leaders import ClusterLeaders

_REBUILD_S: Final = 1.0
_UNUSED_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointIdentity:
    """Identity of one endpoint.

    Attributes:
        cluster_id: as clients are told.
        node_id: of the endpoint.
        broker_id: of the broker beside it.
        rack: of the host; None where it is not configured.
    """

    cluster_id: str
    node_id: int
    broker_id: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Sources of what can be served, and by whom.

    Attributes:
        replicas: of this host.
        stored: partitions of the metadata store.
        leaders: by the brokers' metadata; None where no connection to Kafka is configured.
        peers: the other endpoints.
        settings_of: returns the settings of a topic under Kafka's names.
    """

    replicas: ReplicaInventory
    stored: StoredPartitions
    leaders: "ClusterLeaders | None"
    peers: EndpointPeers
    settings_of: Callable[[str], Mapping[str, str]]


@dataclass(slots=True)
class _UsedLog:
    log: EndpointLog
    used_s: float


class EndpointPartitions:
    """Partitions of one endpoint: ``prepare`` comes first, and ``run`` keeps them current."""

    def __init__(
        self,
        identity: EndpointIdentity,
        knowledge: Knowledge,
        parts: SourceParts,
        fetches: FetchService,
        *,
        clock: Clock,
    ) -> None:
        """Read nothing yet; logs are made of ``parts`` and read through ``fetches``."""
        self._identity = identity
        self._knowledge = knowledge
        self._parts = parts
        self._fetches = fetches
        self._clock = clock
        self._addresses: dict[str, tuple[str, int]] = {}
        self._built = ServedTopics()
        self._topics: Mapping[str, ServedTopic] = {}
        self._served: frozenset[TopicIdPartition] = frozenset()
        self._clusters: dict[str, ServedCluster] = {}
        self._logs: dict[TopicIdPartition, _UsedLog] = {}
        self._seen: tuple[int, int] = (-1, -1)
        self._changed = asyncio.Event()

    # ------------------------------------------------------------------------------------------- what clients see

    def cluster(self, listener: str) -> ServedCluster:
        """Return the cluster as the clients of ``listener`` see it now. The same object while nothing has changed."""
        found = self._clusters.get(listener)
        if found is None:
            found = self._clusters[listener] = ServedCluster(
                self._identity.cluster_id, self._nodes(listener), self._identity.node_id, self._topics
            )
        return found

    def log(self, partition: TopicIdPartition) -> EndpointLog | None:
        """Return the log of a partition; None where neither a log dir of this host nor the tier has it."""
        if partition not in self._served:
            return None
        used = self._logs.get(partition)
        if used is None:
            log = EndpointLog(PartitionSource(partition, self._parts), self._fetches, clock=self._clock)
            used = self._logs[partition] = _UsedLog(log, 0.0)
        used.used_s = self._clock.monotonic_s()
        return used.log

    @property
    def live_peers(self) -> frozenset[int]:
        """Return the node ids of the other endpoints that are alive."""
        return self._knowledge.peers.live_ids

    @property
    def topics(self) -> Mapping[str, ServedTopic]:
        """Return the topics that are served now, by name."""
        return self._topics

    # ------------------------------------------------------------------------------------------- how it stays so

    def listen_at(self, addresses: Mapping[str, tuple[str, int]]) -> None:
        """Tell clients these addresses of this endpoint, by the name of the listener."""
        self._addresses = dict(addresses)
        self._clusters.clear()

    async def prepare(self) -> None:
        """Learn of partitions, leaders and peers once, before the first client asks."""
        knowledge = self._knowledge
        async with asyncio.TaskGroup() as group:
            group.create_task(knowledge.stored.refresh(), name="list partitions")
            group.create_task(knowledge.peers.refresh(), name="try peers")
        self.rebuild()
        if knowledge.leaders is not None:
            await knowledge.leaders.refresh()
            self.rebuild()

    async def run(self) -> None:
        """Follow all sources until cancelled."""
        knowledge = self._knowledge
        async with asyncio.TaskGroup() as group:
            group.create_task(knowledge.stored.watch(self._changed.set), name="list partitions")
            group.create_task(knowledge.peers.watch(), name="try peers")
            group.create_task(self._parts.views.watch(), name="watch the tier")
            if knowledge.leaders is not None:
                group.create_task(knowledge.leaders.watch(self._changed.set), name="ask for leaders")
            while True:
                await self._clock.sleep(_REBUILD_S)
                self._forget_unused()
                if self._changed.is_set() or self._seen != self._revisions():
                    self.rebuild()

    def rebuild(self) -> None:
        """Build the topics of what the sources know now."""
        knowledge = self._knowledge
        self._changed.clear()
        self._seen = self._revisions()
        stored, leaders = knowledge.stored, knowledge.leaders
        live = {self._identity.node_id, *knowledge.peers.live_ids}
        self._topics = self._built.build(
            TopologyFacts(
                replicas=tuple(knowledge.replicas.known()),
                stored=stored.partitions,
                leaders=leaders.leaders if leaders is not None else {},
                newest=stored.newest,
            ),
            node_ids=sorted(live),
            endpoint_of=lambda broker_id: self._endpoint_of(broker_id, live),
            settings_of=knowledge.settings_of,
        )
        self._served = frozenset(each.partition for topic in self._topics.values() for each in topic.partitions)
        for listener, cluster in list(self._clusters.items()):
            if cluster.topics is not self._topics or cluster.nodes != self._nodes(listener):
                del self._clusters[listener]

    def _endpoint_of(self, broker_id: int, live: "set[int]") -> int | None:
        if broker_id == self._identity.broker_id:
            return self._identity.node_id
        is_peer = broker_id in live and broker_id != self._identity.node_id
        return broker_id if is_peer else None

    def _nodes(self, listener: str) -> tuple[EndpointNode, ...]:
        identity, nodes = self._identity, self._knowledge.peers.nodes(listener)
        if listener in self._addresses:
            nodes.append(EndpointNode(identity.node_id, *self._addresses[listener], rack=identity.rack))
        return tuple(sorted(nodes, key=lambda node: node.node_id))

    def _revisions(self) -> tuple[int, int]:
        return self._knowledge.replicas.revision, self._knowledge.peers.revision

    def _forget_unused(self) -> None:
        now_s = self._clock.monotonic_s()
        for partition in [each for each, used in self._logs.items() if now_s - used.used_s >= _UNUSED_S]:
            del self._logs[partition]
