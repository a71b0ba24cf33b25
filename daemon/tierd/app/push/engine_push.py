"""The push replication of a daemon: built over its log dirs, its logs and its control plane."""

from collections.abc import Callable, Mapping
from pathlib import Path

from tierd.app.engine.compose import Engine
from tierd.app.engine.control_plane import second_leadership
from tierd.app.push.leader_side import HostPartitions
from tierd.app.push.partition_leading import TopicConfig
from tierd.app.push.push_node import PushContext, PushNode, link_identity
from tierd.log import LogConfig

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
    local = HostPartitions(
        broker_log_dirs=[each.path for each in config.log_dirs if each.owner == "kafka"],
        own_log_dirs=[each.path for each in config.log_dirs if each.owner == "tierd"],
        service=engine.logs.service,
        source=second_leadership(engine.control, config.leadership, identity, clock=engine.clock, random=engine.random),
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
            clock=engine.clock,
            random=engine.random,
            is_short=is_short,
        )
    )
    await node.start()
    return node


def _topic_config(engine: Engine) -> Callable[[str, Path], TopicConfig]:
    """Return the lookup of the settings that the copies of a topic follow, by topic and log dir.

    The settings of tierd's own logs are known here, and those of a broker's topics come from the brokers. Without a
    connection to the brokers the settings are empty: the copies keep all that their leader keeps.
    """
    of_broker = engine.control.topic_settings()
    own = {each.path for each in engine.deployment.config.log_dirs if each.owner == "tierd"}

    def config_for(topic: str, log_dir: Path) -> TopicConfig:
        if log_dir in own:
            return own_topic_config(engine.logs.config_for(topic))
        return broker_topic_config(None if of_broker is None else of_broker(topic))

    return config_for


def broker_topic_config(settings: Mapping[str, str] | None) -> TopicConfig:
    """Return the settings of a broker's topic; empty while they are not known."""
    return tuple(sorted((settings or {}).items()))


def own_topic_config(config: LogConfig) -> TopicConfig:
    """Return the settings of one of tierd's own logs, under Kafka's names."""
    values = {name.replace("_", "."): _text(getattr(config, name)) for name in _OWN_SETTINGS}
    return tuple(sorted(values.items()))


def _text(value: object) -> str:
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value).lower() if isinstance(value, bool) else str(value)
