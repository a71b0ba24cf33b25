"""Answer to DescribeTopicPartitions: topics by name, page by page (KIP-966)."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.answers.client_access import ClientAccess
from tierd.serve.kafka.answers.shown_cluster import INTERNAL_TOPICS, ShownPartition, error_of_absent_topic, live_ids
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.served.served_cluster import ServedCluster, ServedPartition, ServedTopic

MAX_PARTITIONS: Final = 2000
"""Largest number of partitions in one answer (Kafka: max.request.partition.size.limit)."""


def topic_partitions_answer(request: RequestPayload, cluster: ServedCluster, access: ClientAccess) -> ResponsePayload:
    """Return one page of topics, ascending by name, and the place where the next page begins.

    Topics that the client may not see follow those that it may, as in Kafka; if it asks for all topics, they are left
    out.
    """
    wanted = in_version(request, DescribeTopicPartitionsRequest)
    asked = {each.name for each in wanted.topics}
    cursor = wanted.cursor
    if cursor is not None and (cursor.partition_index < 0 or (asked and cursor.topic_name not in asked)):
        return answer_in_version(request, _answer(_failed(name, ErrorCode.invalid_request) for name in sorted(asked)))
    names = sorted(name for name in asked or cluster.topics if cursor is None or name >= cursor.topic_name)
    visible, hidden = list[str](), list[str]()
    for name in names:
        (visible if access.may_describe(name) else hidden).append(name)
    page = _Page(cluster, access, limit=max(1, min(wanted.response_partition_limit, MAX_PARTITIONS)))
    first = cursor.partition_index if cursor and visible[:1] == [cursor.topic_name] else 0
    next_cursor = page.fill(visible, first_partition=first, shows_absent=bool(asked))
    refused = (_failed(name, ErrorCode.topic_authorization_failed) for name in hidden)
    return answer_in_version(request, _answer([*page.topics, *(refused if asked else ())], next_cursor))


class _Page:
    """Topics of one answer, up to the limit on their partitions."""

    def __init__(self, cluster: ServedCluster, access: ClientAccess, *, limit: int) -> None:
        self.topics: list[DescribeTopicPartitionsResponseTopic] = []
        self._cluster = cluster
        self._access = access
        self._live = live_ids(cluster)
        self._room = limit

    def fill(self, names: Sequence[str], *, first_partition: int, shows_absent: bool) -> Cursor | None:
        """Add topics while there is room; return the place of the first partition that has none."""
        for at, name in enumerate(names):
            if not self._room:
                return Cursor(topic_name=TopicName(name), partition_index=i32(0))
            topic = self._cluster.topics.get(name)
            if topic is None:
                if shows_absent:
                    self._add_absent(name)
                continue
            start = bisect_left(topic.partitions, first_partition if at == 0 else 0, key=_number)
            rest = topic.partitions[start:]
            self._add(topic, rest[: self._room])
            if len(rest) > self._room:
                return Cursor(topic_name=TopicName(name), partition_index=i32(_number(rest[self._room])))
            self._room -= len(rest)
        return None

    def _add_absent(self, name: str) -> None:
        operations = i32(self._access.topic_operations(name))
        self.topics.append(replace(_failed(name, error_of_absent_topic(name)), topic_authorized_operations=operations))

    def _add(self, topic: ServedTopic, partitions: Iterable[ServedPartition]) -> None:
        self.topics.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.none,
                name=TopicName(topic.name),
                topic_id=topic.topic_id,
                is_internal=topic.name in INTERNAL_TOPICS,
                partitions=tuple(_partition(ShownPartition.of(each, self._live)) for each in partitions),
                topic_authorized_operations=i32(self._access.topic_operations(topic.name)),
            )
        )


def _number(partition: ServedPartition) -> int:
    return partition.partition.partition


def _partition(shown: ShownPartition) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=shown.error_code,
        partition_index=shown.index,
        leader_id=shown.leader_id,
        leader_epoch=shown.leader_epoch,
        replica_nodes=shown.replicas,
        isr_nodes=shown.in_sync,
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=shown.offline,
    )


def _failed(name: str, error_code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error_code, name=TopicName(name), topic_id=None, partitions=()
    )


def _answer(
    topics: Iterable[DescribeTopicPartitionsResponseTopic], next_cursor: Cursor | None = None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=next_cursor)
