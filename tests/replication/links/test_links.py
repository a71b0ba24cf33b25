"""Links between two daemons: requests and answers, and the ways in which a link ends."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
import uvloop

from tests.fakes.eventually import eventually
from tests.fakes.open_files import open_targets
from tests.replication.links.linked import (
    DEADLINE_S,
    LEADER,
    STANDBY,
    Nodes,
    append_request,
    running_listener,
    scripted_listener,
)
from tierd.replication.leader.pushing.pusher import AppendChannel
from tierd.replication.links.frame_connection import FrameConnection
from tierd.replication.links.link_errors import PushLinkError, PushLinkLostError, PushLinkTimeoutError
from tierd.replication.links.link_limits import LinkLimits, require_loopback
from tierd.replication.links.peer_connector import PeerConnector
from tierd.replication.model.messages import (
    AppendRecordsRequest,
    AppendRecordsResponse,
    AssignmentsRequest,
    EpochEndOffsetsRequest,
    EpochQuery,
    FetchRecordsRequest,
    LogBoundsRequest,
    PushApi,
)
from tierd.replication.model.push_session import PeerIdentity, PeerNode
from tierd.replication.wire.message_schemas import PushResponse
from tierd.replication.wire.push_frames import encode_push_response

FETCH = FetchRecordsRequest(replica_id=1, replica_epoch=50, max_wait_ms=5, min_bytes=1, max_bytes=100, partitions=())
LOOPS = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


def encoded(response: PushResponse, api: PushApi, *, correlation_id: int) -> bytes:
    """Return the bytes of an answer."""
    return b"".join(map(bytes, encode_push_response(api, response, correlation_id=correlation_id)))


HELLO = encoded(STANDBY.hello(PushApi), PushApi.HELLO, correlation_id=0)


def run(main: Callable[[], Awaitable[None]], loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Run a test in a loop of its kind."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(bounded())


async def test_every_api_is_answered_by_its_handler_with_the_asking_process() -> None:
    query = EpochQuery(topic_id=UUID(int=1), partition=0, current_leader_epoch=3, epoch=2)
    async with running_listener() as running:
        link = await running.link()
        channel: AppendChannel = link
        assert channel.peer_process_epoch == STANDBY.process_epoch
        appended = await channel.ask(append_request(b"abc", b"de"), 5.0)
        assert [each.log_end_offset for each in appended.partitions] == [5]
        assert (await link.ask(FETCH, 5.0)).throttle_ms == 5
        assert (await link.ask(EpochEndOffsetsRequest(replica_id=1, partitions=(query,)), 5.0)).error_code == 1
        assert (await link.ask(LogBoundsRequest(replica_id=1, partitions=(query,) * 2), 5.0)).error_code == 2
        assert (await link.ask(AssignmentsRequest(replica_id=1, replica_epoch=50, known_version=9), 5.0)).version == 9
        assert running.standby.peers == [PeerIdentity(1, 50)] * 5
        await link.close()
        assert not link.is_open


@LOOPS
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "tls"])
def test_large_records_arrive_whole_and_in_order(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], is_encrypted: bool, tmp_path: Path
) -> None:
    sizes = [1, 60_000, 65_531, 70_000, 3 << 20, 10, 1 << 20]
    got: list[bytes] = []

    async def append(request: AppendRecordsRequest, _: PeerIdentity) -> AppendRecordsResponse:
        got.extend(b"".join(each.records or ()) for each in request.partitions)
        return AppendRecordsResponse(throttle_ms=len(got))

    async def main() -> None:
        nodes = Nodes(tmp_path)
        tls = [await nodes.of(each) if is_encrypted else None for each in (LEADER, STANDBY)]
        async with running_listener(certificates=tls[1], handlers={AppendRecordsRequest: append}) as running:
            link = await running.link(certificates=tls[0])
            requests = [append_request(bytes([number]) * size) for number, size in enumerate(sizes)]
            answers = await asyncio.gather(*(link.ask(each, 20.0) for each in requests))
            assert [each.throttle_ms for each in answers] == list(range(1, len(sizes) + 1))
            await link.close()
        assert got == [bytes([number]) * size for number, size in enumerate(sizes)]

    run(main, loop_factory)


async def test_link_is_paused_for_requests_that_wait_behind_another_and_for_no_single_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[FrameConnection] = []
    hold = FrameConnection.hold

    def count(connection: FrameConnection) -> None:
        held.append(connection)
        hold(connection)

    monkeypatch.setattr(FrameConnection, "hold", count)
    async with running_listener() as running:
        link = await running.link()
        for number in range(5):
            await link.ask(append_request(b"%d" % number), 20.0)
        assert not held
        running.standby.gate.clear()
        asking = [asyncio.create_task(link.ask(append_request(bytes(size)), 20.0)) for size in range(1, 6)]
        await eventually(lambda: bool(held), what="a pause")
        running.standby.gate.set()
        answers = await asyncio.gather(*asking)
        assert [each.partitions[0].log_end_offset for each in answers] == [1, 2, 3, 4, 5]
        await link.close()


async def test_peer_that_does_not_answer_ends_the_link_and_all_its_requests() -> None:
    async with running_listener() as running:
        link = await running.link()
        running.standby.gate.clear()
        late = asyncio.create_task(link.ask(append_request(), 20.0))
        with pytest.raises(PushLinkTimeoutError, match=r"node 2 at 127\.0\.0\.1:\d+ did not answer APPEND_RECORDS"):
            await link.ask(append_request(), 0.01)
        with pytest.raises(PushLinkLostError):
            await late
        assert not link.is_open
        with pytest.raises(PushLinkLostError):
            await link.ask(append_request(), 1.0)


async def test_cancelled_request_ends_the_link() -> None:
    async with running_listener() as running:
        link = await running.link()
        running.standby.gate.clear()
        asking = asyncio.create_task(link.ask(append_request(), 20.0))
        await running.standby.begun.wait()
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
        assert not link.is_open


async def test_listener_that_stops_ends_the_requests_of_its_links() -> None:
    async with running_listener() as running:
        link = await running.link()
        running.standby.gate.clear()
        asking = asyncio.create_task(link.ask(append_request(), 20.0))
        await running.standby.begun.wait()
        running.task.cancel()
        with pytest.raises(PushLinkLostError, match="closed"):
            await asking


async def test_closed_port_is_named() -> None:
    connector = PeerConnector(LEADER, certificates=None)
    with pytest.raises(PushLinkLostError, match=r"node 2 at 127\.0\.0\.1:1 cannot be reached: .*refused"):
        await connector.open(PeerNode(2, "127.0.0.1", 1))


async def test_peer_that_is_silent_in_the_exchange_of_hellos_is_left() -> None:
    async with scripted_listener() as (node, _):
        connector = PeerConnector(LEADER, certificates=None, limits=LinkLimits(hello_timeout_s=0.05))
        with pytest.raises(PushLinkTimeoutError, match="Hello within"):
            await connector.open(node)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ((HELLO, b"\x7f\xff\xff\xff"), "2147483647"),
        ((HELLO, b"\x00\x00\x00\x09" + b"\xff" * 9), "damaged answer"),
        ((HELLO, encoded(AppendRecordsResponse(), PushApi.APPEND_RECORDS, correlation_id=7)), "answered request 7 in"),
        ((HELLO + HELLO, b""), "without a question"),
    ],
    ids=["size", "bytes", "correlation id", "unsolicited"],
)
async def test_answer_that_does_not_fit_ends_the_link(script: tuple[bytes, ...], problem: str) -> None:
    async with scripted_listener(*script) as (node, _):
        link = await PeerConnector(LEADER, certificates=None).open(node)
        with pytest.raises(PushLinkError, match=problem):
            await link.ask(append_request(), 5.0)
        assert not link.is_open


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (replace(STANDBY, node_id=3).hello(PushApi), "says to be tierd://cluster-A/3"),
        (replace(STANDBY, cluster_id="B").hello(PushApi), "says to be tierd://B/2"),
        (STANDBY.hello(PushApi, error_code=31), "error 31, the certificate of this daemon"),
        (STANDBY.hello(PushApi, error_code=104), "error 104, it belongs to another cluster"),
        (STANDBY.hello(PushApi, error_code=999), "error 999"),
    ],
)
async def test_other_node_than_the_expected_one_is_refused(answer: PushResponse, problem: str) -> None:
    async with scripted_listener(encoded(answer, PushApi.HELLO, correlation_id=0)) as (node, _):
        with pytest.raises(PushLinkError, match=problem):
            await PeerConnector(LEADER, certificates=None).open(node)


async def test_api_that_the_peer_does_not_announce_is_not_asked() -> None:
    standby = encoded(STANDBY.hello([PushApi.APPEND_RECORDS]), PushApi.HELLO, correlation_id=0)
    async with scripted_listener(standby) as (node, got):
        link = await PeerConnector(LEADER, certificates=None).open(node)
        with pytest.raises(PushLinkError, match="does not know FETCH_RECORDS"):
            await link.ask(FETCH, 1.0)
        assert len(got) == 1
        assert link.is_open
        await link.close()


async def test_requests_without_an_answer_are_bounded() -> None:
    async with running_listener() as running:
        link = await running.link(limits=LinkLimits(outstanding=2))
        running.standby.gate.clear()
        waiting = [asyncio.create_task(link.ask(append_request(), 20.0)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(PushLinkError, match="has not answered 2 requests"):
            await link.ask(append_request(), 20.0)
        assert [type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)] == [
            PushLinkLostError
        ] * 2


async def test_connection_without_tls_goes_to_this_host_only() -> None:
    with pytest.raises(PushLinkError, match=r"198\.51\.100\.7 would be without TLS"):
        require_loopback("198.51.100.7", purpose="a connection to")


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "tls"])
async def test_opening_cancelled_at_any_await_leaves_no_socket(is_encrypted: bool, tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    tls = [await nodes.of(each) if is_encrypted else None for each in (LEADER, STANDBY)]
    async with running_listener(certificates=tls[1]) as running:
        before = len([each for each in open_targets() if each.startswith("socket:")])
        for turns in range(200):
            opening = asyncio.create_task(running.link(certificates=tls[0]))
            for _ in range(turns):
                await asyncio.sleep(0)
            is_over = opening.done()
            opening.cancel()
            await asyncio.wait({opening})
            if is_over:
                await opening.result().close()
                break
        assert is_over

        def no_socket_is_left() -> bool:
            return len([each for each in open_targets() if each.startswith("socket:")]) == before

        await eventually(no_socket_is_left, what="the sockets to close")
        assert running.listener.statistics().connections == 0


async def test_listener_cancelled_at_any_await_leaves_no_socket() -> None:
    before = len([each for each in open_targets() if each.startswith("socket:")])
    for turns in range(40):
        async with running_listener() as running:
            opening = asyncio.create_task(running.link())
            for _ in range(turns):
                await asyncio.sleep(0)
            running.task.cancel()
            await asyncio.wait({running.task})
            running.listener.close()
            await asyncio.wait({opening})
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().close()

    def no_socket_is_left() -> bool:
        return len([each for each in open_targets() if each.startswith("socket:")]) == before

    await eventually(no_socket_is_left, what="the sockets to close")
