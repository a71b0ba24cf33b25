"""The endpoints over a real socket: codes, causes, JSON, metrics and a page without anything from elsewhere."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tierd.errors import ListenError
from tierd.model import TopicPartition
from tierd.serve import HttpServer, StatusSnapshot
from tierd.tiering import CopyLag, LogDirState, PartitionState, PartitionStatus

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
        "retry_at_ms": None,
        "lag": CopyLag(),
    }
    return PartitionStatus(**(facts | changes))  # type: ignore[arg-type] # keyword by keyword as declared


@dataclass(slots=True)
class Scene:
    """What the daemon behind the server is like."""

    not_ready: list[str] = field(default_factory=list)
    stalled: str | None = None
    partitions: tuple[PartitionStatus, ...] = ()
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
        )


@pytest_asyncio.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    server = HttpServer(
        host="127.0.0.1",
        port=0,
        metrics=lambda: (b"tierd_up 1\n", "text/plain; version=0.0.4; charset=utf-8"),
        stalled=lambda: scene.stalled,
        not_ready=lambda: scene.not_ready,
        status=scene.status,
    )
    async with server.listening() as url:
        scene.url = url
        yield scene


async def get(scene: Scene, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(scene.url + path) as reply:
        return reply.status, await reply.text()


async def test_readiness_lists_its_causes(scene: Scene) -> None:
    assert await get(scene, "/readyz") == (200, "ok\n")
    scene.not_ready = ["log dirs not looked at", "the tier cannot be written: 403"]
    assert await get(scene, "/readyz") == (503, "log dirs not looked at\nthe tier cannot be written: 403\n")


async def test_liveness_follows_progress(scene: Scene) -> None:
    assert await get(scene, "/livez") == (200, "ok\n")
    scene.stalled = "copy orders-0"
    assert await get(scene, "/livez") == (503, "copy orders-0 makes no progress\n")


async def test_metrics_are_passed_on_with_their_content_type(scene: Scene) -> None:
    async with aiohttp.ClientSession() as session, session.get(scene.url + "/metrics") as reply:
        assert await reply.text() == "tierd_up 1\n"
        assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")


async def test_status_is_json_with_lag_computed_at_the_moment_it_is_asked(scene: Scene) -> None:
    scene.partitions = (
        partition("orders-0", lag=CopyLag(segments=2, bytes=2048, oldest_ms=NOW_MS - 90_000)),
        partition("orders-1", "quarantined", last_error="torn batch", copied_through=None),
    )
    async with aiohttp.ClientSession() as session, session.get(scene.url + "/status") as reply:
        status = await reply.json()
    assert status["ready"] is True
    assert status["states"] == {"idle": 1, "quarantined": 1}
    assert status["worst_lag"] == {"segments": 2, "bytes": 2048, "seconds": 90.0}
    first, second = status["partitions"]
    assert first["partition"] == "orders-0"
    assert first["lag_seconds"] == 90.0
    assert second["last_error"] == "torn batch"
    assert second["copied_through"] == -1


async def test_the_page_is_self_contained_escapes_and_puts_trouble_first(scene: Scene) -> None:
    scene.partitions = (
        partition("fine-0"),
        partition("hurt-0", "quarantined", last_error="<script>alert(1)</script>"),
    )
    code, page = await get(scene, "/")
    assert code == 200
    assert "http-equiv=refresh" in page
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.index("hurt-0") < page.index("fine-0")
    assert "http://" not in page
    assert "https://" not in page


async def test_an_unknown_path_is_404(scene: Scene) -> None:
    assert (await get(scene, "/nothing"))[0] == 404


async def test_an_address_in_use_is_named_with_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = HttpServer(
            host="127.0.0.1",
            port=port,
            metrics=lambda: (b"", "text/plain"),
            stalled=lambda: None,
            not_ready=list,
            status=Scene().status,
        )
        with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{port} cannot be bound: Address already in use"):
            async with server.listening():
                pass


async def test_a_slow_client_does_not_hold_up_the_stop() -> None:
    scene = Scene()
    server = HttpServer(
        host="127.0.0.1",
        port=0,
        metrics=lambda: (b"", "text/plain"),
        stalled=lambda: None,
        not_ready=list,
        status=scene.status,
    )
    async with asyncio.timeout(10):
        async with server.listening() as url:
            port = int(url.rsplit(":", 1)[1])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /status HT")
            await writer.drain()
        assert await reader.read() == b""
        writer.close()


def test_log_dirs_and_what_is_ignored_in_them_are_in_the_status() -> None:
    state = LogDirState(path=Path("/data"), problem="offline", ignored=(("lost+found", "no name"),))
    snapshot = replace(Scene().status(), log_dirs=(state,))
    assert snapshot.to_json()["log_dirs"] == [
        {"path": "/data", "problem": "offline", "ignored": [["lost+found", "no name"]]}
    ]
