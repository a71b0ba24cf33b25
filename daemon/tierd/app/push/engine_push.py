"""The push replication of a daemon: built over its log dirs, its logs and its control plane."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tierd.app.engine.compose import Engine
from tierd.app.engine.control_plane import second_leadership
from tierd.app.push.leader_side import HostPartitions
from tierd.app.push.partition_leading import SentTopicConfig
from tierd.app.push.push_node import PushContext, PushNode, link_identity
from tierd.control import StaticLeadership
from tierd.log import LogConfig
from tierd.replication import OnSession, PushSessionEndReason, PushSessionIdentity

if TYPE_CHECKING:  # at run time only where it is configured
    from tierd.control import MqttControl

_OWN_SETTINGS = (
    "cleanup_policy",
    "delete_retention_ms",
    "local_retention_bytes",
    "local_retention_ms",
    "max_compaction_lag_ms",
    "max_message_bytes",
    "min_cleanable_dirty_ratio",
    "min_compaction_lag_ms",
    "remote_storage_enable",
    "retention_bytes",
    "retention_ms",
    "segment_bytes",
    "segment_ms",
)


async def engine_push(engine: Engine, *, is_short: Callable[[], bool]) -> PushNode:
    """Build the push replication of a daemon whose configuration has it, and bind its port.

    Raises:
        ListenError: the port cannot be bound.
        PushLinkError: a certificate cannot be used.
    """
    config = engine.deployment.config
    push, identity = config.push, engine.identity
    source = second_leadership(engine.control, config.leadership, identity, clock=engine.clock, random=engine.random)
    local = HostPartitions(
        broker_log_dirs=[each.path for each in config.log_dirs if each.owner == "kafka"],
        own_log_dirs=[each.path for each in config.log_dirs if each.owner == "tierd"],
        service=engine.logs.service,
        source=source,
        close_source=_nothing_to_close if isinstance(source, StaticLeadership) else source.close,
        is_cluster_asked=config.leadership.source == "kafka",
        config_for=_topic_config(engine),
    )
    node = PushNode(
        PushContext(
            settings=lambda: engine.settings.config.push,
            identity=link_identity(
                cluster_id=identity.cluster_id,
                node_id=identity.node_id if push.node_id is None else push.node_id,
                process_epoch=engine.process_epoch,
            ),
            local=local,
            state_dir=config.state_dir,
            cleaner=config.log_cleaner,
            on_session=session_announcer(engine.control.mqtt),
            clock=engine.clock,
            random=engine.random,
            is_short=is_short,
        )
    )
    await node.start()
    if (configs := engine.control.topic_configs) is not None:
        configs.on_change(lambda _topics: node.refresh())
    return node


def _nothing_to_close() -> None:
    """Do nothing: the configuration has no connection."""


def session_announcer(mqtt: "MqttControl | None") -> OnSession:
    """Return the function that announces the begin and the end of sessions; it does nothing without an MQTT broker.

    Of several events of a partition within a second, the last one is announced.
    """
    if mqtt is None:
        return lambda _identity, _reason: None
    from tierd.control import PushEventTopic  # noqa: PLC0415 - only when configured

    control = mqtt

    def announce(identity: PushSessionIdentity, reason: PushSessionEndReason | None) -> None:
        control.state.announce_session(
            PushEventTopic(identity.partition.topic_id, identity.partition.partition, identity.replica_id),
            "started" if reason is None else "ended",
            leader_epoch=identity.leader_epoch,
            replica_epoch=identity.replica_epoch,
            session_id=identity.session_id,
            reason="" if reason is None else reason.name,
        )
        control.wake()

    return announce


def _topic_config(engine: Engine) -> Callable[[str, Path], SentTopicConfig]:
    """Return the lookup of the settings that the copies of a topic follow, by topic and log dir.

    The settings of tierd's own logs are known here, and those of a broker's topics come from the brokers. Without a
    connection to the brokers the settings are empty: the copies keep all that their leader keeps.
    """
    of_broker = engine.control.topic_settings()
    own = {each.path for each in engine.deployment.config.log_dirs if each.owner == "tierd"}

    def config_for(topic: str, log_dir: Path) -> SentTopicConfig:
        if log_dir in own:
            return own_topic_config(engine.logs.config_for(topic))
        return broker_topic_config(None if of_broker is None else of_broker(topic))

    return config_for


def broker_topic_config(settings: Mapping[str, str] | None) -> SentTopicConfig:
    """Return the settings of a broker's topic; empty while they are not known."""
    return tuple(sorted((settings or {}).items()))


def own_topic_config(config: LogConfig) -> SentTopicConfig:
    """Return the settings of one of tierd's own logs, under Kafka's names."""
    values = {name.replace("_", "."): _text(getattr(config, name)) for name in _OWN_SETTINGS}
    return tuple(sorted(values.items()))


def _text(value: object) -> str:
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value).lower() if isinstance(value, bool) else str(value)
