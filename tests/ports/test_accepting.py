"""Accept loop of a port when the process has no descriptor left, over real sockets."""

import asyncio
import socket

from structlog.testing import capture_logs

from tests.fakes.descriptors import no_descriptors_left
from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tierd.ports.accepting import accept_connections, listening_sockets
from tierd.ports.connection_gate import Connection, ConnectionGate, ConnectionLimits


async def test_accept_loop_without_descriptors_pauses_cuts_waiting_connections_and_continues_later() -> None:
    clock = ManualClock()
    limits = ConnectionLimits(connections=8, per_peer=8)
    gate = ConnectionGate(limits, clock=clock, is_short=lambda: False)
    accepted: list[socket.socket] = []
    places: list[Connection] = []

    async def serve(channel: socket.socket, connection: Connection) -> None:
        await asyncio.sleep(0)
        accepted.append(channel)
        places.append(connection)

    (listening,) = await listening_sockets("127.0.0.1", 0)
    address = listening.getsockname()
    with listening, socket.socket() as first, socket.socket() as second, capture_logs() as logs:
        task = asyncio.create_task(accept_connections(listening, gate, serve, clock=clock, peer=lambda _: "peer"))
        first.connect(address)
        await eventually(lambda: len(accepted) == 1, what="the first connection")
        with no_descriptors_left():
            second.connect(address)
            await eventually(lambda: clock.sleeping == 1, what="the rest")
            assert places[0].is_cut
            assert [entry["event"] for entry in logs] == ["accept_failed"]
        clock.advance(1)
        await eventually(lambda: len(accepted) == 2, what="the second connection")
        task.cancel()
        await asyncio.wait({task})
        for channel in accepted:
            channel.close()


async def test_host_name_gives_a_socket_for_each_of_its_addresses() -> None:
    sockets = await listening_sockets("localhost", 0)
    try:
        hosts = {each.getsockname()[0] for each in sockets}
    finally:
        for each in sockets:
            each.close()
    assert "127.0.0.1" in hosts
    assert len(hosts) == len(sockets)
