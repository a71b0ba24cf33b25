"""Endpoints over a real socket: codes, causes, JSON, metrics and a self-contained page."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from pydantic import JsonValue

from tests.fakes.eventually import eventually
from tests.fakes.left_tasks import nothing_left
from tests.fakes.manual_clock import ManualClock
from tierd.clock import Clock, SystemClock
from tierd.errors import ListenError
from tierd.model import TopicPartition
from tierd.ports import ConnectionGate, ConnectionLimits
from tierd.serve import HttpServer, Outage, PageSources, StatusSnapshot
from tierd.testing import cancel_at
from tierd.tiering import LogDirState, PartitionStatus
from tierd.tiering.local.partition_log import CopyLag
from tierd.tiering.partition_status import PartitionState

NOW_MS = 1_700_000_100_000


def partition(name: str, state: PartitionState = "idle", **changes: object) -> PartitionStatus:
    facts: dict[str, object] = {
        "partition": TopicPartition.parse(name),
        "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
        "directory": f"/data/{name}",
        "role": "leader",
        "leader_epoch": 3,
        "copied_through": 99,
        "high_watermark": 120,
        "log_start_offset": 0,
        "local_log_start_offset": 50,
        "state": state,
        "reason": "",
        "last_error": None,
        "remedy": "",
        "retry_at_ms": None,
        "lag": CopyLag(),
    }
    return PartitionStatus(**(facts | changes))  # type: ignore[arg-type] # keyword by keyword as declared


@dataclass(slots=True)
class Scene:
    """State of the daemon behind the server."""

    not_ready: list[str] = field(default_factory=list)
    stalled: str | None = None
    metrics: bytes = b"tierd_up 1\n"
    partitions: tuple[PartitionStatus, ...] = ()
    catalogue_problems: dict[str, JsonValue] = field(default_factory=dict)
    uncleanable: dict[str, JsonValue] = field(default_factory=dict)
    drills: dict[str, JsonValue] = field(default_factory=dict)
    descriptors: dict[str, JsonValue] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    url: str = ""

    def status(self) -> StatusSnapshot:
        return StatusSnapshot(
            version="1.2.3",
            pid=42,
            cluster_id="cluster",
            node_id=1,
            started_ms=NOW_MS - 5000,
            now_ms=NOW_MS,
            not_ready=tuple(self.not_ready),
            partitions=self.partitions,
            log_dirs=(),
            hold={"bytes": 7},
            metadata={"segments": 3},
            own_logs={"uncleanable": self.uncleanable},
            catalogue={"problems": self.catalogue_problems},
            drills=self.drills,
            descriptors=self.descriptors,
            outages=self.outages,
        )

    async def current_status(self) -> StatusSnapshot:
        return self.status()


def gate_of(clock: Clock, *, connections: int = 64, per_peer: int = 16) -> ConnectionGate:
    limits = ConnectionLimits(connections=connections, per_peer=per_peer, request_timeout_s=10, answer_timeout_s=30)
    return ConnectionGate(limits, clock=clock, is_short=lambda: False)


def server_of(
    scene: Scene,
    *,
    port: int = 0,
    gate: ConnectionGate | None = None,
    clock: Clock | None = None,
    metrics: Callable[[], bytes] | None = None,
    stalled: Callable[[], str | None] | None = None,
) -> HttpServer:
    clock = clock or SystemClock()
    return HttpServer(
        host="127.0.0.1",
        port=port,
        metrics=lambda: (metrics() if metrics else scene.metrics, "text/plain; version=0.0.4; charset=utf-8"),
        stalled=stalled or (lambda: scene.stalled),
        not_ready=lambda: scene.not_ready,
        sources=PageSources(status=scene.current_status),
        gate=gate or gate_of(clock),
        clock=clock,
    )


@pytest_asyncio.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    async with asyncio.TaskGroup() as group, server_of(scene).listening(group) as url:
        scene.url = url
        yield scene


async def get(scene: Scene, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(scene.url + path) as reply:
        return reply.status, await reply.text()


async def test_page_shows_what_is_proven_and_what_is_not(scene: Scene) -> None:
    assert "no drill is scheduled" in (await get(scene, "/"))[1]
    scene.drills = {"enabled": True, "partitions": 3, "unproven": 1, "failing": {"orders-0": "failed: <damaged>"}}
    page = (await get(scene, "/"))[1]
    assert "2 of 3 partitions proven to come back" in page
    assert '<li class="trouble">drill of orders-0 failed: &lt;damaged&gt; <a href="/help/tierddrillfails"' in page


async def test_readiness_lists_its_causes(scene: Scene) -> None:
    assert await get(scene, "/readyz") == (200, "ok\n")
    scene.not_ready = ["log dirs not looked at", "the tier cannot be written: 403"]
    assert await get(scene, "/readyz") == (503, "log dirs not looked at\nthe tier cannot be written: 403\n")


async def test_livez_fails_while_progress_is_stalled(scene: Scene) -> None:
    assert await get(scene, "/livez") == (200, "ok\n")
    scene.stalled = "copy orders-0"
    assert await get(scene, "/livez") == (503, "copy orders-0 makes no progress\n")


async def test_metrics_are_served_with_their_content_type(scene: Scene) -> None:
    async with aiohttp.ClientSession() as session, session.get(scene.url + "/metrics") as reply:
        assert await reply.text() == "tierd_up 1\n"
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")


async def test_status_is_json_with_the_lag_at_the_time_of_the_request(scene: Scene) -> None:
    scene.partitions = (
        partition("orders-0", lag=CopyLag(segments=2, bytes=2048, oldest_ms=NOW_MS - 90_000)),
        partition("orders-1", "quarantined", last_error="torn batch", remedy="run tierd inspect", copied_through=None),
    )
    async with aiohttp.ClientSession() as session, session.get(scene.url + "/status") as reply:
        status = await reply.json()
    assert status["ready"] is True
    assert status["states"] == {"idle": 1, "quarantined": 1}
    assert status["worst_lag"] == {"segments": 2, "bytes": 2048, "seconds": 90.0}
    first, second = status["partitions"]
    assert first["partition"] == "orders-0"
    assert first["lag_seconds"] == 90.0
    assert (second["last_error"], second["remedy"]) == ("torn batch", "run tierd inspect")
    assert second["copied_through"] == -1


async def test_status_has_each_outage_with_its_beginning_cause_and_remedy(scene: Scene) -> None:
    assert '"outages": []' in (await get(scene, "/status"))[1]
    scene.outages = (Outage(service="kafka", since_ms=NOW_MS, problem="refused", remedy="look at the brokers"),)

    _, body = await get(scene, "/status")

    assert json.loads(body)["outages"] == [
        {"service": "kafka", "since_ms": NOW_MS, "problem": "refused", "remedy": "look at the brokers"}
    ]


async def test_page_shows_causes_escaped_and_marked(scene: Scene) -> None:
    assert '<p class="ready">ready.' in (await get(scene, "/"))[1]
    scene.not_ready = ["object store unreachable since <noon>"]

    _, page = await get(scene, "/")

    assert '<p class="trouble">not ready: object store unreachable since &lt;noon&gt;.' in page


async def test_line_for_systemd_begins_with_the_causes(scene: Scene) -> None:
    scene.partitions = (partition("orders-0"),)
    assert scene.status().status_line() == "1 partitions (1 idle), 0 segments to copy"
    scene.not_ready = ["object store unreachable since noon"]

    assert scene.status().status_line() == (
        "not ready: object store unreachable since noon; 1 partitions (1 idle), 0 segments to copy"
    )


async def test_page_shows_the_remedy_of_a_failed_partition_behind_its_error(scene: Scene) -> None:
    scene.partitions = (partition("hurt-0", "quarantined", last_error="torn batch", remedy="run <tierd> inspect"),)

    _, page = await get(scene, "/")

    assert "<td>torn batch; run &lt;tierd&gt; inspect " in page


async def test_page_is_self_contained_escaped_and_lists_problems_first(scene: Scene) -> None:
    scene.partitions = (
        partition("fine-0"),
        partition("hurt-0", "quarantined", last_error="<script>alert(1)</script>"),
    )
    code, page = await get(scene, "/")
    assert code == 200
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.index("hurt-0") < page.index("fine-0")
    assert "http://" not in page
    assert "https://" not in page


async def test_page_names_own_logs_that_are_not_cleaned_and_no_more_than_twenty(scene: Scene) -> None:
    assert "not cleaned" not in (await get(scene, "/"))[1]
    scene.uncleanable = {f"orders-{n}": "torn batch <8192>" for n in range(30)}

    _, page = await get(scene, "/")

    assert "the log orders-0 is not cleaned until it is repaired (tierd inspect): torn batch &lt;8192&gt;" in page
    assert "orders-20 " not in page
    assert "10 more logs are not cleaned" in page


async def test_page_warns_of_a_shortage_of_descriptors(scene: Scene) -> None:
    assert "descriptors are open" not in (await get(scene, "/"))[1]
    scene.descriptors = {"open": 900, "limit": 1000, "near_limit": True}

    assert "900 of 1000 descriptors are open: raise LimitNOFILE" in (await get(scene, "/"))[1]


async def test_page_says_what_is_missing_from_the_catalogue(scene: Scene) -> None:
    assert "the catalogue for restores is not whole" not in (await get(scene, "/"))[1]
    scene.catalogue_problems = {"positions": "no route to <the store>"}

    assert "the catalogue for restores is not whole: no route to &lt;the store&gt;" in (await get(scene, "/"))[1]


async def test_an_unknown_path_is_404(scene: Scene) -> None:
    assert (await get(scene, "/nothing"))[0] == 404


async def test_an_address_in_use_is_named_with_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = server_of(Scene(), port=port)
        async with asyncio.TaskGroup() as group:
            with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{port} cannot be bound: Address already in use"):
                async with server.listening(group):
                    pass


async def test_slow_client_does_not_delay_the_stop_of_the_server() -> None:
    gate = gate_of(SystemClock())
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        async with server_of(Scene(), gate=gate).listening(group) as url:
            port = int(url.rsplit(":", 1)[1])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /status HT")
            await writer.drain()
            await eventually(lambda: gate.connections == 1, what="the connection to be accepted")
        await ends(reader, writer)


@dataclass(slots=True)
class Attacked:
    """Server whose clock a test moves, and connections to it."""

    scene: Scene
    gate: ConnectionGate
    clock: ManualClock
    url: str

    async def connect(self, payload: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect and send; the receive buffer is small, so that an unread answer waits at the server."""
        channel = socket.socket()
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        channel.setblocking(False)
        await asyncio.get_running_loop().sock_connect(channel, ("127.0.0.1", int(self.url.rsplit(":", 1)[1])))
        reader, writer = await asyncio.open_connection(sock=channel, limit=4096)
        writer.write(payload)
        await writer.drain()
        return reader, writer


@pytest_asyncio.fixture
async def attacked() -> AsyncIterator[Attacked]:
    scene, clock = Scene(), ManualClock()
    gate = gate_of(clock, connections=8, per_peer=8)
    server = server_of(scene, gate=gate, clock=clock)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group, server.listening(group) as url:
        scene.url = url
        yield Attacked(scene, gate, clock, url)


async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while await reader.read(65536):
            pass
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize(
    "payload", [b"", b"GET /status HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"]
)
async def test_connection_without_whole_request_is_cut_after_ten_seconds(attacked: Attacked, payload: bytes) -> None:
    slow = await attacked.connect(payload)
    await eventually(lambda: attacked.gate.connections == 1 and attacked.clock.sleeping == 1, what="the connection")
    if payload.endswith(b"\r\n\r\n"):
        assert await slow[0].readuntil(b"ok\n")
    attacked.clock.advance(10)
    await ends(*slow)
    await eventually(lambda: attacked.gate.connections == 0, what="its place")


async def test_header_sent_in_pieces_does_not_extend_its_deadline(attacked: Attacked) -> None:
    reader, writer = await attacked.connect(b"GET / HTTP/1.1\r\n")
    for _ in range(9):
        await eventually(lambda: attacked.clock.sleeping == 1, what="the watch")
        writer.write(b"X-A: b\r\n")
        attacked.clock.advance(1)
    assert attacked.gate.connections == 1
    await eventually(lambda: attacked.clock.sleeping == 1, what="the watch")
    attacked.clock.advance(1)
    await ends(reader, writer)


async def test_answer_that_is_not_read_is_cut_after_thirty_seconds(attacked: Attacked) -> None:
    attacked.scene.metrics = b"m" * (8 << 20)
    reader, writer = await attacked.connect(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await reader.readexactly(1)
    await eventually(lambda: attacked.clock.sleeping == 1, what="the watch")
    attacked.clock.advance(29)
    await eventually(lambda: attacked.clock.sleeping == 1, what="the watch")
    assert attacked.gate.connections == 1
    attacked.clock.advance(1)
    await eventually(lambda: attacked.gate.connections == 0, what="its place")
    await ends(reader, writer)


async def test_probe_is_answered_while_idle_connections_fill_the_port(attacked: Attacked) -> None:
    idle = [await attacked.connect(b"") for _ in range(40)]
    assert await get(attacked.scene, "/livez") == (200, "ok\n")
    assert attacked.gate.connections <= 8
    for reader, writer in idle:
        writer.close()
        await ends(reader, writer)


async def test_probe_is_answered_and_scrape_is_refused_while_large_answers_are_not_read() -> None:
    scene = Scene(metrics=b"m" * (8 << 20))
    gate = gate_of(clock := ManualClock(), connections=16, per_peer=16)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        async with server_of(scene, gate=gate, clock=clock).listening(group) as scene.url:
            target = Attacked(scene, gate, clock, scene.url)
            greedy = [await target.connect(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(8)]
            for reader, _ in greedy:
                assert await reader.readexactly(1)
            assert (await get(scene, "/metrics"))[0] == 503
            assert await get(scene, "/livez") == (200, "ok\n")
        for _, writer in greedy:
            writer.transport.abort()  # most of each answer is unread
            with suppress(ConnectionError):
                await writer.wait_closed()


async def test_event_loop_runs_other_tasks_between_requests_sent_together() -> None:
    turns, turn_of_request = 0, list[int]()

    def stalled() -> None:
        turn_of_request.append(turns)

    async def work() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        working = group.create_task(work())
        async with server_of(Scene(), stalled=stalled).listening(group) as url:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
            for _ in range(100):
                await reader.readuntil(b"ok\n")
            writer.close()
            await writer.wait_closed()
        working.cancel()
    assert len(set(turn_of_request)) == 100


async def test_large_answers_are_made_one_at_a_time_with_pauses_for_the_daemon() -> None:
    clock = ManualClock()
    made_s: list[float] = []

    def metrics() -> bytes:
        made_s.append(clock.monotonic_s())
        clock.advance(0.2)
        return b"tierd_up 1\n"

    scene = Scene()
    server = server_of(scene, gate=gate_of(clock), clock=clock, metrics=metrics)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group, server.listening(group) as scene.url:
        scrapes = [group.create_task(get(scene, "/metrics")) for _ in range(3)]
        for made in (1, 2):
            await eventually(lambda: clock.sleeping == 2, what="the next answer and the watch to wait")
            assert len(made_s) == made
            assert await get(scene, "/livez") == (200, "ok\n")
            clock.advance(0.6)
        assert [(await scrape)[0] for scrape in scrapes] == [200, 200, 200]
    assert made_s == pytest.approx([0.0, 0.8, 1.6])


async def test_large_answer_is_not_made_for_a_waiting_client_that_disconnected() -> None:
    clock, made = ManualClock(), list[float]()

    def metrics() -> bytes:
        made.append(clock.monotonic_s())
        clock.advance(0.2)
        return b"tierd_up 1\n"

    scene, gate = Scene(), gate_of(clock)
    server = server_of(scene, gate=gate, clock=clock, metrics=metrics)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group, server.listening(group) as scene.url:
        assert (await get(scene, "/metrics"))[0] == 200
        target = Attacked(scene, gate, clock, scene.url)
        gone = [await target.connect(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") for _ in range(4)]
        await eventually(lambda: clock.sleeping == 2, what="the next answer and the watch to wait")
        for _, writer in gone:
            writer.transport.abort()
        await eventually(lambda: gate.connections == 0, what="their places")
        clock.advance(0.6)
        assert (await get(scene, "/metrics"))[0] == 200
    assert made == pytest.approx([0.0, 0.8])


@pytest.mark.parametrize("ending", ["client goes away", "gate cuts it"])
async def test_answer_that_is_not_read_writes_no_log_line(
    attacked: Attacked, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    attacked.scene.metrics = b"m" * (8 << 20)
    reader, writer = await attacked.connect(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await reader.readexactly(1)
    if ending == "client goes away":
        writer.transport.abort()
    else:
        await eventually(lambda: attacked.clock.sleeping == 1, what="the watch")
        attacked.clock.advance(30)
    await eventually(lambda: attacked.gate.connections == 0, what="its place")
    assert await get(attacked.scene, "/livez") == (200, "ok\n")
    await ends(reader, writer)
    lines = [each.getMessage() for each in caplog.records]
    assert [line for line in lines if not line.startswith("Executing <")] == []  # asyncio's word on a slow machine


async def test_request_with_a_body_is_refused_and_its_connection_ends(scene: Scene) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(scene.url.rsplit(":", 1)[1]))
    writer.write(b"GET /status HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 413")
    writer.close()
    await writer.wait_closed()


async def test_request_with_too_many_headers_is_refused_without_a_log_line(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(scene.url.rsplit(":", 1)[1]))
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"X-A: b\r\n" * 100 + b"\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.0 400")
    assert "Traceback" not in caplog.text
    writer.close()
    await writer.wait_closed()


def test_status_has_log_dirs_and_their_ignored_entries() -> None:
    state = LogDirState(path=Path("/data"), problem="offline", ignored=(("lost+found", "no name"),))
    snapshot = replace(Scene().status(), log_dirs=(state,))
    assert snapshot.to_json()["log_dirs"] == [
        {"path": "/data", "problem": "offline", "ignored": [["lost+found", "no name"]]}
    ]


async def test_readiness_and_page_show_control_characters_and_markup_as_text(scene: Scene) -> None:
    hostile = "\x1b[2J\u202e<script>x</script>\r\nall is well"
    scene.not_ready = [hostile]
    scene.partitions = (partition("orders-0", "quarantined", last_error=hostile),)
    scene.uncleanable = {hostile: hostile}

    _, page = await get(scene, "/")
    status, readiness = await get(scene, "/readyz")

    assert status == 503
    for text in (page, readiness):
        assert not [character for character in text if not character.isprintable() and character != "\n"]
        assert r"\x1b[2J\u202e" in text
    assert "<script>" not in page
    assert readiness.count("\n") == 1


async def test_server_whose_stop_is_cancelled_again_leaves_no_task_and_no_port() -> None:
    ports: list[int] = []

    async def serve() -> None:
        async with asyncio.TaskGroup() as group, server_of(Scene()).listening(group) as url:
            ports.append(int(url.rpartition(":")[2]))
            for _ in range(5):
                await asyncio.sleep(0)

    suspension = 1
    with nothing_left():
        while await cancel_at(suspension, serve, times=2):
            suspension += 1
    assert len(ports) > 4
    for port in ports:
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))
