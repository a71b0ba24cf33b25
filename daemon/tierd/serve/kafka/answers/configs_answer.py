"""Answer to DescribeConfigs: settings of topics as far as they are known, and the few that an endpoint has."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.answers.client_access import ClientAccess
from tierd.serve.kafka.answers.shown_cluster import error_of_absent_topic
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.served.served_cluster import EndpointNode, ServedCluster


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


# Kafka: DescribeConfigsResponse.ConfigSource
_OF_TOPIC: Final = i8(1)
_OF_STATIC_BROKER: Final = i8(4)


@dataclass(frozen=True, slots=True)
class _Setting:
    value: str
    kind: SettingType = SettingType.STRING
    documentation: str | None = None


@dataclass(frozen=True, slots=True)
class _ResourceSettings:
    """Settings of one resource, or the error that is answered in their place."""

    settings: Mapping[str, _Setting] = field(default_factory=dict)
    source: i8 = _OF_TOPIC
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


def configs_answer(
    request: RequestPayload, cluster: ServedCluster, access: ClientAccess, more: Mapping[str, str]
) -> ResponsePayload:
    """Return the settings of the resources that were asked for, all of them read-only and without synonyms.

    A resource that is there several times is answered once: else a small request could ask for a huge answer.

    Args:
        request: any version.
        cluster: as the client's listener shows it.
        access: of the client. Settings of endpoints are shown to every client.
        more: settings of this endpoint beyond those that come from ``cluster``, under Kafka's names.
    """
    wanted = in_version(request, DescribeConfigsRequest)
    results = (
        _result(each, _found(each, cluster, access, more), with_documentation=wanted.include_documentation)
        for each in dict.fromkeys(wanted.resources)
    )
    return answer_in_version(request, DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=tuple(results)))


def _found(
    resource: DescribeConfigsResource, cluster: ServedCluster, access: ClientAccess, more: Mapping[str, str]
) -> _ResourceSettings:
    match resource.resource_type:  # Kafka: ConfigResource.Type
        case 2:  # TOPIC
            return _of_topic(resource.resource_name, cluster, access)
        case 4:  # BROKER
            return _of_broker(resource.resource_name, cluster, more)
        case kind:
            return _ResourceSettings(
                error_code=ErrorCode.invalid_request,
                error_message=f"tierd's read endpoint has no settings of resource type {kind}",
            )


def _of_topic(name: str, cluster: ServedCluster, access: ClientAccess) -> _ResourceSettings:
    if not access.may_describe(name):
        return _ResourceSettings(error_code=ErrorCode.topic_authorization_failed)
    topic = cluster.topics.get(name)
    if topic is None:
        return _ResourceSettings(error_code=error_of_absent_topic(name))
    return _ResourceSettings(
        {
            key: _Setting(value, TOPIC_SETTING_TYPES.get(key, SettingType.UNKNOWN))
            for key, value in sorted(topic.settings.items())
        }
    )


def _of_broker(name: str, cluster: ServedCluster, more: Mapping[str, str]) -> _ResourceSettings:
    if not name:  # the defaults of the cluster that a person has set: none can be set here
        return _ResourceSettings(source=_OF_STATIC_BROKER)
    if name != str(cluster.node_id):
        return _ResourceSettings(
            error_code=ErrorCode.invalid_request,
            error_message=f"this is endpoint {cluster.node_id}; ask endpoint {name} for its own settings",
        )
    node = next((each for each in cluster.nodes if each.node_id == cluster.node_id), None)
    own = dict(_endpoint_settings(node)) if node is not None else {}
    return _ResourceSettings(own | {key: _Setting(value) for key, value in more.items()}, _OF_STATIC_BROKER)


def _endpoint_settings(node: EndpointNode) -> Iterator[tuple[str, _Setting]]:
    yield "node.id", _Setting(str(node.node_id), SettingType.INT, "The id of this endpoint.")
    yield "broker.id", _Setting(str(node.node_id), SettingType.INT, "The id of this endpoint.")
    if node.rack is not None:
        yield "broker.rack", _Setting(node.rack, SettingType.STRING, "The rack of this endpoint's host.")
    off = SettingType.BOOLEAN, "The read endpoint is read-only."
    yield "auto.create.topics.enable", _Setting("false", *off)
    yield "delete.topic.enable", _Setting("false", *off)


def _result(
    resource: DescribeConfigsResource, found: _ResourceSettings, *, with_documentation: bool
) -> DescribeConfigsResult:
    keys = frozenset(resource.configuration_keys or found.settings)  # none stands for all, as in Kafka
    chosen = {name: each for name, each in found.settings.items() if name in keys}
    return DescribeConfigsResult(
        error_code=found.error_code,
        error_message=found.error_message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(_entries(chosen, found.source, with_documentation=with_documentation)),
    )


def _entries(
    settings: Mapping[str, _Setting], source: i8, *, with_documentation: bool
) -> Iterable[DescribeConfigsResourceResult]:
    for name, setting in settings.items():
        yield DescribeConfigsResourceResult(
            name=name,
            value=setting.value,
            read_only=True,
            config_source=source,
            is_sensitive=False,
            synonyms=(),
            config_type=i8(setting.kind),
            documentation=setting.documentation if with_documentation else None,
        )
