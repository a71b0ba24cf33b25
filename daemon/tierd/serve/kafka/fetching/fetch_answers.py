"""Answers to a Fetch in every version: kio's response, and the records beside it."""

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import groupby
from typing import Any, Final

from kio.schema.errors import ErrorCode

from tierd.serve.kafka.client_errors import fetch_code_in_version
from tierd.serve.kafka.fetching.fetch_demand import FIRST_VERSION_WITH_TOPIC_IDS, FetchDemand, FetchKey
from tierd.serve.kafka.fetching.fetch_session import NO_SESSION
from tierd.serve.kafka.fetching.partition_answer import PartitionAnswer
from tierd.serve.kafka.served.served_cluster import EndpointNode
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer, Pieces

_FIRST_VERSION_WITH: Final = {"log_start": 5, "session": 7, "replica": 11, "leader": 12, "endpoints": 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchHead:
    """Fields of a whole answer."""

    session_id: int = NO_SESSION
    error: ErrorCode = ErrorCode.none
    throttle_ms: int = 0
    waited_s: float = 0.0
    counted_bytes: int = 0


def fetch_answer(
    version: int,
    head: FetchHead,
    answers: Iterable[tuple[FetchKey, PartitionAnswer]],
    nodes: Sequence[EndpointNode] = (),
) -> FetchAnswer:
    """Return the answer.

    Args:
        version: of the request.
        head: fields of the whole answer.
        answers: partitions in order. Neighbours of one topic are one entry of the answer, as in those of a broker.
        nodes: the live endpoints, of which those are named that an error of a partition sends the client to.
    """
    schema = _schema(version)
    topics: list[Any] = []
    records: dict[tuple[int, int], Pieces] = {}
    leaders: set[int] = set()
    for topic, group in groupby(answers, key=lambda each: each[0].topic):
        partitions: list[Any] = []
        for key, answer in group:
            if answer.records:
                records[len(topics), len(partitions)] = answer.records
            if answer.leader is not None:
                leaders.add(answer.leader.leader_id)
            partitions.append(_partition(schema, version, key.partition, answer))
        named = {"topic_id" if version >= FIRST_VERSION_WITH_TOPIC_IDS else "topic": topic}
        topics.append(schema.FetchableTopicResponse(partitions=tuple(partitions), **named))
    fields: dict[str, Any] = {"throttle_time": timedelta(milliseconds=head.throttle_ms), "responses": tuple(topics)}
    if version >= _FIRST_VERSION_WITH["session"]:
        fields.update(session_id=head.session_id, error_code=head.error)
    if leaders and version >= _FIRST_VERSION_WITH["endpoints"]:
        fields["node_endpoints"] = tuple(_endpoint(schema, node) for node in nodes if node.node_id in leaders)
    return FetchAnswer(schema.FetchResponse(**fields), records, head.waited_s, head.counted_bytes)


def refused_fetch(demand: FetchDemand, error: ErrorCode) -> FetchAnswer:
    """Return the answer to a request of which no partition is read, for every client."""
    refused = PartitionAnswer(error)
    return fetch_answer(demand.version, FetchHead(), ((key, refused) for key in demand.partitions))


@cache
def _schema(version: int) -> Any:  # noqa: ANN401  kio has a module for each version
    return importlib.import_module(f"kio.schema.fetch.v{version}.response")


def _partition(schema: Any, version: int, number: int, answer: PartitionAnswer) -> Any:  # noqa: ANN401
    fields: dict[str, Any] = {
        "partition_index": number,
        "error_code": fetch_code_in_version(answer.error, version),
        "high_watermark": answer.high_watermark,
        "last_stable_offset": answer.last_stable_offset,
        "aborted_transactions": _aborted(schema, answer),
        "records": b"",
    }
    if version >= _FIRST_VERSION_WITH["log_start"]:
        fields["log_start_offset"] = answer.log_start_offset
    if version >= _FIRST_VERSION_WITH["leader"]:
        if answer.diverging is not None:
            epoch, end_offset = answer.diverging
            fields["diverging_epoch"] = schema.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        if answer.leader is not None:
            leader_id, leader_epoch = answer.leader.leader_id, answer.leader.leader_epoch
            fields["current_leader"] = schema.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return schema.PartitionData(**fields)


def _aborted(schema: Any, answer: PartitionAnswer) -> tuple[Any, ...] | None:  # noqa: ANN401
    if not answer.aborted:
        return answer.aborted
    return tuple(
        schema.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in answer.aborted
    )


def _endpoint(schema: Any, node: EndpointNode) -> Any:  # noqa: ANN401
    return schema.NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
