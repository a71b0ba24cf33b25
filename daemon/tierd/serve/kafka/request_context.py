"""RequestContext: the circumstances of one request, and the type of the functions that answer requests."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from kio.static.protocol import RequestPayload, ResponsePayload

from tierd.serve.kafka.loop_turns import ClientTurns, LoopTurns
from tierd.serve.kafka.memory_budget import AnswerMemory
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer

ANONYMOUS = "User:ANONYMOUS"
"""Principal of a connection without login, as in Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Circumstances of one request.

    Attributes:
        version: of the request, and of its answer.
        client_id: as the client calls itself; empty if it does not.
        principal: who asks, such as ``User:alice``; ``ANONYMOUS`` without a login.
        listener: name of the listener.
        peer: address of the client, without its port.
        connection_id: number of the connection; no two connections of this process have the same.
        memory: for records that are read into memory. Reserve before reading; the connection gives it back.
        turns: of the client on the event loop: for loops over all that it asks for, and for answers that take long.
        items: elements of the arrays of the request.
        closing: set when the endpoint stops. A handler that waits ends its wait then, and answers what it has; it is
            cancelled soon after.
    """

    version: int
    client_id: str
    principal: str
    listener: str
    peer: str
    connection_id: int
    memory: AnswerMemory
    closing: asyncio.Event
    turns: ClientTurns = field(default_factory=lambda: LoopTurns().of(""))
    items: int = 0


Handler: TypeAlias = Callable[[RequestPayload, RequestContext], Awaitable[ResponsePayload | FetchAnswer]]
"""Answers one kind of request, in every version: ``request`` is kio's message of the version that the client sent.

The answer has the same version. A handler is cancelled when its client goes away. A ``throttle_time`` above zero in an
answer makes the connection read no request for so long after it (KIP-219). A ``TierError`` is answered by closing the
connection, so that handlers answer Kafka's error codes instead.
"""
