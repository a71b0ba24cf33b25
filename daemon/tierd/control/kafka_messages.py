"""Kafka's requests and answers of a connection and of the daemon, through kio's typed messages; no I/O."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from uuid import UUID

from kio.schema.api_versions.v3 import ApiVersionsRequest, ApiVersionsResponse
from kio.schema.describe_configs.v4 import DescribeConfigsRequest, DescribeConfigsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsResource
from kio.schema.describe_configs.v4.response import DescribeConfigsResult
from kio.schema.describe_quorum.v0 import DescribeQuorumRequest, DescribeQuorumResponse
from kio.schema.describe_quorum.v0 import request as quorum_request
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import MetadataRequest, MetadataResponse
from kio.schema.metadata.v12.request import MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponseTopic
from kio.schema.sasl_authenticate.v2 import SaslAuthenticateRequest, SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1 import SaslHandshakeRequest, SaslHandshakeResponse
from kio.schema.types import TopicName
from kio.static.primitive import i8, i32

from tierd.control.cluster_metadata import (
    BrokerAddress,
    BrokerSoftware,
    ClusterMetadata,
    PartitionLeader,
    QuorumLeader,
    TopicConfig,
    TopicKnowledge,
    TopicLeaders,
)
from tierd.control.kafka_framing import REQUEST_NAMES, Request, error_name, typed_request

_TOPIC_RESOURCE: Final = 2
_OF_TOPIC: Final = 1  # the source DYNAMIC_TOPIC_CONFIG of a setting
_DESCRIBE_QUORUM: Final = 55
_NO_TOPIC_ID: Final = UUID(int=0)
NEEDED_VERSIONS: Final[Mapping[int, int]] = {3: 12, 32: 4}
"""API key to the one version that is spoken after the login; the first Kafka that has both is 3.1."""


@dataclass(frozen=True, slots=True)
class SaslMechanisms:
    """A broker's answer to the mechanism that was proposed."""

    accepted: bool
    error: str
    enabled: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SaslStep:
    """A broker's part of the login; ``lifetime_s`` is 0 when the login lasts as long as the connection."""

    error: str
    message: str
    content: bytes
    lifetime_s: float


def api_versions(*, version: str) -> Request[Mapping[int, tuple[int, int]]]:
    """Ask which requests the broker understands: API key to lowest and highest version, both inclusive."""
    request = ApiVersionsRequest(client_software_name="tierd", client_software_version=version)
    return typed_request(request, ApiVersionsResponse, _versions, answer=_api_versions_answer)


def broker_software(*, version: str) -> Request[BrokerSoftware]:
    """Ask a broker that has answered ``api_versions`` for the features that it supports, too."""
    request = ApiVersionsRequest(client_software_name="tierd", client_software_version=version)
    return typed_request(request, ApiVersionsResponse, _software)


def quorum_leader() -> Request[QuorumLeader]:
    """Return the request for the active controller, which a broker with ``speaks_quorum`` forwards."""
    partition = quorum_request.PartitionData(partition_index=i32(0))
    topic = quorum_request.TopicData(topic_name=TopicName("__cluster_metadata"), partitions=(partition,))
    return typed_request(DescribeQuorumRequest(topics=(topic,)), DescribeQuorumResponse, _quorum_leader)


def speaks_quorum(offered: Mapping[int, tuple[int, int]]) -> bool:
    """Return True for a broker with KRaft that can be asked for its controllers' leader."""
    return offered.get(_DESCRIBE_QUORUM, (1, 0))[0] == 0


def sasl_handshake(mechanism: str) -> Request[SaslMechanisms]:
    """Propose a mechanism."""
    return typed_request(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, _mechanisms)


def sasl_authenticate(content: bytes) -> Request[SaslStep]:
    """Send one message of the mechanism."""
    return typed_request(SaslAuthenticateRequest(auth_bytes=content), SaslAuthenticateResponse, _sasl_step)


def metadata(topic_ids: Collection[UUID] = ()) -> Request[ClusterMetadata]:
    """Ask for the brokers, and for the leaders of these topics; none of them is created by asking."""
    topics = tuple(MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids)
    return typed_request(_metadata_request(topics), MetadataResponse, _cluster_metadata)


def named_topics(names: Collection[str]) -> Request[Mapping[str, TopicLeaders]]:
    """Ask for the leaders of topics by name; a topic that does not exist is left out, and not created by asking."""
    topics = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(name)) for name in names)
    return typed_request(_metadata_request(topics), MetadataResponse, _topics_by_name)


def describe_topic_configs(topics: Collection[str], keys: Collection[str]) -> Request[tuple[TopicConfig, ...]]:
    """Ask for the effective values of some settings of these topics."""
    return typed_request(_configs_request(topics, tuple(sorted(keys))), DescribeConfigsResponse, _topic_configs)


def describe_changed_topic_configs(topics: Collection[str]) -> Request[tuple[TopicConfig, ...]]:
    """Ask for the settings of these topics that differ from the defaults of the brokers, by any name."""
    return typed_request(_configs_request(topics, None), DescribeConfigsResponse, _changed_topic_configs)


def _configs_request(topics: Collection[str], keys: tuple[str, ...] | None) -> DescribeConfigsRequest:
    """Return the request for some settings of topics, or for all of them."""
    resources = tuple(
        DescribeConfigsResource(resource_type=i8(_TOPIC_RESOURCE), resource_name=topic, configuration_keys=keys)
        for topic in topics
    )
    return DescribeConfigsRequest(resources=resources)


def missing_versions(offered: Mapping[int, tuple[int, int]]) -> str:
    """Name the first request that the broker lacks in the needed version; empty when it has all."""
    for api_key, version in NEEDED_VERSIONS.items():
        lowest, highest = offered.get(api_key, (0, -1))
        if not lowest <= version <= highest:
            return f"{REQUEST_NAMES[api_key]} version {version}"
    return ""


# ---------------------------------------------------------------- answers


def _api_versions_answer(
    content: bytes, read: Callable[[bytes], Mapping[int, tuple[int, int]]]
) -> Mapping[int, tuple[int, int]]:
    """Read the versions; none from a broker without version 3, which answers in version 0 (KIP-511)."""
    if content[:2] == int(ErrorCode.unsupported_version).to_bytes(2, "big"):
        return {}
    return read(content)


def _versions(response: ApiVersionsResponse) -> Mapping[int, tuple[int, int]]:
    return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}


def _software(response: ApiVersionsResponse) -> BrokerSoftware:
    levels = {each.name: each.max_version for each in response.supported_features}
    return BrokerSoftware(_versions(response), levels.get("metadata.version"))


def _quorum_leader(response: DescribeQuorumResponse) -> QuorumLeader:
    if response.error_code is not ErrorCode.none:
        return QuorumLeader(None, error=response.error_code.name)
    for partition in (each for topic in response.topics for each in topic.partitions):
        if partition.error_code is ErrorCode.none and partition.leader_id >= 0:
            return QuorumLeader(partition.leader_id, partition.leader_epoch)
        return QuorumLeader(None, error=error_name(partition.error_code))
    return QuorumLeader(None, error="the answer names no partition")


def _mechanisms(response: SaslHandshakeResponse) -> SaslMechanisms:
    return SaslMechanisms(
        accepted=response.error_code is ErrorCode.none, error=response.error_code.name, enabled=response.mechanisms
    )


def _sasl_step(response: SaslAuthenticateResponse) -> SaslStep:
    return SaslStep(
        error=error_name(response.error_code),
        message=response.error_message or "",
        content=response.auth_bytes,
        lifetime_s=response.session_lifetime / timedelta(seconds=1),
    )


def _cluster_metadata(response: MetadataResponse) -> ClusterMetadata:
    return ClusterMetadata(
        cluster_id=response.cluster_id,
        brokers=tuple(BrokerAddress(each.host, each.port, each.node_id) for each in response.brokers),
        topics=tuple(_topic(each) for each in response.topics if each.topic_id is not None),
        controller_id=response.controller_id if response.controller_id >= 0 else None,
    )


def _metadata_request(topics: tuple[MetadataRequestTopic, ...]) -> MetadataRequest:
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False, include_topic_authorized_operations=False)


def _topics_by_name(response: MetadataResponse) -> Mapping[str, TopicLeaders]:
    return {
        topic.name: _topic(topic)
        for topic in response.topics
        if topic.name is not None and topic.error_code is not ErrorCode.unknown_topic_or_partition
    }


_KNOWLEDGE: Final = {
    ErrorCode.none: TopicKnowledge.KNOWN,
    ErrorCode.unknown_topic_id: TopicKnowledge.UNKNOWN,
    ErrorCode.topic_authorization_failed: TopicKnowledge.DENIED,
}


def _topic(topic: MetadataResponseTopic) -> TopicLeaders:
    topic_id = topic.topic_id or _NO_TOPIC_ID
    knowledge = _KNOWLEDGE.get(topic.error_code, TopicKnowledge.FAILED)
    if knowledge is not TopicKnowledge.KNOWN:
        return TopicLeaders(topic_id, knowledge, error=topic.error_code.name)
    leaders = tuple(
        PartitionLeader(each.partition_index, each.leader_id, each.leader_epoch, tuple(each.replica_nodes))
        for each in topic.partitions
    )
    return TopicLeaders(topic_id, knowledge, leaders)


def _topic_configs(response: DescribeConfigsResponse) -> tuple[TopicConfig, ...]:
    return tuple(
        TopicConfig(each.resource_name, {c.name: c.value for c in each.configs if c.value is not None})
        if each.error_code is ErrorCode.none
        else TopicConfig(each.resource_name, None, each.error_code.name)
        for each in response.results
    )


def _changed_topic_configs(response: DescribeConfigsResponse) -> tuple[TopicConfig, ...]:
    def values(result: DescribeConfigsResult, *, of_topic: bool) -> dict[str, str]:
        return {
            config.name: config.value
            for config in result.configs
            if (config.config_source == _OF_TOPIC) is of_topic and config.value is not None and not config.is_sensitive
        }

    return tuple(
        TopicConfig(each.resource_name, values(each, of_topic=True), defaults=values(each, of_topic=False))
        if each.error_code is ErrorCode.none
        else TopicConfig(each.resource_name, None, each.error_code.name)
        for each in response.results
    )
