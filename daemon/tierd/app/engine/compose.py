"""The composition root: builds every object that copies, from one deployment."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from tierd import __version__
from tierd.app.engine.control_plane import ControlPlane, control_identity, control_plane, mqtt_control
from tierd.app.engine.deployment import Deployment
from tierd.app.engine.instance_lock import owned_state_dir
from tierd.app.engine.local_logs import LocalLogs, local_logs
from tierd.app.engine.process_epoch import next_process_epoch
from tierd.app.engine.topic_policies import TopicPolicies
from tierd.app.services.owned_object_store import OwnedObjectStore
from tierd.app.services.service_watch import ServiceWatch
from tierd.app.services.usage_keeper import UsageKeeper
from tierd.clock import Clock, SystemClock
from tierd.config import PushReplicationSettings, TierdConfig
from tierd.log import BrokerIdentity
from tierd.metadata import (
    KeyValueStore,
    MetadataManagerSettings,
    MetadataStatistics,
    RemoteLogMetadataManager,
    is_tier_known,
    metadata_keys,
    remember_tier,
    store_identity,
)
from tierd.model import TopicIdPartition, uuid_from_text
from tierd.remote import KeyRing, ObjectStore, ObjectStoreCall, SegmentStorage, Transform, claim_tier, open_transform
from tierd.telemetry import EngineUse, HoldUsage, Latency, MetadataCounts, Metrics, PartitionLag
from tierd.tiering import (
    Capacity,
    DeletionLedger,
    FollowedLogDirs,
    ManagerStatistics,
    PartitionStatus,
    PassiveSupervisor,
    RemoteLogManager,
    SegmentHold,
    Slots,
    Supervisor,
    Tiering,
    TieringContext,
    TieringSettings,
    Writer,
    assemble,
)

if TYPE_CHECKING:  # at run time only where it is configured
    from tierd.control import MqttControl


@dataclass(slots=True)
class LiveSettings:
    """Configuration in force, which a reload replaces."""

    config: TierdConfig

    def wants(self, topic: str) -> bool:
        """Return whether ``topic`` is tiered now."""
        return self.config.topics.wants(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Parts of the process, built and not yet running."""

    deployment: Deployment
    settings: LiveSettings
    identity: BrokerIdentity
    clock: Clock
    random: Callable[[], float]
    metrics: Metrics
    metadata: RemoteLogMetadataManager
    store: OwnedObjectStore
    storage: SegmentStorage
    ring: KeyRing
    transform: Transform
    new_storage: "partial[SegmentStorage]"  # makes another one over the same objects, as for reads through a cache
    hold: SegmentHold
    session_id: UUID
    process_epoch: int  # on links to other daemons; 0 where there are none
    control: ControlPlane
    services: ServiceWatch
    policies: TopicPolicies
    logs: LocalLogs
    ledger: DeletionLedger
    rows: KeyValueStore
    usage: UsageKeeper

    def new_tiering(self, supervisor: Supervisor) -> Tiering:
        """Build the tiering of this broker, whose tasks ``supervisor`` runs, and let the metrics watch it."""
        config = self.settings.config
        tiering = assemble(
            TieringContext(
                metadata=self.metadata,
                remote=self.storage,
                policies=self.policies,
                log_offsets=self.logs.offsets,
                recorder=self.metrics,
                clock=self.clock,
                writer=Writer(broker_id=self.identity.node_id, session_id=self.session_id),
                settings=TieringSettings(
                    copying=config.copying,
                    expire=config.expire,
                    strict_kafka_compat=config.metadata.strict_kafka_compat,
                ),
            ),
            FollowedLogDirs(
                paths=[log_dir.path for log_dir in config.log_dirs], hold=self.hold, wants=self.settings.wants
            ),
            leadership=self.control.source,
            supervisor=supervisor,
            capacity=Capacity(
                config.copying,
                copies=Slots(config.copying.concurrency),
                deletions=Slots(config.expire.concurrency),
                recorder=self.metrics,
                clock=self.clock,
            ),
            rows=self.rows,
            ledger=self.ledger,
            random=self.random,
        )
        self.metrics.sources.partitions = lambda: [self._lag(status) for status in tiering.manager.status()]
        self.metrics.sources.leadership = self.control.use
        self.metrics.sources.control = self.control.control_use
        self.metrics.sources.engine = lambda: _engine_use(tiering.capacity.statistics())
        return tiering

    def stored_bytes(self, manager: RemoteLogManager) -> dict[str, int]:
        """Return the bytes that the tier holds of each topic, of the partitions that this broker leads."""
        stored: dict[str, int] = {}
        for lag in map(self._lag, manager.status()):
            stored[lag.topic] = stored.get(lag.topic, 0) + lag.remote_size_bytes
        return stored

    def _lag(self, status: PartitionStatus) -> PartitionLag:
        name = status.partition
        partition = TopicIdPartition(uuid_from_text(status.topic_id), name.topic, name.partition)
        is_led = status.role == "leader" and self.metadata.is_ready(partition)
        rows = self.metadata.view(partition).list() if is_led else ()
        return PartitionLag(
            topic=name.topic,
            partition=name.partition,
            lag_segments=status.lag.segments,
            lag_bytes=status.lag.bytes,
            oldest_ms=status.lag.oldest_ms,
            state=status.state,
            metadata_count=len(rows),
            remote_size_bytes=sum(row.size_bytes for row in rows),
            delete_lag_segments=status.expiration.lag_segments,
            delete_lag_bytes=status.expiration.lag_bytes,
            in_grace_segments=status.expiration.in_grace,
            retained_segments=status.expiration.retained,
        )


@contextlib.asynccontextmanager
async def compose(deployment: Deployment) -> AsyncIterator[Engine]:
    """Open both stores and build the engine over them; close them afterwards. The caller holds the instance lock.

    Raises:
        ConfigError: cluster or node are not known, or contradictory.
        MetadataError: the metadata store is damaged.
        BackendUnavailableError: the metadata store cannot be opened.
    """
    config, clock = deployment.config, SystemClock()
    metrics = Metrics(version=__version__, clock=clock)
    identity = await deployment.identity()
    session_id = uuid4()
    settings = LiveSettings(config)
    services = ServiceWatch(clock=clock, random=random.random, with_kafka=config.leadership.kafka is not None)
    metrics.sources.unreachable_s = services.unreachable_s
    process_epoch = await _process_epoch(config, clock)
    control = control_plane(
        config.leadership,
        identity,
        clock=clock,
        random=random.random,
        on_outcome=services.kafka.outcome,
        mqtt=_mqtt(config, identity, process_epoch, clock),
        announces=config.control.mqtt.announce_leaders,
    )
    policies = TopicPolicies(lambda: settings.config.topics, control.topic_settings())
    usage = UsageKeeper(
        config.state_dir,
        config.remote,
        deployment.object_keys(identity),
        clock=clock,
        record=metrics.requests_billed,
    )
    async with (
        deployment.metadata_store(read_only=False) as rows,
        deployment.object_store(
            clock=clock,
            on_call=partial(_record_call, metrics),
            on_attempt=partial(_record_attempt, metrics, usage, services),
        ) as objects,
        local_logs(
            config.log_dirs,
            config.log_cleaner,
            topics=lambda: settings.config.topics,
            policies=policies,
            clock=clock,
        ) as logs,
    ):
        metadata = RemoteLogMetadataManager(
            rows,
            cluster_id=identity.cluster_id,
            broker_id=identity.node_id,
            session_id=session_id,
            clock=clock,
            settings=MetadataManagerSettings(
                backend_timeout_s=config.metadata.timeout_s,
                tombstone_retention_s=config.metadata.tombstone_retention_s,
                load_concurrency=config.metadata.load_concurrency,
                strict_kafka_compat=config.metadata.strict_kafka_compat,
            ),
            on_outcome=services.metadata_store.outcome,
            new_keys=partial(metadata_keys, config.metadata),
        )
        owned = await _owned(deployment, identity, metadata.rows, objects)
        transform = open_transform(config.remote)
        hold = SegmentHold(mode=config.hold.mode, hold_dir=config.hold_dir, max_bytes=config.hold.max_bytes)
        metrics.sources.holds = lambda: _hold_usage(hold, config.hold.max_bytes)
        metrics.sources.log_cleaner = logs.cleaner_use
        metrics.sources.own_logs = logs.use
        metrics.sources.metadata = lambda: _metadata_counts(metadata.statistics())
        new_storage = deployment.segment_storages(identity, owned, transform)
        try:
            yield Engine(
                deployment=deployment,
                settings=settings,
                identity=identity,
                clock=clock,
                random=random.random,
                metrics=metrics,
                metadata=metadata,
                store=owned,
                storage=new_storage(),
                ring=transform.ring,
                transform=transform,
                new_storage=new_storage,
                hold=hold,
                session_id=session_id,
                process_epoch=process_epoch,
                control=control,
                services=services,
                policies=policies,
                logs=logs,
                ledger=DeletionLedger(config.state_dir),
                rows=metadata.rows,
                usage=usage,
            )
        finally:
            await metadata.close()  # before the stores below it; running writes may end
            control.close()
            hold.close()
            transform.close()


async def _process_epoch(config: TierdConfig, clock: Clock) -> int:
    """Return the epoch of this process where other daemons hear of it; 0 otherwise."""
    if not (config.control.mqtt.is_enabled or config.push.is_configured):
        return 0
    return await asyncio.to_thread(next_process_epoch, config.state_dir, now_ms=clock.now_ms())


def _mqtt(config: TierdConfig, identity: BrokerIdentity, process_epoch: int, clock: Clock) -> "MqttControl | None":
    """Return the connection to the MQTT broker that is configured; it does not connect yet."""
    settings, push = config.control.mqtt, config.push
    if not settings.is_enabled:
        return None
    own = control_identity(
        settings,
        identity,
        node_id=identity.node_id if push.node_id is None else push.node_id,
        process_epoch=process_epoch,
        features=_features(push),
    )
    return mqtt_control(settings, own, clock=clock, random=random.random)


def _features(push: PushReplicationSettings) -> tuple[str, ...]:
    """Return the parts of push replication that this daemon has, for its presence."""
    parts = {"push": push.is_configured, "leader": push.is_leader, "standby": push.is_standby}
    return tuple(name for name, is_on in parts.items() if is_on)


async def _owned(
    deployment: Deployment, identity: BrokerIdentity, rows: KeyValueStore, objects: ObjectStore
) -> OwnedObjectStore:
    keys, key_prefix = deployment.metadata_keys(identity), deployment.object_keys(identity).prefix
    store_id = await store_identity(rows, keys, new_id=uuid4)

    async def claim() -> None:
        known = await is_tier_known(rows, keys, key_prefix=key_prefix)
        await claim_tier(objects, key_prefix=key_prefix, cluster_id=identity.cluster_id, store_id=store_id, known=known)
        if not known:
            await remember_tier(rows, keys, key_prefix=key_prefix)

    return OwnedObjectStore(objects, claim)


def _record_call(metrics: Metrics, call: ObjectStoreCall) -> None:
    metrics.object_store_called(
        call.operation, outcome=call.outcome, duration_s=call.duration_s, size_bytes=call.size_bytes
    )


def _record_attempt(metrics: Metrics, usage: UsageKeeper, services: ServiceWatch, call: ObjectStoreCall) -> None:
    services.object_store_attempted(call)
    metrics.object_store_attempted(call.operation, outcome=call.outcome)
    usage.attempted(call)


def _hold_usage(hold: SegmentHold, max_bytes: int | None) -> HoldUsage:
    held = hold.statistics()
    return HoldUsage(segments=held.segments, size_bytes=held.bytes, max_bytes=max_bytes)


def _metadata_counts(statistics: MetadataStatistics) -> MetadataCounts:
    return MetadataCounts(
        reloads=statistics.reloads,
        fenced_writes=statistics.fenced_writes,
        unknown_outcomes=statistics.unknown_outcomes,
        invalid_transitions=statistics.invalid_transitions,
        tombstones=statistics.tombstones,
        dirty_partitions=statistics.dirty_partitions,
        follower_reads=statistics.follower_reads,
        follower_loads=statistics.follower_loads,
        backend={name: Latency(call.count, call.total_s) for name, call in statistics.backend.items()},
        backend_errors={name: call.errors for name, call in statistics.backend.items()},
    )


def _engine_use(statistics: ManagerStatistics) -> EngineUse:
    return EngineUse(
        idle_ratio={"copy": statistics.copy_idle_ratio, "delete": statistics.delete_idle_ratio},
        bytes_per_second={"copy": statistics.copy_bytes_per_second},
    )


@contextlib.asynccontextmanager
async def standing_in(deployment: Deployment) -> AsyncIterator[tuple[Engine, Tiering]]:
    """Own the state directory and the tier, find what is led, and give the parts of the daemon to one command."""
    async with owned_state_dir(deployment.state_dir), compose(deployment) as engine:
        await engine.store.own()
        tiering = engine.new_tiering(PassiveSupervisor())
        async with engine.control.heard():
            await tiering.manager.discover_once()
            engine.control.require_heard()
        if engine.control.topic_configs is not None:
            await engine.control.topic_configs.refresh()
        yield engine, tiering
