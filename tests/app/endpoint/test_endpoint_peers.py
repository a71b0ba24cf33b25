"""EndpointPeers: which peers are alive, and what a daemon that cannot connect says of them."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from tests.fakes.descriptors import no_descriptors_left
from tests.fakes.manual_clock import ManualClock
from tierd.app.endpoint.endpoint_peers import EndpointPeers
from tierd.config import EndpointPeerSettings

LISTENER = "plain"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def peers_at(*addresses: str) -> EndpointPeers:
    settings = [EndpointPeerSettings(node_id=2 + at, address=address) for at, address in enumerate(addresses)]
    return EndpointPeers(settings, listener=LISTENER, clock=ManualClock())


async def live_after(peers: EndpointPeers, times: int = 3) -> frozenset[int]:
    for _ in range(times):
        await peers.refresh()
    return peers.live_ids


async def test_peer_is_lost_after_two_failures_and_alive_again_after_one_connection(port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        gone = listening.getsockname()[1]
    peers = peers_at(f"localhost:{port}", f"127.0.0.1:{gone}")
    assert await live_after(peers, 1) == {2, 3}
    assert await live_after(peers, 1) == {2}
    with socket.create_server(("127.0.0.1", gone)):
        assert await live_after(peers, 1) == {2, 3}
    assert peers.revision == 2


async def test_daemon_without_descriptors_does_not_take_its_peers_for_lost(port: int) -> None:
    peers = peers_at(f"127.0.0.1:{port}")
    with no_descriptors_left():
        assert await live_after(peers) == {2}


@pytest.mark.parametrize(
    ("failure", "live"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), {2}),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), set()),
    ],
)
async def test_name_that_cannot_be_looked_up_now_leaves_a_peer_as_it_is_and_one_that_is_gone_does_not(
    monkeypatch: pytest.MonkeyPatch, failure: OSError, live: set[int]
) -> None:
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", _failing(failure))
    assert await live_after(peers_at("tierd-2.example.com:9192")) == live


def _failing(failure: OSError) -> Callable[..., object]:
    async def getaddrinfo(*_: object, **__: object) -> None:
        raise failure

    return getaddrinfo
