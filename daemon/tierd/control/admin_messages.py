"""Kafka's requests that change a cluster: topics, their settings, and positions of consumer groups; no I/O."""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from kio.schema.create_topics.v7 import CreateTopicsRequest, CreateTopicsResponse
from kio.schema.create_topics.v7.request import CreatableTopic, CreatableTopicConfig
from kio.schema.describe_configs.v4 import DescribeConfigsRequest, DescribeConfigsResponse
from kio.schema.describe_configs.v4.request import DescribeConfigsResource
from kio.schema.describe_groups.v5 import DescribeGroupsRequest, DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import FindCoordinatorRequest, FindCoordinatorResponse
from kio.schema.incremental_alter_configs.v1 import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from kio.schema.incremental_alter_configs.v1.request import AlterableConfig, AlterConfigsResource
from kio.schema.offset_commit.v8 import OffsetCommitRequest, OffsetCommitResponse
from kio.schema.offset_commit.v8 import request as commit_parts
from kio.schema.offset_fetch.v7 import OffsetFetchRequest, OffsetFetchResponse
from kio.schema.offset_fetch.v7 import request as fetch_parts
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i16, i32, i32Timedelta, i64

from tierd.control.cluster_metadata import BrokerAddress
from tierd.control.kafka_framing import Request, error_name, typed_request
from tierd.model import TopicPartition

_TOPIC: Final = 2
_BROKER: Final = 4
_SET: Final = 0
_DELETE: Final = 1


class AdminOutcome(NamedTuple):
    """A broker's answer to a change: Kafka's name of the error, empty for success, and the broker's words."""

    error: str
    message: str


class NewTopic(NamedTuple):
    """A topic to create.

    Attributes:
        partition_count: at least 1.
        replication_factor: -1 for the cluster's default.
        config: settings that differ from the cluster's defaults.
    """

    name: str
    partition_count: int
    replication_factor: int
    config: Mapping[str, str]


class CreatedTopic(NamedTuple):
    """A broker's answer about a new topic.

    Attributes:
        error: Kafka's name of the error; empty for success.
        message: the broker's words.
        config: all settings that the topic has, with the cluster's defaults; empty where they may not be read.
    """

    error: str
    message: str
    partition_count: int
    replication_factor: int
    config: Mapping[str, str]


class GroupCoordinator(NamedTuple):
    """The coordinator of one group; None where ``error`` is Kafka's name of the reason."""

    address: BrokerAddress | None
    error: str


class CoordinatedGroupState(NamedTuple):
    """State of a group in Kafka's words, such as ``Empty`` or ``Stable``; ``error`` is empty for success."""

    state: str
    member_count: int
    error: str


class CommittedOffset(NamedTuple):
    """A coordinator's answer about the position of a group.

    Attributes:
        error: Kafka's name of the error; empty for success.
        offset: None where the group has none.
    """

    error: str
    offset: int | None


class NewPosition(NamedTuple):
    """Position to set for a group in one partition; a leader epoch of -1 means none."""

    offset: int
    leader_epoch: int
    metadata: str


def create_topic(topic: NewTopic, *, timeout_s: float) -> Request[CreatedTopic]:
    """Create a topic."""
    request = CreateTopicsRequest(
        topics=(
            CreatableTopic(
                name=TopicName(topic.name),
                num_partitions=i32(topic.partition_count),
                replication_factor=i16(topic.replication_factor),
                assignments=(),
                configs=tuple(CreatableTopicConfig(name=key, value=value) for key, value in topic.config.items()),
            ),
        ),
        timeout=i32Timedelta.parse(timedelta(seconds=timeout_s)),
        validate_only=False,
    )
    return typed_request(request, CreateTopicsResponse, _created)


def change_topic_config(topic: str, changes: Mapping[str, str | None]) -> Request[AdminOutcome]:
    """Change settings of a topic; None sets the cluster's default."""
    configs = tuple(
        AlterableConfig(name=key, config_operation=i8(_DELETE if value is None else _SET), value=value)
        for key, value in changes.items()
    )
    resource = AlterConfigsResource(resource_type=i8(_TOPIC), resource_name=topic, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    return typed_request(
        request,
        IncrementalAlterConfigsResponse,
        lambda r: _outcome(r.responses[0].error_code, r.responses[0].error_message),
    )


def describe_broker_config(node_id: int, keys: Collection[str]) -> Request[Mapping[str, str]]:
    """Ask the broker ``node_id`` itself for some of its settings; the answer is empty where they may not be read."""
    resource = DescribeConfigsResource(
        resource_type=i8(_BROKER), resource_name=str(node_id), configuration_keys=tuple(sorted(keys))
    )
    return typed_request(DescribeConfigsRequest(resources=(resource,)), DescribeConfigsResponse, _config)


def find_coordinator(group: str) -> Request[GroupCoordinator]:
    """Ask any broker for the coordinator of a group."""
    return typed_request(FindCoordinatorRequest(coordinator_keys=(group,)), FindCoordinatorResponse, _coordinator)


def describe_group(group: str) -> Request[CoordinatedGroupState]:
    """Ask the coordinator for the state of a group; one that does not exist is ``Dead``."""
    request = DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=False)
    return typed_request(request, DescribeGroupsResponse, _group_state)


def commit_positions(
    group: str, positions: Mapping[TopicPartition, NewPosition]
) -> Request[Mapping[TopicPartition, str]]:
    """Set positions of a group without members at its coordinator; the answer has Kafka's errors, empty for success."""
    topics: dict[str, list[commit_parts.OffsetCommitRequestPartition]] = {}
    for name, position in positions.items():
        topics.setdefault(name.topic, []).append(
            commit_parts.OffsetCommitRequestPartition(
                partition_index=i32(name.partition),
                committed_offset=i64(position.offset),
                committed_leader_epoch=i32(position.leader_epoch),
                committed_metadata=position.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=i32(-1),
        member_id="",
        topics=tuple(
            commit_parts.OffsetCommitRequestTopic(name=TopicName(topic), partitions=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )
    return typed_request(request, OffsetCommitResponse, _committed)


def committed_position(group: str, name: TopicPartition) -> Request[CommittedOffset]:
    """Ask the coordinator of a group for its position in a partition; a commit in an open transaction is an error."""
    topic = fetch_parts.OffsetFetchRequestTopic(name=TopicName(name.topic), partition_indexes=(i32(name.partition),))
    request = OffsetFetchRequest(group_id=GroupId(group), topics=(topic,), require_stable=True)
    return typed_request(request, OffsetFetchResponse, _position)


def _outcome(code: ErrorCode, message: str | None) -> AdminOutcome:
    return AdminOutcome(error_name(code), message or "")


def _created(response: CreateTopicsResponse) -> CreatedTopic:
    topic = response.topics[0]
    outcome = _outcome(topic.error_code, topic.error_message)
    config = {each.name: each.value for each in topic.configs or () if each.value is not None}
    return CreatedTopic(*outcome, topic.num_partitions, topic.replication_factor, config)


def _config(response: DescribeConfigsResponse) -> Mapping[str, str]:
    return {
        config.name: config.value
        for result in response.results
        if result.error_code is ErrorCode.none
        for config in result.configs
        if config.value is not None
    }


def _coordinator(response: FindCoordinatorResponse) -> GroupCoordinator:
    for each in response.coordinators:
        if each.error_code is ErrorCode.none:
            return GroupCoordinator(BrokerAddress(each.host, each.port, each.node_id), "")
        return GroupCoordinator(None, each.error_code.name)
    return GroupCoordinator(None, "the answer names no group")


def _group_state(response: DescribeGroupsResponse) -> CoordinatedGroupState:
    for each in response.groups:
        return CoordinatedGroupState(each.group_state, len(each.members), error_name(each.error_code))
    return CoordinatedGroupState("", 0, "the answer names no group")


def _position(response: OffsetFetchResponse) -> CommittedOffset:
    if response.error_code is not ErrorCode.none:
        return CommittedOffset(response.error_code.name, None)
    for each in (each for topic in response.topics for each in topic.partitions):
        if each.error_code is not ErrorCode.none:
            return CommittedOffset(each.error_code.name, None)
        return CommittedOffset("", each.committed_offset if each.committed_offset >= 0 else None)
    return CommittedOffset("", None)


def _committed(response: OffsetCommitResponse) -> Mapping[TopicPartition, str]:
    return {
        TopicPartition(topic.name, each.partition_index): error_name(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }
