"""ConnectionScope: everything that the connections of one listener share."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import structlog

from tierd.clock import Clock
from tierd.serve.connection_gate import ConnectionGate
from tierd.serve.kafka.access import PrincipalQuotas
from tierd.serve.kafka.connections.file_slices import FileSlices
from tierd.serve.kafka.endpoint_limits import EndpointLimits
from tierd.serve.kafka.endpoint_statistics import EndpointRecorder, ListenerCounters, RequestRecord
from tierd.serve.kafka.login import LoginMethods
from tierd.serve.kafka.loop_turns import LoopTurns
from tierd.serve.kafka.memory_budget import MemoryBudget
from tierd.serve.kafka.request_context import Handler
from tierd.serve.kafka.wire.api_table import API_TABLE

_FAULT_LOG_INTERVAL_S = 1.0
_WAITING_APIS = frozenset({API_TABLE[11].name, API_TABLE[14].name})  # JoinGroup and SyncGroup wait for other members

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
    """Log of connections that were closed for a fault of the client: a line a second at most."""

    def __init__(self, listener: str, clock: Clock) -> None:
        self._listener = listener
        self._clock = clock
        self._next_s = 0.0
        self._silent = 0

    def record(self, peer: str, problem: str) -> None:
        """Log one fault, or count it for the next line."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            self._silent += 1
            return
        log.warning("client_refused", listener=self._listener, peer=peer, problem=problem, silent=self._silent)
        self._next_s, self._silent = now_s + _FAULT_LOG_INTERVAL_S, 0


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
            )
