"""The read endpoint of the daemon: built over its replicas, its live metadata and its reads."""

from collections.abc import Callable

from tierd.app.endpoint.build_endpoint import EndpointContext, build_endpoint
from tierd.app.endpoint.cluster_leaders import ClusterLeaders
from tierd.app.endpoint.endpoint_partitions import EndpointIdentity, EndpointPartitions, Knowledge
from tierd.app.endpoint.endpoint_peers import EndpointPeers
from tierd.app.endpoint.endpoint_watch import EndpointWatch, RequestMetrics
from tierd.app.endpoint.log_watermarks import LogWatermarks
from tierd.app.endpoint.partition_source import SourceParts
from tierd.app.endpoint.read_endpoint import ReadEndpoint
from tierd.app.endpoint.replica_inventory import DaemonReplicas
from tierd.app.endpoint.served_topology import shown_settings
from tierd.app.endpoint.stored_partitions import StoredPartitions
from tierd.app.endpoint.tier_views import TierViews
from tierd.app.engine.compose import Engine
from tierd.app.engine.control_plane import ControlPlane
from tierd.clock import Clock
from tierd.config import KafkaConnectionSettings, KafkaEndpointSettings, LeadershipSettings
from tierd.control import BrokerWatermarks, ClusterTopics
from tierd.log import BrokerIdentity
from tierd.metadata import FollowedPartitions
from tierd.model import OffsetRange, TopicIdPartition
from tierd.tiering import FetchService, Tiering

_LOADS = 8  # partitions whose metadata is read whole at the same time


async def engine_endpoint(
    engine: Engine,
    tiering: Tiering,
    fetches: FetchService,
    *,
    is_short: Callable[[], bool],
    descriptors: int,
) -> tuple[ReadEndpoint, EndpointWatch]:
    """Build the endpoint of a daemon whose configuration has listeners; nothing listens yet.

    Raises:
        ListenError: certificate or key of the listeners cannot be used.
    """
    config, clock = engine.deployment.config, engine.clock
    settings, kafka = config.kafka, config.leadership.kafka
    keys = engine.metadata.keys
    watermarks = None if kafka is None else _broker_watermarks(kafka, engine.identity, clock)
    views = TierViews(
        engine.rows,
        keys,
        led=engine.metadata.view,
        followed=FollowedPartitions(
            engine.rows,
            keys,
            load_concurrency=_LOADS,
            strict_kafka_compat=config.metadata.strict_kafka_compat,
        ),
        clock=clock,
    )
    replicas = DaemonReplicas(
        tiering.replicas, broker_id=engine.identity.node_id, leads=_leads_by_configuration(engine.control)
    )
    log_watermarks = LogWatermarks(
        engine.logs.offsets,
        broker=watermarks,
        broker_log_dirs=[each.path for each in config.log_dirs if each.owner == "kafka"],
        clock=clock,
    )
    tiering.watermarks.on_written(log_watermarks.written)
    stored = StoredPartitions(engine.rows, keys, views, wants=engine.settings.wants, clock=clock)
    leaders = None if kafka is None else _leaders(config.leadership, engine.identity, stored, replicas, clock)
    partitions = EndpointPartitions(
        endpoint_identity(settings, engine.identity),
        Knowledge(
            replicas=replicas,
            stored=stored,
            leaders=leaders,
            peers=EndpointPeers(settings.peers, listener=settings.listeners[0].name, clock=clock),
            settings_of=lambda topic: shown_settings(engine.policies(topic)),
        ),
        SourceParts(replicas.find, log_watermarks, views, lambda partition: _held(engine, partition)),
        fetches,
        clock=clock,
    )
    context = EndpointContext(
        settings=settings,
        state_dir=config.state_dir,
        rows=engine.rows,
        keys=keys,
        recorder=RequestMetrics(engine.metrics),
        clock=clock,
        is_short=is_short,
        descriptors=descriptors,
    )
    endpoint = await build_endpoint(context, partitions, watermarks)
    return endpoint, EndpointWatch(endpoint, log_watermarks)


def endpoint_identity(settings: KafkaEndpointSettings, identity: BrokerIdentity) -> EndpointIdentity:
    """Return the identity of the endpoint beside a broker."""
    return EndpointIdentity(
        cluster_id=settings.endpoint_cluster_id(identity.cluster_id),
        node_id=identity.node_id if settings.node_id is None else settings.node_id,
        broker_id=identity.node_id,
        rack=settings.rack,
    )


def _held(engine: Engine, partition: TopicIdPartition) -> tuple[OffsetRange, ...]:
    held = engine.hold.held((partition.topic_id, partition.partition))
    return tuple(OffsetRange(each.base_offset, each.end_offset) for each in held)


def _leads_by_configuration(control: ControlPlane) -> Callable[[TopicIdPartition], bool]:
    return control.leads or (lambda _: False)


def _broker_watermarks(settings: KafkaConnectionSettings, identity: BrokerIdentity, clock: Clock) -> BrokerWatermarks:
    return BrokerWatermarks(settings, cluster_id=identity.cluster_id, node_id=identity.node_id, clock=clock)


def _leaders(
    settings: LeadershipSettings,
    identity: BrokerIdentity,
    stored: StoredPartitions,
    replicas: DaemonReplicas,
    clock: Clock,
) -> ClusterLeaders:
    kafka = settings.kafka
    assert kafka is not None, "asked for with a connection only"
    return ClusterLeaders(
        ClusterTopics(kafka, cluster_id=identity.cluster_id),
        lambda: {each.partition.topic_id: each.partition.topic for each in (*stored.partitions, *replicas.known())},
        refresh_s=kafka.refresh_s,
        clock=clock,
    )
