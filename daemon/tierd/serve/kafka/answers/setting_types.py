"""Types of Kafka's settings, as an answer to DescribeConfigs tells them."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class SettingType(IntEnum):
    """Type of a setting's value (Kafka: DescribeConfigsResponse.ConfigType)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


_OF_TOPICS: Final[Mapping[SettingType, tuple[str, ...]]] = {
    SettingType.BOOLEAN: (
        "message.downconversion.enable",
        "preallocate",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        "unclean.leader.election.enable",
    ),
    SettingType.STRING: ("compression.type", "message.format.version", "message.timestamp.type"),
    SettingType.INT: (
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "index.interval.bytes",
        "max.message.bytes",
        "min.insync.replicas",
        "segment.bytes",
        "segment.index.bytes",
    ),
    SettingType.LONG: (
        "delete.retention.ms",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "local.retention.bytes",
        "local.retention.ms",
        "max.compaction.lag.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "min.compaction.lag.ms",
        "retention.bytes",
        "retention.ms",
        "segment.jitter.ms",
        "segment.ms",
    ),
    SettingType.DOUBLE: ("min.cleanable.dirty.ratio",),
    SettingType.LIST: (
        "cleanup.policy",
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    ),
}
TOPIC_SETTING_TYPES: Final[Mapping[str, SettingType]] = {
    name: kind for kind, names in _OF_TOPICS.items() for name in names
}
"""Type by the name of a topic's setting (Kafka: LogConfig.configType)."""
