"""Requests over real connections: answered in order, refused as a broker does, bounded, and recorded."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from kio.schema.api_versions.v0.response import ApiVersionsResponse as ApiVersionsResponse0
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchRequest
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.metadata.v0.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v0.response import MetadataResponse
from kio.static.protocol import Entity, RequestPayload, ResponsePayload
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.serve.kafka.connections.running_endpoint import running_endpoint
from tests.serve.kafka.kio_messages import decoded_answer, frame, sample, sized
from tierd.errors import RefusedError, SegmentChangedError
from tierd.serve.kafka.endpoint_limits import EndpointLimits
from tierd.serve.kafka.endpoint_statistics import RequestOutcome
from tierd.serve.kafka.request_context import Handler, RequestContext
from tierd.serve.kafka.served.served_log import FileSlice
from tierd.serve.kafka.wire.api_table import API_TABLE
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer

M = TypeVar("M", bound=Entity)
FETCH, METADATA, LIST_GROUPS, API_VERSIONS = 1, 3, 16, 18
GROUPS = ListGroupsRequest(states_filter=())


def answering(response: ResponsePayload) -> Handler:
    """Return a handler with one answer to all requests."""

    async def handle(request: RequestPayload, context: RequestContext) -> ResponsePayload:
        return response

    return handle


def failing(error: Exception) -> Handler:
    """Return a handler that raises."""

    async def handle(request: RequestPayload, context: RequestContext) -> ResponsePayload:
        raise error

    return handle


def unthrottled(response: type[M]) -> M:
    """Return a sample that does not mute its connection."""
    found: Any = sample(response)
    return cast("M", replace(found, throttle_time=timedelta(0)))


LISTED = unthrottled(ListGroupsResponse)
VERSIONS = unthrottled(ApiVersionsResponse)


async def test_request_is_answered_by_the_handler_of_its_api_key() -> None:
    async with running_endpoint({LIST_GROUPS: answering(LISTED)}) as running:
        client = await running.connect()

        assert await client.ask(GROUPS, ListGroupsResponse) == LISTED


async def test_handler_knows_who_asks_and_how() -> None:
    seen: list[RequestContext] = []

    async def handle(request: RequestPayload, context: RequestContext) -> ResponsePayload:
        seen.append(context)
        return LISTED

    handlers = {LIST_GROUPS: handle}
    async with running_endpoint(handlers) as running:
        client, other = await running.connect(), await running.connect()
        await client.ask(GROUPS, ListGroupsResponse)
        await other.send(GROUPS, client_id=None)
        await other.receive()

    first, second = seen
    assert (first.version, first.client_id, first.principal) == (4, "client", "User:ANONYMOUS")
    assert (first.listener, first.peer, second.client_id) == ("plain", "127.0.0.1", "")
    assert first.connection_id != second.connection_id


async def test_requests_that_come_together_are_answered_in_their_order() -> None:
    started: list[int] = []

    async def handle(request: RequestPayload, context: RequestContext) -> ResponsePayload:
        started.append(len(started))
        await asyncio.sleep(0.001 * (3 - len(started)))  # the first takes longest
        return LISTED

    async with running_endpoint({LIST_GROUPS: handle}) as running:
        client = await running.connect()
        await client.send_bytes(b"".join(sized(frame(GROUPS, correlation_id=number)) for number in range(3)))

        answers = [decoded_answer(ListGroupsResponse, await client.receive()) for _ in range(3)]

    assert [correlation_id for correlation_id, _ in answers] == [0, 1, 2]


async def test_request_that_comes_in_single_bytes_is_answered() -> None:
    async with running_endpoint({LIST_GROUPS: answering(LISTED)}) as running:
        client = await running.connect()
        for byte in sized(frame(GROUPS)):
            await client.send_bytes(bytes([byte]))

        assert decoded_answer(ListGroupsResponse, await client.receive())[1] == LISTED


async def test_client_that_never_waits_for_answers_lets_others_have_their_turn() -> None:
    async with running_endpoint({LIST_GROUPS: answering(LISTED)}) as running:
        greedy, modest = await running.connect(), await running.connect()
        greedy.writer.write(sized(frame(GROUPS)) * 2000)

        assert await modest.ask(GROUPS, ListGroupsResponse) == LISTED
        assert running.statistics().requests["ListGroups"] < 2000


async def test_records_of_a_fetch_are_sent_from_memory_and_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(bytes(range(256)) * 1000)
    response = unthrottled(FetchResponse)
    in_file = FileSlice(path, path.stat().st_ino, 256, 100_000)

    async def handle(request: RequestPayload, context: RequestContext) -> FetchAnswer:
        return FetchAnswer(response, {(0, 0): (b"in memory", in_file)})

    async with running_endpoint({FETCH: handle}) as running:
        client = await running.connect()
        answer = await client.ask(sample(FetchRequest), FetchResponse)
        assert running.endpoint.statistics().answer_bytes == 0

    assert isinstance(answer, FetchResponse)
    expected = b"in memory" + path.read_bytes()[256:100_256]
    assert answer.responses[0].partitions[0].records == expected


async def test_slice_that_is_gone_ends_the_connection(tmp_path: Path) -> None:
    async def handle(request: RequestPayload, context: RequestContext) -> FetchAnswer:
        return FetchAnswer(unthrottled(FetchResponse), {(0, 0): (FileSlice(tmp_path / "0.log", 1, 0, 10),)})

    with capture_logs() as logs:
        async with running_endpoint({FETCH: handle}) as running:
            client = await running.connect()
            await client.send(sample(FetchRequest))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.receive()

    assert [entry["event"] for entry in logs] == ["request_failed"]


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (SegmentChangedError("changed"), "request_failed"),
        (RefusedError("no records here"), "client_refused"),
        (RuntimeError("a bug"), "request_failed"),
    ],
    ids=["error of tierd", "refusal without an answer", "bug"],
)
async def test_handler_that_fails_ends_its_connection_only(error: Exception, event: str) -> None:
    handlers = {LIST_GROUPS: failing(error), API_VERSIONS: answering(VERSIONS)}
    with capture_logs() as logs:
        async with running_endpoint(handlers) as running:
            client, other = await running.connect(), await running.connect()
            await client.send(GROUPS)

            assert await client.is_closed()
            assert await other.ask(sample(ApiVersionsRequest), ApiVersionsResponse) == VERSIONS

    assert [entry["event"] for entry in logs] == [event]
    assert running.records.requests[0].outcome is RequestOutcome.FAILED


async def test_unknown_version_of_api_versions_is_answered_and_the_connection_goes_on() -> None:
    async with running_endpoint({API_VERSIONS: answering(VERSIONS)}) as running:
        client = await running.connect()
        content = bytearray(frame(sample(ApiVersionsRequest), correlation_id=9))
        content[2:4] = b"\0\x63"
        await client.send_bytes(sized(bytes(content)))

        correlation_id, answer = decoded_answer(ApiVersionsResponse0, await client.receive())

        assert isinstance(answer, ApiVersionsResponse0)
        assert (correlation_id, answer.error_code) == (9, ErrorCode.unsupported_version)
        assert len(answer.api_keys) == len(API_TABLE)
        assert await client.ask(sample(ApiVersionsRequest), ApiVersionsResponse) == VERSIONS


def _with(position: int, value: bytes) -> bytes:
    content = bytearray(frame(GROUPS))
    content[position : position + len(value)] = value
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (sized(_with(0, b"\x03\xe7")), "no request with api key 999"),
        (sized(_with(2, b"\0\x63")), "ListGroups version 99: versions 0 to 5 are known"),
        (sized(frame(GROUPS)[:-3]), "its lengths do not fit"),
        (sized(frame(MetadataRequest(topics=()))[:-4] + b"\x7f\xff\xff\xff"), "its lengths do not fit"),
        (b"\x7f\xff\xff\xff", "a request of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "a request of -1 bytes"),
        (b"\0\0\0\0", "a request of 0 bytes"),
        (b"\0\0\0\x09" + bytes(9), "a request of 9 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "the client speaks HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "the client speaks TLS"),
        (sized(frame(sample(FetchRequest))), "Fetch is not answered here"),
    ],
    ids=lambda each: each[:20] if isinstance(each, str) else "",
)
async def test_connection_with_a_fault_of_its_client_is_closed_with_one_line(content: bytes, problem: str) -> None:
    with capture_logs() as logs:
        async with running_endpoint({LIST_GROUPS: answering(LISTED)}) as running:
            client = await running.connect()
            await client.send_bytes(content)

            assert await client.is_closed()
            await eventually(lambda: running.statistics().connections == 0, what="the end of the connection")
            assert running.statistics().closed_by_fault == 1

    (entry,) = logs
    assert (entry["event"], entry["peer"], entry["listener"]) == ("client_refused", "127.0.0.1", "plain")
    assert problem in entry["problem"]


async def test_flood_of_faults_writes_a_line_a_second() -> None:
    with capture_logs() as logs:
        async with running_endpoint({}) as running:
            for _ in range(5):
                client = await running.connect()
                await client.send_bytes(b"\0\0\0\0")
                assert await client.is_closed()
            await eventually(lambda: running.statistics().closed_by_fault == 5, what="all faults")
            running.clock.advance(1)
            client = await running.connect()
            await client.send_bytes(b"\0\0\0\0")
            assert await client.is_closed()

    assert [entry["silent"] for entry in logs] == [0, 4]


async def test_flood_of_slow_requests_writes_few_lines() -> None:
    with capture_logs() as logs:
        handlers: dict[int, Handler] = {}
        async with running_endpoint(handlers, limits=EndpointLimits(slow_request_s=0.0)) as running:
            handlers[LIST_GROUPS] = answering(LISTED)
            client = await running.connect()
            for _ in range(100):
                await client.ask(GROUPS, ListGroupsResponse)
            running.clock.advance(1)
            await client.ask(GROUPS, ListGroupsResponse)

    assert [entry["silent"] for entry in logs if entry["event"] == "slow_request"] == [0] * 10 + [90]


async def test_largest_request_is_answered_and_its_memory_given_back() -> None:
    topics = tuple(MetadataRequestTopic(name=f"topic-{number}") for number in range(8_000))  # type: ignore[arg-type]
    content = frame(MetadataRequest(topics=topics))
    limits = EndpointLimits(request_bytes=len(content))
    async with running_endpoint({METADATA: answering(sample(MetadataResponse))}, limits=limits) as running:
        client = await running.connect()
        await client.send_bytes(sized(content))
        await client.receive()

        await eventually(lambda: running.endpoint.statistics().request_bytes == 0, what="the memory of the request")
        await client.send_bytes(sized(content + b"\0"))
        assert await client.is_closed()


async def test_requests_wait_for_memory_in_turn() -> None:
    release = asyncio.Event()
    begun: list[int] = []

    async def handle(request: RequestPayload, context: RequestContext) -> ResponsePayload:
        begun.append(context.connection_id)
        await release.wait()
        return sample(MetadataResponse)

    topics = tuple(MetadataRequestTopic(name=f"topic-{number}") for number in range(12_000))  # type: ignore[arg-type]
    content = sized(frame(MetadataRequest(topics=topics)))
    async with running_endpoint({METADATA: handle}, limits=EndpointLimits(memory_bytes=16 << 20)) as running:
        clients = [await running.connect() for _ in range(4)]
        for client in clients:
            await client.send_bytes(content)
        await eventually(lambda: len(begun) > 0, what="the first request")
        await eventually(lambda: running.endpoint._services.requests.waiting == 3, what="the others")
        assert len(begun) == 1
        assert running.endpoint.statistics().request_bytes <= 4 << 20

        release.set()
        for client in clients:
            await client.receive()

    assert len(begun) == 4


async def test_answer_waits_while_more_memory_is_in_use_than_there_is() -> None:
    holding, release = asyncio.Event(), asyncio.Event()

    async def fetch(request: RequestPayload, context: RequestContext) -> FetchAnswer:
        context.memory.settle(100 << 20)
        holding.set()
        await release.wait()
        return FetchAnswer(unthrottled(FetchResponse), {})

    handlers = {FETCH: fetch, LIST_GROUPS: answering(LISTED)}
    async with running_endpoint(handlers, limits=EndpointLimits(memory_bytes=16 << 20)) as running:
        large, small = await running.connect(), await running.connect()
        await large.send(sample(FetchRequest))
        await holding.wait()
        await small.send(GROUPS)
        await eventually(lambda: running.endpoint.statistics().waiting_answers == 1, what="the wait")

        release.set()

        assert decoded_answer(ListGroupsResponse, await small.receive())[1] == LISTED
        assert running.endpoint.statistics().answer_bytes == 0


async def test_request_is_recorded_with_its_times_sizes_and_outcome() -> None:
    handlers: dict[int, Handler] = {LIST_GROUPS: answering(LISTED)}
    async with running_endpoint(handlers) as running:

        async def fetch(request: RequestPayload, context: RequestContext) -> FetchAnswer:
            running.clock.advance(2.0)
            return FetchAnswer(unthrottled(FetchResponse), {}, waited_s=1.5)

        handlers[FETCH] = fetch
        client = await running.connect()
        with capture_logs() as logs:
            await client.ask(GROUPS, ListGroupsResponse)
            await client.ask(sample(FetchRequest), FetchResponse)

    listed, fetched = running.records.requests
    assert (listed.api, listed.version, listed.outcome) == ("ListGroups", 4, RequestOutcome.ANSWERED)
    assert listed.request_bytes == len(frame(GROUPS))
    assert (fetched.handled_s, fetched.waited_s, fetched.busy_s) == (2.0, 1.5, 0.5)
    assert logs == []


@pytest.mark.parametrize(("waited_s", "is_slow"), [(0.0, True), (1.5, False)])
async def test_slow_request_is_logged_but_not_its_wait_for_records(waited_s: float, is_slow: bool) -> None:
    with capture_logs() as logs:
        handlers: dict[int, Handler] = {}
        async with running_endpoint(handlers) as running:

            async def fetch(request: RequestPayload, context: RequestContext) -> FetchAnswer:
                running.clock.advance(2.0)
                return FetchAnswer(unthrottled(FetchResponse), {}, waited_s=waited_s)

            handlers[FETCH] = fetch
            client = await running.connect()
            await client.ask(sample(FetchRequest), FetchResponse)

    slow = [entry for entry in logs if entry["event"] == "slow_request"]
    assert len(slow) == is_slow
    if is_slow:
        assert (slow[0]["api"], slow[0]["handled_s"], slow[0]["client_id"]) == ("Fetch", 2.0, "client")


async def test_answer_with_an_error_counts_as_one() -> None:
    response = replace(LISTED, error_code=ErrorCode.coordinator_not_available)
    async with running_endpoint({LIST_GROUPS: answering(response)}) as running:
        client = await running.connect()
        await client.ask(GROUPS, ListGroupsResponse)
        statistics = running.statistics()

    assert statistics.outcomes == {RequestOutcome.ERROR: 1}
    assert (statistics.connections, statistics.accepted) == (1, 1)
    assert statistics.received_bytes > 0
    assert statistics.sent_bytes > 0
