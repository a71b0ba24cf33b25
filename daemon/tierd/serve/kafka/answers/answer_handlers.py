"""Handlers of the requests about the cluster, its topics and offsets, and of those that write."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.clock import Clock
from tierd.errors import RefusedError
from tierd.serve.kafka.access import Authorizer
from tierd.serve.kafka.answers.client_access import ClientAccess, LogFinder
from tierd.serve.kafka.answers.configs_answer import configs_answer
from tierd.serve.kafka.answers.endpoint_answers import api_versions_answer, cluster_answer, reassignments_answer
from tierd.serve.kafka.answers.epochs_answer import epochs_answer
from tierd.serve.kafka.answers.metadata_answer import metadata_answer
from tierd.serve.kafka.answers.offsets_answer import offsets_answer
from tierd.serve.kafka.answers.partition_lookups import LookupFailures, LookupLimits
from tierd.serve.kafka.answers.refusals import REFUSED_APIS, refusal_of
from tierd.serve.kafka.answers.topic_partitions_answer import topic_partitions_answer
from tierd.serve.kafka.loop_turns import PIECE_ITEMS
from tierd.serve.kafka.request_context import Handler, RequestContext
from tierd.serve.kafka.served.served_cluster import ServedCluster, ServedPartitions

_PRODUCE: Final = 0
_LIST_OFFSETS: Final = 2
_METADATA: Final = 3
_API_VERSIONS: Final = 18
_OFFSET_FOR_LEADER_EPOCH: Final = 23
_DESCRIBE_CONFIGS: Final = 32
_LIST_PARTITION_REASSIGNMENTS: Final = 46
_DESCRIBE_CLUSTER: Final = 60
_DESCRIBE_TOPIC_PARTITIONS: Final = 75

_SHOWN_SETTINGS: Final = 10  # of a topic, about
_DEFAULT_LIMITS: Final = LookupLimits()
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})
_ClusterAnswer = Callable[[RequestPayload, ServedCluster, ClientAccess], ResponsePayload]


def answer_handlers(
    partitions: ServedPartitions,
    authorizer: Authorizer,
    *,
    clock: Clock,
    limits: LookupLimits = _DEFAULT_LIMITS,
    settings: Callable[[], Mapping[str, str]] = lambda: _NO_SETTINGS,
) -> Mapping[int, Handler]:
    """Return the handlers by api key.

    Args:
        partitions: what is served.
        authorizer: rules of access.
        clock: for the log lines about lookups that fail again and again.
        limits: of the lookups that one request causes.
        settings: what DescribeConfigs answers about this endpoint beyond what it knows itself, under Kafka's names.
    """

    def shown(answer: _ClusterAnswer, shows: Callable[[RequestPayload, ServedCluster], int] | None = None) -> Handler:
        async def handle(request: RequestPayload, context: RequestContext) -> ResponsePayload:
            cluster = partitions.cluster(context.listener)
            items = context.items + (shows(request, cluster) if shows is not None else 0)
            return await context.turns.aside(items, answer, request, cluster, ClientAccess(authorizer, context))

        return handle

    return {
        **dict.fromkeys(REFUSED_APIS, _refuse),
        **_lookup_handlers(partitions, authorizer, limits, LookupFailures(clock)),
        _PRODUCE: _refuse_produce,
        _METADATA: shown(metadata_answer, _partitions_of_topics),
        _API_VERSIONS: _answer_api_versions,
        _DESCRIBE_CONFIGS: shown(
            lambda request, cluster, access: configs_answer(request, cluster, access, settings()), _named_settings
        ),
        _LIST_PARTITION_REASSIGNMENTS: _answer_reassignments,
        _DESCRIBE_CLUSTER: shown(lambda request, cluster, _access: cluster_answer(request, cluster)),
        _DESCRIBE_TOPIC_PARTITIONS: shown(topic_partitions_answer, _partitions_of_topics),
    }


def _lookup_handlers(
    partitions: ServedPartitions, authorizer: Authorizer, limits: LookupLimits, failures: LookupFailures
) -> Mapping[int, Handler]:
    def finder(context: RequestContext) -> LogFinder:
        return LogFinder(partitions, ClientAccess(authorizer, context))

    async def list_offsets(request: RequestPayload, context: RequestContext) -> ResponsePayload:
        return await offsets_answer(request, finder(context), limits, failures)

    async def epoch_ends(request: RequestPayload, context: RequestContext) -> ResponsePayload:
        return await epochs_answer(request, finder(context), limits, failures)

    return {_LIST_OFFSETS: list_offsets, _OFFSET_FOR_LEADER_EPOCH: epoch_ends}


def _partitions_of_topics(request: RequestPayload, cluster: ServedCluster) -> int:
    """Return about the number of partitions in an answer that has whole topics."""
    asked: Sequence[object] | None = getattr(request, "topics", None)
    names: list[str | None] = [getattr(each, "name", None) for each in (asked or ())[:PIECE_ITEMS]]
    if not names or None in names:  # all, or by their ids
        return cluster.partition_count
    topics = (cluster.topics.get(name or "") for name in names)
    return sum(len(each.partitions) for each in topics if each is not None)


def _named_settings(request: RequestPayload, _cluster: ServedCluster) -> int:
    """Return about the number of settings in an answer."""
    resources: Sequence[object] = getattr(request, "resources", ())
    return len(resources) * _SHOWN_SETTINGS


async def _answer_api_versions(request: RequestPayload, _context: RequestContext) -> ResponsePayload:
    return api_versions_answer(request)


async def _answer_reassignments(request: RequestPayload, _context: RequestContext) -> ResponsePayload:
    return reassignments_answer(request)


async def _refuse(request: RequestPayload, context: RequestContext) -> ResponsePayload:
    return await context.turns.aside(context.items, refusal_of, request)


async def _refuse_produce(request: RequestPayload, context: RequestContext) -> ResponsePayload:
    """Refuse records; a producer that waits for no answer is told by the end of its connection, as by a broker."""
    if cast("int", getattr(request, "acks", None)) == 0:
        raise RefusedError("a producer that waits for no answer sent records, and the read endpoint takes none")
    return await _refuse(request, context)
