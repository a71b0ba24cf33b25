"""ConnectionScope: everything that the connections of one listener share."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from tierd.clock import Clock
from tierd.ports import ConnectionGate
from tierd.rare_lines import LinesPerSecond
from tierd.serve.kafka.access import PrincipalQuotas
from tierd.serve.kafka.connections.file_slices import FileSlices
from tierd.serve.kafka.endpoint_limits import EndpointLimits
from tierd.serve.kafka.endpoint_statistics import EndpointRecorder, ListenerCounters, RequestRecord
from tierd.serve.kafka.login import LoginMethods
from tierd.serve.kafka.loop_turns import LoopTurns
from tierd.serve.kafka.memory_budget import MemoryBudget
from tierd.serve.kafka.request_context import Handler
from tierd.serve.kafka.wire.api_table import API_TABLE, SASL_AUTHENTICATE

# JoinGroup and SyncGroup wait for other members; a login that fails is answered after a while.
_WAITING_APIS = frozenset(API_TABLE[key].name for key in (11, 14, SASL_AUTHENTICATE))

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointServices:
    """Everything that all connections of the endpoint share.

    Attributes:
        handlers: by api key; SaslHandshake and SaslAuthenticate have none, for connections answer them.
        requests: memory of requests.
        answers: memory of answers.
        turns: of the requests on the event loop.
        slices: sends local segments.
        closing: set when the endpoint stops.
    """

    handlers: Mapping[int, Handler]
    quotas: PrincipalQuotas
    limits: EndpointLimits
    gate: ConnectionGate
    clock: Clock
    requests: MemoryBudget
    answers: MemoryBudget
    turns: LoopTurns
    slices: FileSlices
    recorder: EndpointRecorder
    closing: asyncio.Event


class FaultLog:
    """Log of the connections of one listener: what clients cause fills no disk."""

    def __init__(self, listener: str, clock: Clock) -> None:
        self._listener = listener
        self._refused = LinesPerSecond(clock, most=1)
        self._failed = LinesPerSecond(clock, most=10)
        self._slow = LinesPerSecond(clock, most=10)

    def record(self, peer: str, problem: str) -> None:
        """Log a connection that was closed for a fault of the client, or count it for the next line."""
        if (silent := self._refused.take()) is not None:
            log.warning("client_refused", listener=self._listener, peer=peer, problem=problem, silent=silent)

    def failed(self, peer: str, problem: str) -> None:
        """Log a connection that was closed for a fault on this side, or count it for the next line."""
        if (silent := self._failed.take()) is not None:
            log.warning("request_failed", listener=self._listener, peer=peer, problem=problem, silent=silent)

    def slow(self, request: RequestRecord) -> None:
        """Log a slow request, or count it for the next line."""
        if (silent := self._slow.take()) is not None:
            log.warning(
                "slow_request",
                listener=request.listener,
                api=request.api,
                version=request.version,
                principal=request.principal,
                client_id=request.client_id,
                peer=request.peer,
                outcome=request.outcome.value,
                answer_bytes=request.answer_bytes,
                handled_s=round(request.handled_s, 3),
                waited_s=round(request.waited_s, 3),
                sent_s=round(request.sent_s, 3),
                silent=silent,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionScope:
    """Everything that the connections of one listener share.

    Attributes:
        logins: None where clients do not log in.
    """

    listener: str
    logins: LoginMethods | None
    services: EndpointServices
    faults: FaultLog
    counters: ListenerCounters = field(default_factory=ListenerCounters)

    def record(self, request: RequestRecord) -> None:
        """Count a request, hand it to the recorder, and log it if it was slow."""
        self.counters.record(request)
        self.services.recorder.record(request)
        if request.busy_s >= self.services.limits.slow_request_s and request.api not in _WAITING_APIS:
            self.faults.slow(request)
