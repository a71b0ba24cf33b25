"""RequestExchange: the requests of one connection, each from its frame to the answer that the client has taken."""

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.ports import Connection
from tierd.serve.kafka.connections.channel import Channel
from tierd.serve.kafka.connections.connection_errors import ClientFaultError, PeerGoneError
from tierd.serve.kafka.connections.connection_login import ConnectionLogin
from tierd.serve.kafka.connections.connection_scope import ConnectionScope
from tierd.serve.kafka.connections.socket_intake import cancelled_when_gone
from tierd.serve.kafka.endpoint_statistics import RequestOutcome, RequestRecord
from tierd.serve.kafka.loop_turns import PIECE_ITEMS
from tierd.serve.kafka.memory_budget import AnswerMemory
from tierd.serve.kafka.request_context import ANONYMOUS, RequestContext
from tierd.serve.kafka.wire.answer_frame import (
    AnswerEncoder,
    AnswerFrame,
    count_items,
    raw_frame,
    unsupported_version_answer,
)
from tierd.serve.kafka.wire.api_table import API_TABLE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer
from tierd.serve.kafka.wire.request_frame import CheckedRequest, RequestHead, checked_request, read_head

PART_BYTES: Final = 256 << 10
"""Bytes of an answer that a client takes within the deadline of a send."""

_UNCOUNTED_BYTES: Final = 64 << 10  # requests so small take no memory of the budget
_CHECKED_BYTES: Final = 128  # of a frame that take as long as an item
_LONGEST_CLIENT_ID: Final = 255


@dataclass(frozen=True, slots=True)
class ClientAddress:
    """Address of a client without its port, and the number of its connection."""

    peer: str
    connection_id: int


@dataclass(frozen=True, slots=True)
class ExchangeEnd:
    """Instructions to the connection after an answer.

    Attributes:
        is_last: close the connection.
        mute_s: read no request for so long (KIP-219).
    """

    is_last: bool = False
    mute_s: float = 0.0


_GO_ON: Final = ExchangeEnd()


@dataclass(frozen=True, slots=True)
class _Reply:
    """Answer of a handler or of a login."""

    answer: ResponsePayload | FetchAnswer
    is_last: bool = False

    @property
    def response(self) -> Any:  # noqa: ANN401 - of any kind and version
        return self.answer.response if isinstance(self.answer, FetchAnswer) else self.answer

    @property
    def waited_s(self) -> float:
        return self.answer.waited_s if isinstance(self.answer, FetchAnswer) else 0.0

    @property
    def throttle_s(self) -> float:
        told: timedelta | None = getattr(self.response, "throttle_time", None)
        return 0.0 if told is None else told.total_seconds()

    def throttled(self, wait_s: float) -> "_Reply":
        """Return the answer that tells the client to wait, as far as it can tell it."""
        if wait_s <= self.throttle_s or not hasattr(self.response, "throttle_time"):
            return self
        response = replace(self.response, throttle_time=timedelta(seconds=wait_s))
        return replace(
            self, answer=replace(self.answer, response=response) if isinstance(self.answer, FetchAnswer) else response
        )


class RequestExchange:
    """Requests of one connection. ``answer`` is called for one after the other."""

    def __init__(
        self,
        channel: Channel,
        place: Connection,
        scope: ConnectionScope,
        login: ConnectionLogin,
        address: ClientAddress,
    ) -> None:
        self._channel = channel
        self._place = place
        self._scope = scope
        self._services = scope.services
        self._login = login
        self._address = address
        self._part_bytes = 0
        self._encoder = AnswerEncoder()
        self._turns = scope.services.turns.of(place.peer)

    async def answer(self, frame: bytes, memory: AnswerMemory) -> ExchangeEnd:
        """Answer the request of a frame, without its size; ``memory`` is that of the request.

        Raises:
            DamagedMessageError, ClientFaultError: the client has to be closed without an answer.
            PeerGoneError: the client went away.
            TierError, OSError: the request cannot be answered, or its answer cannot be sent to its end.
        """
        await self._turns.take()
        if self._login.takes_raw_tokens:
            return await self._answer_token(frame)
        head = read_head(frame)
        if not self._login.allows(head):
            expired = " again, for its login has ended" if self._login.is_expired else ""
            raise ClientFaultError(f"{head.api.name} before the client has logged in{expired}")
        if not head.is_supported:
            return await self._answer_unsupported(head)
        checked = await self._turns.aside(len(frame) // _CHECKED_BYTES, checked_request, head, frame)
        await self._reserve(memory, checked.memory_bytes)
        request = await self._turns.aside(checked.items, checked.decoded)
        return await self._exchange(checked, request, len(frame), memory)

    async def _answer_token(self, token: bytes) -> ExchangeEnd:
        self._begin_answer(math.inf, may_yield=True)
        with cancelled_when_gone(self._channel.intake):
            answer = await self._login.raw_reply(token)
        await self._send(raw_frame(answer))
        return _GO_ON

    async def _answer_unsupported(self, head: RequestHead) -> ExchangeEnd:
        if not head.asks_for_versions:
            known = f"{head.api.min_version} to {head.api.max_version}"
            raise ClientFaultError(f"{head.api.name} version {head.version}: versions {known} are known")
        await self._send(unsupported_version_answer(head, API_TABLE.values()))
        return _GO_ON

    async def _reserve(self, memory: AnswerMemory, size_bytes: int) -> None:
        """Wait for the memory of a decoded request, unless it is small or there already."""
        if size_bytes > max(_UNCOUNTED_BYTES, memory.size_bytes):
            memory.settle(0)
            with cancelled_when_gone(self._channel.intake):
                await memory.reserve(size_bytes)

    async def _exchange(
        self, checked: CheckedRequest, request: RequestPayload, request_bytes: int, asked: AnswerMemory
    ) -> ExchangeEnd:
        head, clock = checked.head, self._services.clock
        memory = self._services.answers.share(self._place.peer)
        outcome, reply, answer_bytes = RequestOutcome.FAILED, None, 0
        began_s = handled_at_s = clock.monotonic_s()
        self._begin_answer(math.inf, may_yield=True)
        try:
            with cancelled_when_gone(self._channel.intake):
                reply = await self._reply(checked, request, memory)
            handled_at_s = clock.monotonic_s()
            reply, frame, mute_s = await self._framed(head, reply)
            answer_bytes = frame.size_bytes
            memory.settle(frame.memory_bytes)
            await self._send(frame, asked, memory)
            outcome = _outcome_of(reply)
        except PeerGoneError:
            outcome = RequestOutcome.ABANDONED
            raise
        finally:
            memory.settle(0)
            ended_s = clock.monotonic_s()
            handled_at_s = ended_s if reply is None else handled_at_s
            self._scope.record(
                RequestRecord(
                    listener=self._scope.listener,
                    api=head.api.name,
                    version=head.version,
                    principal=self._login.principal or ANONYMOUS,
                    client_id=head.client_id[:_LONGEST_CLIENT_ID],
                    peer=self._address.peer,
                    outcome=outcome,
                    request_bytes=request_bytes,
                    answer_bytes=answer_bytes,
                    handled_s=handled_at_s - began_s,
                    waited_s=0.0 if reply is None else reply.waited_s,
                    sent_s=ended_s - handled_at_s,
                )
            )
        return ExchangeEnd(reply.is_last, mute_s)

    async def _reply(self, checked: CheckedRequest, request: RequestPayload, memory: AnswerMemory) -> _Reply:
        head = checked.head
        if head.api.api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            found = await self._login.reply(head, request)
            return _Reply(found.response, found.is_last)
        handler = self._services.handlers.get(head.api.api_key)
        if handler is None:
            raise ClientFaultError(f"{head.api.name} is not answered here")
        await self._services.answers.wait_free(self._place.peer)
        context = RequestContext(
            version=head.version,
            client_id=head.client_id,
            principal=self._login.principal or ANONYMOUS,
            listener=self._scope.listener,
            peer=self._address.peer,
            connection_id=self._address.connection_id,
            memory=memory,
            closing=self._services.closing,
            turns=self._turns,
            items=checked.items,
        )
        return _Reply(await handler(request, context))

    async def _framed(self, head: RequestHead, reply: _Reply) -> tuple[_Reply, AnswerFrame, float]:
        """Return the answer, its frame, and the time for which the connection is muted after it."""
        frame = await self._encoded(head, reply)
        wait_s = 0.0
        if (principal := self._login.principal) is not None:
            now_s = self._services.clock.monotonic_s()
            counted_bytes = reply.answer.counted_bytes if isinstance(reply.answer, FetchAnswer) else 0
            size_bytes = max(0, frame.size_bytes - counted_bytes)
            wait_s = self._services.quotas.record(principal, size_bytes, now_s) / 1000
        throttled = reply.throttled(wait_s)
        if throttled is not reply:
            reply, frame = throttled, await self._encoded(head, throttled)
        return reply, frame, max(wait_s, reply.throttle_s)

    async def _encoded(self, head: RequestHead, reply: _Reply) -> AnswerFrame:
        items = count_items(reply.response, most=PIECE_ITEMS)
        return await self._turns.aside(items, self._encoder.encoded, head, reply.answer)

    def _begin_answer(self, timeout_s: float, *, may_yield: bool = False) -> None:
        """Keep the place of a client that is known. One that is not yet gives way to others, also in its login."""
        if self._login.principal is not None:
            self._services.gate.begin_answer(self._place, timeout_s=timeout_s, may_yield=may_yield)

    async def _send(self, frame: AnswerFrame, *memories: AnswerMemory) -> None:
        def begin_part() -> None:
            self._part_bytes = 0
            self._begin_answer(self._services.limits.send_timeout_s)
            for memory in memories:
                memory.await_client(self._services.clock.monotonic_s(), self._cut_slow)

        def note_sent(size_bytes: int) -> None:
            self._scope.counters.sent_bytes += size_bytes
            self._part_bytes += size_bytes
            if self._part_bytes >= PART_BYTES:
                begin_part()

        begin_part()
        await self._channel.send(frame.pieces, note_sent)

    def _cut_slow(self) -> None:
        self._scope.faults.record(self._address.peer, "the client took an answer slowly while others waited for memory")
        self._channel.abort()


def _outcome_of(reply: _Reply) -> RequestOutcome:
    code = getattr(reply.response, "error_code", ErrorCode.none)
    return RequestOutcome.ANSWERED if code is ErrorCode.none else RequestOutcome.ERROR
