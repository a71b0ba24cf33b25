"""The push listener against peers that are slow, many, false, or not daemons at all."""

import asyncio
import socket
import tracemalloc
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.open_files import open_targets
from tests.replication.links.linked import (
    LEADER,
    STANDBY,
    TOPIC_ID,
    RawPeer,
    RunningListener,
    append_request,
    raw_peer,
    running_listener,
)
from tierd.errors import ListenError
from tierd.ports import ConnectionGate, ConnectionLimits
from tierd.replication.links.link_errors import PushLinkError, PushLinkLostError
from tierd.replication.links.link_identity import LinkIdentity
from tierd.replication.links.link_limits import LinkLimits
from tierd.replication.links.push_listener import PushListener, PushListenPlan
from tierd.replication.model.messages import (
    AppendRecordsResponse,
    AssignmentsRequest,
    FetchRecordsRequest,
    FetchRecordsResponse,
    HelloMessage,
    PartitionFetchResult,
    PushApi,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity
from tierd.replication.wire.message_schemas import PushRequest
from tierd.replication.wire.push_frames import encode_push_request

KIB, MIB = 1 << 10, 1 << 20
FETCH = FetchRecordsRequest(
    replica_id=1, replica_epoch=50, max_wait_ms=60_000, min_bytes=1, max_bytes=MIB, partitions=()
)
OTHER_BYTES = {
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "http": b"GET / HTTP/1.1\r\nHost: tierd\r\n\r\n",
    "zero": bytes(64),
    "negative size": b"\xff\xff\xff\xff",
    "largest size": b"\x7f\xff\xff\xff",
    "large before the hello": (64 * KIB + 1).to_bytes(4, "big"),
    "random": b"\x00\x00\x00\x20" + bytes(range(32)),
}


def memory_bytes() -> int:
    """Return the memory that this process has in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def sockets() -> int:
    """Return the number of open sockets of this process."""
    return sum(each.startswith("socket:") for each in open_targets())


async def refused(running: RunningListener, count: int = 1) -> None:
    """Wait until the listener has ended connections for faults of peers."""
    await eventually(lambda: running.listener.statistics().refused >= count, what="a refused peer")


@pytest.mark.spec("push-replication 94")
async def test_request_before_the_hello_ends_the_connection() -> None:
    async with running_listener() as running, raw_peer(running.port) as peer:
        with capture_logs() as lines:
            await peer.say(append_request(b"records"))
            assert await peer.is_closed()
            await refused(running)
        assert running.standby.appended == []
        assert [(line["event"], line["problem"]) for line in lines] == [
            ("push_peer_refused", "the peer sent APPEND_RECORDS before its Hello")
        ]


@pytest.mark.spec("push-replication 92")
@pytest.mark.parametrize("says_hello", [False, True])
async def test_largest_size_of_a_frame_ends_the_connection_without_an_allocation(says_hello: bool) -> None:
    async with running_listener() as running, raw_peer(running.port, says_hello=says_hello) as peer:
        tracemalloc.start()
        try:
            await peer.send(b"\x7f\xff\xff\xff" + bytes(100))
            assert await peer.is_closed()
            _, most_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most_bytes < 512 * KIB


async def test_sizes_that_peers_claim_take_no_memory_until_bytes_arrive() -> None:
    async with AsyncExitStack() as stack:
        limits = LinkLimits(memory_bytes=1 << 30, links_per_node=32)
        running = await stack.enter_async_context(running_listener(limits=limits))
        peers = [await stack.enter_async_context(raw_peer(running.port, says_hello=True)) for _ in range(8)]
        before = memory_bytes()
        for peer in peers:
            await peer.send((100 * MIB).to_bytes(4, "big") + bytes(100 * KIB))
        await eventually(
            lambda: running.listener.statistics().frame_bytes == 8 * 100 * MIB, what="the beginnings of eight frames"
        )
        assert memory_bytes() - before < 100 * MIB


@pytest.mark.parametrize("kind", OTHER_BYTES)
async def test_peer_that_does_not_speak_the_protocol_is_refused(kind: str) -> None:
    async with running_listener() as running, raw_peer(running.port) as peer:
        await peer.send(OTHER_BYTES[kind])
        assert await peer.is_closed()
        await refused(running)
        link = await running.link()
        await link.ask(append_request(b"x"), 5.0)
        await link.close()


@pytest.mark.spec("push-replication 94")
async def test_request_in_the_name_of_another_node_gets_an_error_and_the_connection_ends() -> None:
    async with running_listener() as running, raw_peer(running.port, says_hello=True) as peer:
        await peer.say(append_request(b"records", leader_id=3))
        answer = await peer.answer(PushApi.APPEND_RECORDS)
        assert answer == AppendRecordsResponse(error_code=PushErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert await peer.is_closed()
        await peer_of_other_question(running)
        assert running.standby.appended == []


async def peer_of_other_question(running: RunningListener) -> None:
    """Ask with the replica id of another node."""
    async with raw_peer(running.port, says_hello=True) as peer:
        await peer.say(replace(FETCH, replica_id=3))
        answer = await peer.answer(PushApi.FETCH_RECORDS)
        assert answer == FetchRecordsResponse(error_code=PushErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        assert await peer.is_closed()


@pytest.mark.parametrize(
    ("identity", "code"),
    [
        (replace(LEADER, cluster_id="B"), PushErrorCode.INCONSISTENT_CLUSTER_ID),
        (replace(LEADER, node_id=STANDBY.node_id), PushErrorCode.INVALID_REQUEST),
        (replace(LEADER, process_epoch=49), PushErrorCode.STALE_BROKER_EPOCH),
    ],
    ids=["cluster", "same node", "older process"],
)
async def test_hello_of_a_false_peer_gets_an_error_and_the_connection_ends(
    identity: LinkIdentity, code: PushErrorCode
) -> None:
    async with running_listener() as running:
        link = await running.link()
        with pytest.raises(PushLinkError, match=f"error {code.value}, "):
            await running.link(identity)
        await link.ask(append_request(b"x"), 5.0)
        await link.close()
        await refused(running)


async def test_newer_process_of_a_node_ends_the_links_of_the_older_one() -> None:
    async with running_listener() as running:
        older = await running.link()
        newer = await running.link(replace(LEADER, process_epoch=51))
        await eventually(lambda: not older.is_open, what="the end of the older link")
        assert running.listener.statistics().nodes == {LEADER.node_id: 1}
        await newer.close()
        await eventually(lambda: running.listener.statistics().nodes == {}, what="no links")


async def test_one_link_more_than_a_node_may_have_ends_its_oldest() -> None:
    async with running_listener(limits=LinkLimits(links_per_node=2)) as running:
        links = [await running.link() for _ in range(3)]
        await eventually(lambda: not links[0].is_open, what="the end of the oldest link")
        assert [link.is_open for link in links] == [False, True, True]
        for link in links[1:]:
            await link.close()


async def test_second_hello_ends_the_connection() -> None:
    async with running_listener() as running, raw_peer(running.port, says_hello=True) as peer:
        await peer.say(LEADER.hello(PushApi))
        assert await peer.is_closed()
        await refused(running)


async def test_request_without_a_handler_ends_the_connection() -> None:
    async with running_listener(handlers={}) as running, raw_peer(running.port) as peer:
        await peer.say(LEADER.hello(PushApi))
        hello = await peer.answer(PushApi.HELLO)
        assert isinstance(hello, HelloMessage)
        assert [each.api_key for each in hello.apis] == [PushApi.HELLO]
        await peer.say(append_request(b"records"))
        assert await peer.is_closed()


async def test_bug_in_a_handler_ends_its_connection_alone() -> None:
    async with running_listener() as running:
        first, second = await running.link(), await running.link()
        running.standby.is_broken = True
        with capture_logs() as lines, pytest.raises(PushLinkLostError):
            await first.ask(append_request(b"x"), 5.0)
        await eventually(lambda: running.listener.statistics().failed == 1, what="the fault")
        assert [(line["event"], line["log_level"]) for line in lines] == [("push_request_failed", "error")]
        running.standby.is_broken = False
        await second.ask(append_request(b"x"), 5.0)
        await second.close()


@pytest.mark.parametrize(
    "sent", [b"", b"\x00\x00", b"\x00\x00\x40\x00half of a request"], ids=["nothing", "size", "half"]
)
@pytest.mark.parametrize("says_hello", [False, True])
async def test_half_open_or_slow_peer_is_cut_at_the_deadline(sent: bytes, says_hello: bool) -> None:
    clock = ManualClock()
    async with running_listener(clock=clock) as running, raw_peer(running.port, says_hello=says_hello) as peer:
        await peer.send(sent)
        limits = LinkLimits()
        await eventually(lambda: running.listener.statistics().connections == 1, what="the connection")
        await eventually(lambda: clock.sleeping == 1, what="the watch of the deadlines")
        clock.advance(limits.idle_timeout_s if says_hello else limits.hello_timeout_s)
        assert await peer.is_closed()
        await eventually(lambda: running.listener.statistics().connections == 0, what="the place")


async def test_peer_that_does_not_take_its_answer_is_cut_at_the_deadline() -> None:
    clock, fetched = ManualClock(), asyncio.Event()
    answer = FetchRecordsResponse(
        partitions=(PartitionFetchResult(topic_id=TOPIC_ID, partition=0, error_code=0, records=(bytes(64 * MIB),)),)
    )

    async def fetch(_: FetchRecordsRequest, __: PeerIdentity) -> FetchRecordsResponse:
        fetched.set()
        return answer

    async with running_listener(clock=clock, handlers={FetchRecordsRequest: fetch}) as running:
        with socket.create_connection(("127.0.0.1", running.port)) as deaf:
            deaf.setblocking(False)
            pieces: tuple[PushRequest, ...] = (LEADER.hello(PushApi), FETCH)
            for each in pieces:
                deaf.send(b"".join(encode_push_request(each, correlation_id=0, client_id="deaf")))
            await eventually(lambda: running.listener.statistics().nodes == {1: 1}, what="the Hello")
            await eventually(lambda: clock.sleeping == 1, what="the watch of the deadlines")
            await eventually(fetched.is_set, what="the answer")
            clock.advance(LinkLimits().answer_timeout_s)
            await eventually(lambda: running.listener.statistics().connections == 0, what="the end of the connection")


async def test_connection_of_half_a_day_ends_after_an_answer_so_that_the_next_one_has_new_certificates() -> None:
    clock = ManualClock()
    async with running_listener(clock=clock, limits=LinkLimits(max_age_s=50.0)) as running:
        link = await running.link()
        await link.ask(append_request(b"x"), 5.0)
        assert link.is_open
        clock.advance(50.0)
        await link.ask(append_request(b"x"), 5.0)
        await eventually(lambda: not link.is_open, what="the end of the link")
    assert LinkLimits().max_age_s == 12 * 3600


@pytest.mark.parametrize(
    "request_", [FETCH, AssignmentsRequest(replica_id=1, replica_epoch=50)], ids=["fetch", "assignments"]
)
async def test_peer_that_goes_away_ends_its_long_poll(request_: FetchRecordsRequest | AssignmentsRequest) -> None:
    async with running_listener() as running:
        running.standby.gate.clear()
        async with raw_peer(running.port, says_hello=True) as peer:
            await peer.say(request_)
            await running.standby.begun.wait()
        await eventually(lambda: running.standby.cancelled == [type(request_)], what="the end of the long poll")
        await eventually(lambda: running.listener.statistics().connections == 0, what="the place")
        assert running.listener.statistics().refused == 0


async def test_append_of_a_peer_that_goes_away_is_carried_out() -> None:
    async with running_listener() as running:
        running.standby.gate.clear()
        async with raw_peer(running.port, says_hello=True) as peer:
            await peer.say(append_request(b"records"))
            await running.standby.begun.wait()
        running.standby.gate.set()
        await eventually(lambda: running.standby.appended == [7], what="the append")
        assert running.standby.cancelled == []


async def test_flood_of_connections_is_bounded_and_leaves_known_peers_alone() -> None:
    async with running_listener(places=8) as running, AsyncExitStack() as stack:
        link = await running.link()
        before = sockets()
        for _ in range(100):
            await stack.enter_async_context(raw_peer(running.port))
        await eventually(lambda: sockets() <= before + 100 + 8, what="the sockets of the listener")
        assert running.listener.statistics().connections <= 8
        await link.ask(append_request(b"x"), 5.0)
        await link.close()


async def test_flood_of_large_frames_waits_for_memory_in_line() -> None:
    frame_bytes = 4 * MIB
    limits = LinkLimits(memory_bytes=2 * frame_bytes + MIB)
    async with running_listener(limits=limits) as running:
        running.standby.gate.clear()
        links = [await running.link() for _ in range(6)]
        asking = [asyncio.create_task(link.ask(append_request(bytes(frame_bytes)), 20.0)) for link in links]
        await running.standby.begun.wait()
        used = []
        for _ in range(50):
            await asyncio.sleep(0)
            used.append(running.listener.statistics().frame_bytes)
        assert max(used) <= limits.memory_bytes
        running.standby.gate.set()
        await asyncio.gather(*asking)
        assert running.standby.appended == [frame_bytes] * 6
        assert running.listener.statistics().frame_bytes == 0
        for link in links:
            await link.close()


async def test_frames_that_are_read_ahead_are_bounded() -> None:
    async with running_listener() as running, raw_peer(running.port, says_hello=True) as peer:
        running.standby.gate.clear()
        sending = asyncio.create_task(_send_many(peer))
        await running.standby.begun.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        assert running.listener.statistics().frame_bytes <= 3 * MIB
        assert not sending.done()
        sending.cancel()
        await asyncio.wait({sending})
        running.standby.gate.set()


async def _send_many(peer: RawPeer) -> None:
    for _ in range(100):
        await peer.say(append_request(bytes(MIB)))


@pytest.mark.parametrize("host", ["0.0.0.0", ""])
async def test_port_without_tls_is_on_the_loopback_interface_only(host: str) -> None:
    gate = ConnectionGate(ConnectionLimits(connections=4, per_peer=4), clock=ManualClock(), is_short=lambda: False)
    plan = PushListenPlan(host=host, port=0, certificates=None)
    before = sockets()
    with pytest.raises(ListenError, match="would be without TLS"):
        await PushListener(plan, STANDBY, {}, gate, clock=ManualClock()).bind()
    assert sockets() == before
    allowed = PushListener(replace(plan, allow_plaintext=True), STANDBY, {}, gate, clock=ManualClock())
    await allowed.bind()
    allowed.close()


async def test_address_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        gate = ConnectionGate(ConnectionLimits(connections=4, per_peer=4), clock=ManualClock(), is_short=lambda: False)
        plan = PushListenPlan(host="127.0.0.1", port=taken.getsockname()[1], certificates=None)
        with pytest.raises(ListenError, match=r"push\.listen cannot be bound to 127\.0\.0\.1"):
            await PushListener(plan, STANDBY, {}, gate, clock=ManualClock()).bind()
