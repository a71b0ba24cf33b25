"""ServedLink: one connection of a peer to the push listener, from its Hello to its last answer.

::

    TLS ──► waiting for a Hello ──► waiting ──► handling ──► sending ──► waiting ...
            hello_timeout_s         idle_timeout_s └── answer_timeout_s ──┘

Each deadline is one of the gate, which cuts the connection. Requests are answered in order, one at a time; one more is
read meanwhile. A peer that goes away ends a long poll, and no append.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

import structlog

from tierd.clock import Clock
from tierd.errors import DamagedMessageError, TierError
from tierd.ports import Connection, ConnectionGate
from tierd.rare_lines import LinesPerSecond
from tierd.replication.links.frame_connection import FrameConnection
from tierd.replication.links.frame_memory import FrameMemory
from tierd.replication.links.link_errors import PushLinkError, PushLinkLostError
from tierd.replication.links.link_identity import LinkIdentity, NodeName, certified_name
from tierd.replication.links.link_limits import HELLO_FRAME_BYTES, LinkLimits
from tierd.replication.links.link_registry import LinkRegistry
from tierd.replication.model.messages import (
    AppendRecordsRequest,
    AppendRecordsResponse,
    AssignmentsRequest,
    AssignmentsResponse,
    EpochEndOffsetsResponse,
    FetchRecordsRequest,
    FetchRecordsResponse,
    HelloMessage,
    LogBoundsResponse,
    PushApi,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity
from tierd.replication.wire.message_schemas import PushRequest, PushResponse
from tierd.replication.wire.push_frames import REQUEST_APIS, PushRequestFrame, decode_push_request, encode_push_response

LinkHandler = Callable[[Any, PeerIdentity], Awaitable[object]]
"""Answers a request of the type that it is registered for with the response of the same API."""

_LONG_POLLS: Final = (FetchRecordsRequest, AssignmentsRequest)
_REFUSALS: Final[dict[PushApi, Callable[..., PushResponse]]] = {
    PushApi.APPEND_RECORDS: AppendRecordsResponse,
    PushApi.FETCH_RECORDS: FetchRecordsResponse,
    PushApi.EPOCH_END_OFFSETS: EpochEndOffsetsResponse,
    PushApi.LOG_BOUNDS: LogBoundsResponse,
    PushApi.ASSIGNMENTS: AssignmentsResponse,
}
_WAITING_FRAMES: Final = 1

log = structlog.get_logger()


class LinkFaults:
    """Counts and log of the connections that end for a fault: peers that come again and again fill no disk."""

    def __init__(self, clock: Clock) -> None:
        self._lines = LinesPerSecond(clock, most=2)
        self.refused = 0
        """Connections that ended for a fault of the peer, since the start."""
        self.failed = 0
        """Connections that ended for a fault of this side, since the start."""

    def refuse(self, peer: str, problem: str) -> None:
        """Take note of a fault of the peer."""
        self.refused += 1
        if (silent := self._lines.take()) is not None:
            log.warning("push_peer_refused", peer=peer, problem=problem, silent=silent)

    def fail(self, peer: str, problem: str) -> None:
        """Take note of a fault of this side."""
        self.failed += 1
        if (silent := self._lines.take()) is not None:
            log.warning("push_request_failed", peer=peer, problem=problem, silent=silent)


@dataclass(frozen=True, slots=True)
class LinkScope:
    """Parts that all connections of a listener share."""

    me: LinkIdentity
    handlers: Mapping[type, LinkHandler]
    gate: ConnectionGate
    memory: FrameMemory
    registry: LinkRegistry
    faults: LinkFaults
    limits: LinkLimits
    clock: Clock

    @property
    def apis(self) -> tuple[PushApi, ...]:
        """Return the APIs that have a handler."""
        return tuple(REQUEST_APIS[kind] for kind in self.handlers)


class ServedLink:
    """One connection, which ``serve`` owns to its end."""

    def __init__(self, peer: str, place: Connection, scope: LinkScope, *, is_certified: bool) -> None:
        """Make a link of ``peer``, as log lines name it; ``connection`` then gets its transport."""
        self._peer = peer
        self.place = place
        self._scope = scope
        self._is_certified = is_certified
        self._frames: deque[memoryview] = deque()
        self._is_idle = False  # the next frame is answered at once
        self._arrived = asyncio.Event()
        self._identity: PeerIdentity | None = None
        self._on_gone: Callable[[], None] | None = None
        self.connection = FrameConnection(self, max_frame_bytes=HELLO_FRAME_BYTES, memory=scope.memory)

    async def serve(self) -> None:
        """Answer requests until the peer goes away, the listener stops, or a fault ends the connection."""
        self.place.attach(self.connection)
        try:
            await self._converse()
        except PushLinkLostError:
            pass
        except (DamagedMessageError, PushLinkError) as error:
            self._scope.faults.refuse(self._peer, str(error))
        except (TierError, OSError) as error:
            self._scope.faults.fail(self._peer, str(error) or type(error).__name__)
        except Exception:  # a bug that one request meets must not end the connections of all others
            self._scope.faults.failed += 1
            log.exception("push_request_failed", peer=self._peer)
        finally:
            self.abort()
            self._drop_frames()
            if self._identity is not None:
                self._scope.registry.remove(self, self._identity)

    def abort(self) -> None:
        """End the connection at once."""
        self.connection.abort()

    def on_frame(self, frame: memoryview) -> None:
        """Keep a frame until its turn."""
        self._frames.append(frame)
        if len(self._frames) >= _WAITING_FRAMES + self._is_idle:
            self.connection.hold()
        self._arrived.set()

    def on_end(self) -> None:
        """Wake ``serve``."""
        self._arrived.set()
        if self._on_gone is not None:
            self._on_gone()

    async def _converse(self) -> None:
        scope, limits = self._scope, self._scope.limits
        opened_s = scope.clock.monotonic_s()
        scope.gate.begin_request(self.place, timeout_s=limits.hello_timeout_s)
        is_last = await self._answer(self._greet)
        self.connection.max_frame_bytes = limits.frame_bytes
        while not is_last:
            scope.gate.begin_request(self.place, timeout_s=limits.idle_timeout_s)
            is_last = await self._answer(self._handle)
            is_last = is_last or scope.clock.monotonic_s() - opened_s >= limits.max_age_s
        await self.connection.finish(limits.closing_timeout_s)

    async def _answer(self, respond: Callable[[PushRequestFrame], Awaitable[tuple[PushResponse, str]]]) -> bool:
        """Answer the next request; return True if the connection ends then."""
        frame = await self._next_frame()
        try:
            self._scope.gate.begin_answer(self.place, timeout_s=self._scope.limits.answer_timeout_s)
            asked = decode_push_request(frame)
            response, fault = await respond(asked)
        finally:
            self._scope.memory.give_back(len(frame))
        self.connection.send(encode_push_response(asked.api, response, correlation_id=asked.correlation_id))
        await self.connection.drained()
        if fault:
            self._scope.faults.refuse(self._peer, fault)
        return bool(fault)

    async def _next_frame(self) -> memoryview:
        while not self._frames:
            if self.connection.is_closed:
                raise self._ended()
            self._arrived.clear()
            self._is_idle = True
            await self._arrived.wait()
        self._is_idle = False
        frame = self._frames.popleft()
        if len(self._frames) < _WAITING_FRAMES:
            self.connection.resume()
        return frame

    def _ended(self) -> TierError:
        failure = self.connection.failure
        return failure if isinstance(failure, TierError) else PushLinkLostError("the peer closed the connection")

    async def _greet(self, asked: PushRequestFrame) -> tuple[PushResponse, str]:
        """Answer the Hello; any other request ends the connection without an answer."""
        if not isinstance(asked.request, HelloMessage):
            raise PushLinkError(f"the peer sent {asked.api.name} before its Hello")
        hello = asked.request
        code, fault = self._refusal(hello)
        if code is PushErrorCode.NONE:
            self._identity = PeerIdentity(hello.node_id, hello.process_epoch)
            self._peer = f"node {hello.node_id} at {self._peer}"
            code = self._scope.registry.admit(self, self._identity)
            fault = "" if code is PushErrorCode.NONE else f"process {hello.process_epoch} gets {code.name}"
        return self._scope.me.hello(self._scope.apis, error_code=code), fault

    def _refusal(self, hello: HelloMessage) -> tuple[PushErrorCode, str]:
        said = NodeName(hello.cluster_id, hello.node_id)
        if self._is_certified:
            certified = certified_name(self.connection.transport.get_extra_info("peercert"))
            if certified != said:
                return PushErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"{certified} says to be {said}"
        if hello.cluster_id != self._scope.me.cluster_id:
            return PushErrorCode.INCONSISTENT_CLUSTER_ID, f"it belongs to the cluster {hello.cluster_id}"
        return PushErrorCode.NONE, ""

    async def _handle(self, asked: PushRequestFrame) -> tuple[PushResponse, str]:
        identity = self._identity
        handler = self._scope.handlers.get(type(asked.request))
        if identity is None or handler is None:
            raise PushLinkError(f"the peer sent {asked.api.name}, which is not answered here")
        claimed = _claimed_node(asked.request)
        if claimed != identity.node_id:
            refused = _REFUSALS[asked.api](error_code=PushErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return refused, f"{asked.api.name} is in the name of node {claimed}"
        if isinstance(asked.request, _LONG_POLLS):
            with self._until_gone():
                return cast("PushResponse", await handler(asked.request, identity)), ""
        return cast("PushResponse", await handler(asked.request, identity)), ""

    @contextmanager
    def _until_gone(self) -> Iterator[None]:
        """Cancel what runs inside when the peer goes away."""
        task = asyncio.current_task()
        assert task is not None, "links are served in tasks"
        cancellations, is_gone = task.cancelling(), False

        def cancel() -> None:
            nonlocal is_gone
            is_gone = True
            task.cancel()

        if self.connection.is_closed:
            raise self._ended()
        self._on_gone = cancel
        try:
            yield
        except asyncio.CancelledError:
            if is_gone and task.uncancel() <= cancellations:
                raise self._ended() from None
            raise
        finally:
            self._on_gone = None

    def _drop_frames(self) -> None:
        while self._frames:
            self._scope.memory.give_back(len(self._frames.popleft()))


def _claimed_node(request: PushRequest) -> int:
    match request:
        case AppendRecordsRequest():
            return request.leader_id
        case HelloMessage():
            return request.node_id
        case _:
            return request.replica_id
