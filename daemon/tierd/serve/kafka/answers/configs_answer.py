"""Answer to DescribeConfigs: settings of topics as far as they are known, and the few that an endpoint has."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
from tierd.serve.kafka.answers.setting_types import TOPIC_SETTING_TYPES, SettingType
from tierd.serve.kafka.answers.shown_cluster import error_of_absent_topic
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.served.served_cluster import EndpointNode, ServedCluster

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
