"""SimulatedNetwork: connections between the processes, with everything that a network does to messages.

A connection keeps the order of its messages, as TCP does; two connections do not. A connection that breaks may break
for one side only, and its last messages may arrive or not: what was sent again over the next connection then comes
twice, or in another order. A duplicate of a request comes over a connection of its own.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tests.replication.simulation.world import NodeLoop, SimulatedWorld, Turned
from tierd.errors import TierError
from tierd.replication.model.messages import AppendRecordsRequest, PartitionAppend
from tierd.replication.model.push_session import PeerIdentity
from tierd.replication.wire.push_frames import (
    api_of,
    decode_push_request,
    decode_push_response,
    encode_push_request,
    encode_push_response,
)

_CONNECT_S = 0.001


class NetworkNode(Turned, Protocol):
    """Process that the network connects."""

    @property
    def identity(self) -> PeerIdentity:
        """Return the node id and process epoch."""

    async def handle(self, request: Any, peer: PeerIdentity) -> Any:  # noqa: ANN401 - any request, and its answer
        """Answer a request of a peer."""


@dataclass(slots=True)
class NetworkFaults:
    """Faults of the network: probabilities for each message.

    Attributes:
        longest_delay_s: of a message.
        breaks: the connection breaks; the message arrives or not.
        is_silent: part of the breaks that one side does not hear of.
        duplicates: a request comes twice.
        corrupts: a bit of the records of a push flips.
    """

    longest_delay_s: float = 0.002
    breaks: float = 0.0
    is_silent: float = 0.0
    duplicates: float = 0.0
    corrupts: float = 0.0


class SimulatedNetwork:
    """Connections of all nodes.

    Attributes:
        faults: of all messages from now on.
        is_encoded: messages pass through the codec.
        corruptions: flipped bits of records, on links and in reads of files.
    """

    def __init__(self, world: SimulatedWorld, find: Callable[[int], NetworkNode | None], *, is_encoded: bool) -> None:
        self.faults = NetworkFaults()
        self.is_encoded = is_encoded
        self.corruptions = 0
        self.world = world
        self._find = find
        self._cuts: set[frozenset[int]] = set()
        self._channels: dict[SimulatedChannel, None] = {}

    def cut(self, one: int, other: int) -> None:
        """Let no message pass between two nodes."""
        self._cuts.add(frozenset((one, other)))

    def heal(self) -> None:
        """Be a good network from now on."""
        self._cuts.clear()
        self.faults = NetworkFaults()

    def is_cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self._cuts

    async def connect(self, client: NetworkNode, server_id: int) -> "SimulatedChannel":
        """Open a connection, after a Hello.

        Raises:
            ConnectionRefusedError: the other process does not run.
        """
        await asyncio.sleep(_CONNECT_S + self.delay_s())
        if self.is_cut(client.node_id, server_id):
            await asyncio.sleep(20.0)  # the caller has a shorter deadline
        server = self._find(server_id)
        if server is None or not server.is_alive or self.is_cut(client.node_id, server_id):
            raise ConnectionRefusedError("no process listens")
        if server.is_paused:
            await asyncio.sleep(20.0)
            raise ConnectionResetError("no Hello")
        channel = SimulatedChannel(self, client, server)
        self._channels[channel] = None
        return channel

    def bytes_on_their_way(self, client: NetworkNode) -> int:
        """Return the size of the records that the connections of a process may still read."""
        mine = [channel.held for channel in self._channels if channel.client is client and channel.is_holding]
        return sum({key: size for held in mine for key, size in held.items()}.values())

    def forget(self, channel: "SimulatedChannel") -> None:
        self._channels.pop(channel, None)

    def drop_node(self, node: NetworkNode, *, is_silent: bool) -> None:
        """End the connections of a process that has died; a host that died says nothing."""
        for channel in list(self._channels):
            if channel.client is node:
                self.forget(channel)
            elif channel.server is node:
                self.forget(channel)
                if not is_silent:
                    self.world.after(self.delay_s(), channel.client, channel.fail)

    def delay_s(self) -> float:
        rng = self.world.rng
        return 0.0001 + rng.random() ** 3 * self.faults.longest_delay_s

    def happens(self, probability: float) -> bool:
        return probability > 0 and self.world.rng.random() < probability


class SimulatedChannel:
    """Connection of a client process to a server process: an ``AppendChannel`` and a ``LeaderChannel``."""

    def __init__(self, network: SimulatedNetwork, client: NetworkNode, server: NetworkNode) -> None:
        self.client = client
        self.server = server
        self._network = network
        self._world = network.world
        self._peer_process_epoch = server.process_epoch
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._ids = 0
        self._is_closed = False
        self._is_dead = False  # messages pass no more, and the client may not know
        self._arrives_s = [0.0, 0.0]
        self._requests: deque[tuple[int, Any]] = deque()
        self._is_serving = False
        self._held: dict[int, dict[int, int]] = {}

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    @property
    def held(self) -> dict[int, int]:
        """Return the sizes of the records of the requests without an answer, by the identity of their bytes."""
        return {key: size for pieces in self._held.values() for key, size in pieces.items()}

    @property
    def peer_process_epoch(self) -> int:
        return self._peer_process_epoch

    async def ask(self, request: Any, timeout_s: float) -> Any:  # noqa: ANN401 - any request, and its answer
        """Return the answer.

        Raises:
            TierError: the connection is broken.
            TimeoutError: no answer in time.
        """
        if self._is_closed:
            raise TierError("the connection is closed")
        self._ids += 1
        call_id = self._ids
        answered = self._pending[call_id] = asyncio.get_running_loop().create_future()
        if isinstance(request, AppendRecordsRequest):
            self._held[call_id] = _pieces_of(request)
        self._send_request(call_id, request)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await answered
        finally:
            self._pending.pop(call_id, None)
        self._held.pop(call_id, None)  # after an error the connection holds the bytes until it is closed
        return answer

    async def close(self) -> None:
        self.fail()
        try:
            await asyncio.sleep(self._network.delay_s())
        finally:
            self._network.forget(self)

    def fail(self) -> None:
        """Let the client know that the connection is broken."""
        self._is_closed = self._is_dead = True
        pending, self._pending = self._pending, {}
        for answered in pending.values():
            if not answered.done():
                answered.set_exception(TierError("the connection is broken"))
                answered.exception()  # a caller that was cancelled does not ask for it

    # Requests

    def _send_request(self, call_id: int, request: Any) -> None:  # noqa: ANN401
        network = self._network
        is_lost = self._is_dead or self._is_lost()
        if self._world.is_traced:
            way = f"{type(request).__name__} {self.client.node_id}->{self.server.node_id}"
            self._world.trace(f"{way}{' is lost' if is_lost else ''} {_sketch(request)}")
        if is_lost:
            return
        received = self._received_request(request)
        if self.server.process_epoch != self._peer_process_epoch:  # the host is up again, and knows of no connection
            self._is_dead = True
            self._world.after(network.delay_s(), self.client, self.fail)
            return
        self._world.after(self._arrival_in_s(0), self.server, lambda: self._take_request(call_id, received))
        if isinstance(request, AppendRecordsRequest) and network.happens(network.faults.duplicates):
            duplicate = SimulatedChannel(network, self.client, self.server)
            duplicate._is_dead = True
            later_s = network.delay_s() * 3 + self._world.rng.random() * 0.05
            self._world.after(later_s, self.server, lambda: duplicate._take_request(0, received))

    def _received_request(self, request: Any) -> Any:  # noqa: ANN401
        network = self._network
        if isinstance(request, AppendRecordsRequest) and network.happens(network.faults.corrupts):
            request = _with_flipped_bit(request)
            network.corruptions += 1
        if not network.is_encoded:
            return request
        frame = b"".join(encode_push_request(request, correlation_id=1, client_id="sim"))
        return decode_push_request(memoryview(frame)[4:]).request

    def _take_request(self, call_id: int, request: Any) -> None:  # noqa: ANN401
        self._requests.append((call_id, request))
        if not self._is_serving:
            self._is_serving = True
            loop: NodeLoop = self.server.loop
            loop.create_task(self._serve(), name="serve").add_done_callback(loop.note_end)

    async def _serve(self) -> None:
        """Answer the requests one after the other, as a listener does."""
        while self._requests:
            call_id, request = self._requests.popleft()
            answer = await self.server.handle(request, self.client.identity)
            self._send_answer(call_id, request, answer)
        self._is_serving = False

    def _send_answer(self, call_id: int, request: Any, answer: Any) -> None:  # noqa: ANN401
        network = self._network
        is_lost = self._is_dead or self._is_lost()
        if self._world.is_traced:
            way = f"{type(answer).__name__} {self.server.node_id}->{self.client.node_id}"
            self._world.trace(f"{way}{' is lost' if is_lost else ''} {_sketch(answer)}")
        if is_lost:
            return
        received = answer
        if network.is_encoded:
            api = api_of(request)
            frame = b"".join(encode_push_response(api, answer, correlation_id=1))
            received = decode_push_response(api, memoryview(frame)[4:])[1]
        self._world.after(self._arrival_in_s(1), self.client, lambda: self._take_answer(call_id, received))

    def _take_answer(self, call_id: int, answer: Any) -> None:  # noqa: ANN401
        answered = self._pending.get(call_id)
        if answered is not None and not answered.done():
            answered.set_result(answer)

    # Faults

    def _is_lost(self) -> bool:
        """Break the connection now and then; return True if the message does not arrive."""
        network, faults = self._network, self._network.faults
        if network.is_cut(self.client.node_id, self.server.node_id):
            self._is_dead = True
            if not network.happens(0.5):
                self._world.after(network.delay_s(), self.client, self.fail)
            return True
        if not network.happens(faults.breaks):
            return False
        self._is_dead = True
        if not network.happens(faults.is_silent):
            self._world.after(network.delay_s(), self.client, self.fail)
        return network.happens(0.5)

    def _arrival_in_s(self, direction: int) -> float:
        """Return the delay of a message: never before the one that was sent before it."""
        now_s = self._world.now_s
        arrives_s = max(self._arrives_s[direction], now_s + self._network.delay_s())
        self._arrives_s[direction] = arrives_s
        return arrives_s - now_s


def _pieces_of(request: AppendRecordsRequest) -> dict[int, int]:
    """Return the sizes of the appends and chunks whose bytes a request has, by their identity."""
    pieces = (piece for part in request.partitions for piece in part.records or ())
    whole = [memoryview(piece.obj if isinstance(piece, memoryview) else piece) for piece in pieces]
    return {id(view.obj): view.nbytes for view in whole}


def _with_flipped_bit(request: AppendRecordsRequest) -> AppendRecordsRequest:
    """Return the request with a flipped bit in the records of its last partition that has any."""
    partitions: list[PartitionAppend] = list(request.partitions)
    for place, part in reversed(list(enumerate(partitions))):
        if part.records:
            data = b"".join(bytes(piece) for piece in part.records)
            partitions[place] = replace(part, records=[data[:-1] + bytes([data[-1] ^ 1])])
            break
    return replace(request, partitions=tuple(partitions))


def _sketch(message: Any) -> str:  # noqa: ANN401
    """Return the fields of a message that tell a reader what it does."""
    return " ".join(_sketch_part(part) for part in getattr(message, "partitions", None) or ())


def _sketch_part(part: Any) -> str:  # noqa: ANN401
    shown = []
    for name in (
        "error_code", "leader_epoch", "current_leader_epoch", "session_id", "append_offset", "last_epoch",
        "fetch_offset", "last_fetched_epoch", "high_watermark", "log_start_offset", "log_end_offset", "epoch",
        "end_offset", "diverging", "push_started", "end_session",
    ):  # fmt: skip
        value = getattr(part, name, None)
        if value not in (None, -1, False) or (name == "error_code" and value):
            shown.append(f"{name}={int(value) if isinstance(value, int) else value}")
    size = sum(map(len, getattr(part, "records", None) or ()))
    return f"[p{part.partition} {' '.join(shown)}{f' {size} B' if size else ''}]"
