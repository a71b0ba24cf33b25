"""Answer to Metadata: the live endpoints, and topics by name, by id, or all that the client may see."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.answers.client_access import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED, ClientAccess
from tierd.serve.kafka.answers.shown_cluster import (
    INTERNAL_TOPICS,
    ShownPartition,
    controller_of,
    error_of_absent_topic,
    live_ids,
)
from tierd.serve.kafka.message_versions import NO_THROTTLE, answer_in_version, in_version
from tierd.serve.kafka.served.served_cluster import ServedCluster, ServedTopic

_FIRST_VERSION_BY_ID: Final = 12


def metadata_answer(request: RequestPayload, cluster: ServedCluster, access: ClientAccess) -> ResponsePayload:
    """Return the endpoints, and the topics that were asked for. Asking for a topic creates none.

    Args:
        request: any version.
        cluster: as the client's listener shows it.
        access: of the client.
    """
    version, wanted = int(request.__version__), in_version(request, MetadataRequest)
    live = live_ids(cluster)
    if wanted.topics is None or (version == 0 and not wanted.topics):
        visible = (each for name, each in sorted(cluster.topics.items()) if access.may_describe(name))
        topics: Iterable[MetadataResponseTopic] = (_described(each, live) for each in visible)
    else:
        topics = _asked_topics(wanted.topics, cluster, access, version=version)
    if wanted.include_topic_authorized_operations:
        topics = (_with_operations(each, access) for each in topics)
    asks_for_cluster = getattr(request, "include_cluster_authorized_operations", False)
    answer = MetadataResponse(
        throttle_time=NO_THROTTLE,
        brokers=tuple(
            MetadataResponseBroker(node_id=BrokerId(each.node_id), host=each.host, port=i32(each.port), rack=each.rack)
            for each in cluster.nodes
        ),
        cluster_id=cluster.cluster_id,
        controller_id=controller_of(cluster),
        topics=tuple(topics),
        error_code=ErrorCode.none,
    )
    operations = CLUSTER_OPERATIONS if asks_for_cluster else OPERATIONS_NOT_ASKED
    return answer_in_version(request, answer, cluster_authorized_operations=operations)


def _asked_topics(
    asked: Iterable[MetadataRequestTopic], cluster: ServedCluster, access: ClientAccess, *, version: int
) -> Iterator[MetadataResponseTopic]:
    """Yield every topic once, in the order of the request."""
    for topic in dict.fromkeys(asked):
        if topic.topic_id is not None and version >= _FIRST_VERSION_BY_ID:
            yield _topic_by_id(topic.topic_id, cluster, access)
        elif topic.name is not None and topic.topic_id is None:
            yield _topic_by_name(topic.name, cluster, access)
        else:  # neither, or an id in the versions that have the field and do not allow it
            yield _failed(ErrorCode.invalid_request, name=topic.name or TopicName(""), topic_id=topic.topic_id)


def _topic_by_name(name: TopicName, cluster: ServedCluster, access: ClientAccess) -> MetadataResponseTopic:
    if not access.may_describe(name):  # not even told if the topic exists
        return _failed(ErrorCode.topic_authorization_failed, name=name)
    topic = cluster.topics.get(name)
    return _described(topic, live_ids(cluster)) if topic else _failed(error_of_absent_topic(name), name=name)


def _topic_by_id(topic_id: UUID, cluster: ServedCluster, access: ClientAccess) -> MetadataResponseTopic:
    topic = cluster.topics_by_id.get(topic_id)
    if topic is None:
        return _failed(ErrorCode.unknown_topic_id, name=None, topic_id=topic_id)
    if not access.may_describe(topic.name):  # ids are no secret, as in Kafka
        return _failed(ErrorCode.topic_authorization_failed, name=None, topic_id=topic_id)
    return _described(topic, live_ids(cluster))


def _described(topic: ServedTopic, live: frozenset[int]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(_partition(ShownPartition.of(each, live)) for each in topic.partitions),
    )


def _partition(shown: ShownPartition) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=shown.error_code,
        partition_index=shown.index,
        leader_id=shown.leader_id,
        leader_epoch=shown.leader_epoch,
        replica_nodes=shown.replicas,
        isr_nodes=shown.in_sync,
        offline_replicas=shown.offline,
    )


def _failed(error_code: ErrorCode, *, name: TopicName | None, topic_id: UUID | None = None) -> MetadataResponseTopic:
    is_internal = name in INTERNAL_TOPICS and error_code is not ErrorCode.topic_authorization_failed
    return MetadataResponseTopic(
        error_code=error_code, name=name, topic_id=topic_id, is_internal=is_internal, partitions=()
    )


def _with_operations(topic: MetadataResponseTopic, access: ClientAccess) -> MetadataResponseTopic:
    operations = 0 if topic.name is None else access.topic_operations(topic.name)
    return replace(topic, topic_authorized_operations=i32(operations))
