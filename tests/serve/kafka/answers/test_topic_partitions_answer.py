"""Answers to DescribeTopicPartitions."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kio.schema.describe_topic_partitions.v0.response import DescribeTopicPartitionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from tests.fakes.served_partitions import FIRST_NODE
from tests.serve.kafka.answers.asking import AskedEndpoint
from tests.serve.kafka.contexts import request_context
from tierd.serve.kafka.request_context import ANONYMOUS


def _request(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=TopicName(name)) for name in names),
        response_partition_limit=i32(limit),
        cursor=None if cursor is None else Cursor(topic_name=TopicName(cursor[0]), partition_index=i32(cursor[1])),
    )


def _endpoint(**partitions: int) -> AskedEndpoint:
    endpoint = AskedEndpoint()
    for name, count in partitions.items():
        endpoint.served.add_topic(name, partitions=count, leader_epoch=3)
    return endpoint


async def _ask(endpoint: AskedEndpoint, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return await endpoint.answer(request, DescribeTopicPartitionsResponse)


def _shown(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(each.name, [p.partition_index for p in each.partitions]) for each in answer.topics]


def _next(answer: DescribeTopicPartitionsResponse) -> tuple[str, int] | None:
    cursor = answer.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


async def test_all_topics_come_by_name_without_those_that_the_client_may_not_see() -> None:
    endpoint = _endpoint(b=2, a=1, c=1)
    endpoint.authorizer.hidden.add("c")
    answer = await _ask(endpoint, _request())
    assert _shown(answer) == [("a", [0]), ("b", [0, 1])]
    assert _next(answer) is None


async def test_partitions_have_leader_epoch_and_the_endpoint_as_replica() -> None:
    answer = await _ask(_endpoint(a=1), _request("a"))
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert topic.topic_id is not None
    assert topic.topic_authorized_operations == 1 << 3 | 1 << 8 | 1 << 10
    assert (partition.leader_id, partition.leader_epoch) == (FIRST_NODE.node_id, 3)
    assert partition.replica_nodes == partition.isr_nodes == (FIRST_NODE.node_id,)
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ((), ())


async def test_named_topics_that_cannot_be_shown_are_answered_with_their_errors() -> None:
    endpoint = _endpoint(a=1, hidden=1)
    endpoint.authorizer.hidden.add("hidden")
    answer = await _ask(endpoint, _request("hidden", "absent", "not a name", "a", "a"))
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("a", ErrorCode.none),
        ("absent", ErrorCode.unknown_topic_or_partition),
        ("not a name", ErrorCode.invalid_topic_exception),
        ("hidden", ErrorCode.topic_authorization_failed),
    ]


@pytest.mark.parametrize(
    ("limit", "shown", "next_place"),
    [
        (1, [("a", [0])], ("a", 1)),
        (2, [("a", [0, 1])], ("b", 0)),
        (3, [("a", [0, 1]), ("b", [0])], ("b", 1)),
        (5, [("a", [0, 1]), ("b", [0, 1, 2])], None),
        (0, [("a", [0])], ("a", 1)),
        (-1, [("a", [0])], ("a", 1)),
    ],
)
async def test_page_ends_at_the_limit_and_names_the_next_place(
    limit: int, shown: list[tuple[str, list[int]]], next_place: tuple[str, int] | None
) -> None:
    answer = await _ask(_endpoint(a=2, b=3), _request(limit=limit))
    assert _shown(answer) == shown
    assert _next(answer) == next_place


async def test_limit_of_a_client_is_bounded() -> None:
    answer = await _ask(_endpoint(a=2001), _request(limit=1 << 30))
    assert _next(answer) == ("a", 2000)


async def test_cursor_of_a_topic_that_is_gone_begins_at_the_next_one() -> None:
    answer = await _ask(_endpoint(a=1, c=2), _request(cursor=("b", 1)))
    assert _shown(answer) == [("c", [0, 1])]


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0)])
async def test_cursor_that_does_not_fit_its_request_is_invalid(cursor: tuple[str, int]) -> None:
    answer = await _ask(_endpoint(a=1, b=1), _request("a", cursor=cursor))
    assert [(each.name, each.error_code) for each in answer.topics] == [("a", ErrorCode.invalid_request)]


@settings(max_examples=50, deadline=None)
@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    limits=st.lists(st.integers(1, 4), min_size=1, max_size=5),
    named=st.booleans(),
)
async def test_pages_together_hold_every_partition_once(
    counts: Sequence[int], limits: Sequence[int], named: bool
) -> None:
    topics = {f"topic-{at}": count for at, count in enumerate(counts)}
    endpoint = _endpoint(**topics)
    names = tuple(topics) if named else ()
    seen, cursor, page = list[tuple[str | None, int]](), None, 0
    while page == 0 or cursor is not None:
        answer = await _ask(endpoint, _request(*names, limit=limits[page % len(limits)], cursor=cursor))
        seen += [(name, number) for name, numbers in _shown(answer) for number in numbers]
        cursor, page = _next(answer), page + 1
    assert seen == [(name, number) for name, count in topics.items() for number in range(count)]


class _CountedName(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        _CountedName.comparisons += 1
        return str.__eq__(self, other)

    def __lt__(self, other: str) -> bool:
        _CountedName.comparisons += 1
        return str.__lt__(self, other)

    __hash__ = str.__hash__


async def test_comparisons_of_an_answer_grow_with_the_names_and_hardly_faster() -> None:
    few, many = await _comparisons(500), await _comparisons(4_000)
    assert 0 < many < 16 * few  # 64 times where each name is compared with each


async def _comparisons(names: int) -> int:
    request = _request(*(_CountedName(f"t{n}") for n in range(names)))
    handler = _endpoint().handlers[request.__api_key__]
    before = _CountedName.comparisons
    await handler(request, request_context(version=int(request.__version__), principal=ANONYMOUS))
    return _CountedName.comparisons - before
