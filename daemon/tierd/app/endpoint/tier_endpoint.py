"""The read endpoint of a process without daemon and broker: over open stores, and the log dirs that are there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tierd.app.endpoint.build_endpoint import EndpointContext, build_endpoint
from tierd.app.endpoint.endpoint_partitions import EndpointIdentity, EndpointPartitions, Knowledge
from tierd.app.endpoint.endpoint_peers import EndpointPeers
from tierd.app.endpoint.endpoint_watch import EndpointWatch
from tierd.app.endpoint.listed_replicas import ListedReplicas
from tierd.app.endpoint.log_watermarks import LogWatermarks
from tierd.app.endpoint.partition_source import SourceParts
from tierd.app.endpoint.read_endpoint import ReadEndpoint
from tierd.app.endpoint.stored_partitions import StoredPartitions
from tierd.app.endpoint.tier_views import TierViews, leads_none
from tierd.metadata import FollowedPartitions, KeyValueStore
from tierd.tiering import BrokerLogOffsets, FetchService

_LOADS = 8  # partitions whose metadata is read whole at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTier:
    """The tier that a process without a daemon serves.

    Attributes:
        rows: its metadata, only read.
        replicas: of this host.
        log_dirs: that have them.
        wants: tells whether a topic is served.
        settings_of: returns the settings of a topic under Kafka's names.
        strict_kafka_compat: as in ``PartitionView``.
        is_final: the cluster writes no more, so that the end of the tier is the end of each log.
    """

    rows: KeyValueStore
    replicas: ListedReplicas
    log_dirs: tuple[Path, ...]
    wants: Callable[[str], bool]
    settings_of: Callable[[str], Mapping[str, str]]
    strict_kafka_compat: bool
    is_final: bool


@dataclass(frozen=True, slots=True)
class TierEndpoint:
    """The endpoint with its parts that need work of their own.

    Attributes:
        replicas: to be watched.
        watermarks: are told of what the watch finds.
    """

    endpoint: ReadEndpoint
    watch: EndpointWatch
    replicas: ListedReplicas
    watermarks: LogWatermarks


async def tier_endpoint(
    tier: ServedTier, identity: EndpointIdentity, fetches: FetchService, context: EndpointContext
) -> TierEndpoint:
    """Build the endpoint; nothing listens yet.

    Raises:
        ListenError: certificate or key of the listeners cannot be used.
    """
    clock, keys, settings = context.clock, context.keys, context.settings
    followed = FollowedPartitions(
        tier.rows, keys, load_concurrency=_LOADS, strict_kafka_compat=tier.strict_kafka_compat
    )
    views = TierViews(tier.rows, keys, led=leads_none, followed=followed, clock=clock)
    watermarks = LogWatermarks(BrokerLogOffsets(), broker=None, broker_log_dirs=tier.log_dirs, clock=clock)
    partitions = EndpointPartitions(
        identity,
        Knowledge(
            replicas=tier.replicas,
            stored=StoredPartitions(tier.rows, keys, views, wants=tier.wants, clock=clock),
            leaders=None,
            peers=EndpointPeers(settings.peers, listener=settings.listeners[0].name, clock=clock),
            settings_of=tier.settings_of,
        ),
        SourceParts(tier.replicas.find, watermarks, views, is_tier_final=tier.is_final),
        fetches,
        clock=clock,
    )
    endpoint = await build_endpoint(context, partitions, None)
    return TierEndpoint(endpoint, EndpointWatch(endpoint, watermarks), tier.replicas, watermarks)
