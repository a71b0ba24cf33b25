"""Handler of Fetch, in all its versions."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Protocol

from kio.schema.errors import ErrorCode
from kio.static.protocol import RequestPayload

from tierd.clock import Clock
from tierd.model import IsolationLevel
from tierd.serve.kafka.access import Authorizer
from tierd.serve.kafka.fetching.failure_log import FailureLog
from tierd.serve.kafka.fetching.fetch_answers import FetchHead, fetch_answer, refused_fetch
from tierd.serve.kafka.fetching.fetch_demand import FetchDemand, fetch_demand
from tierd.serve.kafka.fetching.fetch_round import FetchLimits, FetchRound
from tierd.serve.kafka.fetching.fetch_session import SessionOwner, SessionRefusal
from tierd.serve.kafka.fetching.fetch_session_cache import (
    MAX_SESSION_NUMBER,
    FetchSessionCache,
    FetchSessionLimits,
    FullFetch,
    IncrementalFetch,
)
from tierd.serve.kafka.fetching.partition_lookup import PartitionLookup
from tierd.serve.kafka.request_context import Handler, RequestContext
from tierd.serve.kafka.served.served_cluster import ServedPartitions
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer

FETCH: Final = 1  # api key
_LIMITS: Final = FetchLimits()
_SESSION_LIMITS: Final = FetchSessionLimits()


class FetchQuotas(Protocol):
    """Quotas as a fetch uses them."""

    def throttle_ms(self, principal: str, now_s: float) -> int:
        """Return the wait in ms until ``principal`` is within its limits; 0 if it is."""

    def admit(self, principal: str, size_bytes: int, now_s: float) -> int:
        """Count records that are ready and return 0; above the limits, count none and return the wait in ms."""

    def largest_answer_bytes(self, principal: str, now_s: float) -> int | None:
        """Return the bytes of records that one answer should not exceed; None without a limit."""


class FetchHandler:
    """Answers every Fetch of an endpoint."""

    def __init__(
        self,
        served: ServedPartitions,
        authorizer: Authorizer,
        quotas: FetchQuotas,
        sessions: FetchSessionCache,
        *,
        limits: FetchLimits,
        clock: Clock,
    ) -> None:
        """Read from ``served`` what ``authorizer`` allows, within ``quotas`` and ``limits``."""
        self._served = served
        self._authorizer = authorizer
        self._quotas = quotas
        self._sessions = sessions
        self._limits = limits
        self._clock = clock
        self._failures = FailureLog(clock)

    async def handle(self, request: RequestPayload, context: RequestContext) -> FetchAnswer:
        """Answer kio's FetchRequest of any version."""
        aside, items = context.turns.aside, context.items
        demand = await aside(items, fetch_demand, request)
        if demand.isolation is None:
            return await aside(items, refused_fetch, demand, ErrorCode.invalid_request)
        if demand.is_replica:  # a broker that is to copy from here: as one without the right to do so
            return await aside(items, refused_fetch, demand, ErrorCode.topic_authorization_failed)
        owner = SessionOwner(context.principal, context.listener, context.connection_id)
        opened = self._sessions.open(demand, owner, self._clock.monotonic_s())
        if isinstance(opened, SessionRefusal):
            return fetch_answer(demand.version, FetchHead(error=opened.error), ())
        throttle_ms = self._quotas.throttle_ms(context.principal, self._clock.monotonic_s())
        if throttle_ms:
            return _throttled(demand, opened, throttle_ms)
        return await self._fetch(demand, demand.isolation, opened, context)

    async def _fetch(
        self,
        demand: FetchDemand,
        isolation: IsolationLevel,
        opened: FullFetch | IncrementalFetch,
        context: RequestContext,
    ) -> FetchAnswer:
        lookup = PartitionLookup(self._served, self._authorizer, listener=context.listener, principal=context.principal)
        parts = [lookup.part(*each) async for each in context.turns.pieces(opened.wanted.items())]
        if self._authorizer.is_quarantined(context):
            for part in parts:
                part.fail(ErrorCode.kafka_storage_error)
        largest = self._quotas.largest_answer_bytes(context.principal, self._clock.monotonic_s())
        fetch = FetchRound(
            demand if largest is None else replace(demand, max_bytes=min(demand.max_bytes, largest)),
            isolation,
            parts,
            lookup=lookup,
            limits=self._limits,
            clock=self._clock,
            failures=self._failures,
            context=context,
        )
        await fetch.run()
        size_bytes, now_s = sum(part.answer.size_bytes for part in parts), self._clock.monotonic_s()
        if size_bytes and (throttle_ms := self._quotas.admit(context.principal, size_bytes, now_s)):
            context.memory.settle(0)
            return _throttled(demand, opened, throttle_ms, waited_s=fetch.waited_s)
        answers = {part.key: part.answer for part in parts}
        session = opened.finish(answers, now_s)
        head = FetchHead(
            session_id=session.session_id, error=session.error, waited_s=fetch.waited_s, counted_bytes=size_bytes
        )
        told = [(key, answers[key]) for key in session.told]
        return await context.turns.aside(len(told), fetch_answer, demand.version, head, told, lookup.cluster.nodes)


def _throttled(
    demand: FetchDemand, opened: FullFetch | IncrementalFetch, throttle_ms: int, *, waited_s: float = 0.0
) -> FetchAnswer:
    head = FetchHead(session_id=opened.throttled().session_id, throttle_ms=throttle_ms, waited_s=waited_s)
    return fetch_answer(demand.version, head, ())


def fetch_handlers(
    served: ServedPartitions,
    authorizer: Authorizer,
    quotas: FetchQuotas,
    sessions: FetchSessionCache,
    *,
    clock: Clock,
    limits: FetchLimits = _LIMITS,
) -> Mapping[int, Handler]:
    """Return the handler of Fetch by its api key.

    Args:
        served: logs and cluster.
        authorizer: decides which topics a client may read.
        quotas: of the principals.
        sessions: of the endpoint, for all its listeners; ``fetch_sessions`` makes one.
        clock: of the endpoint.
        limits: of one fetch.
    """
    handler = FetchHandler(served, authorizer, quotas, sessions, limits=limits, clock=clock)
    return {FETCH: handler.handle}


def fetch_sessions(limits: FetchSessionLimits = _SESSION_LIMITS) -> FetchSessionCache:
    """Return an empty cache of sessions, whose ids are random."""
    source = random.SystemRandom()
    return FetchSessionCache(limits, new_id=lambda: source.randint(1, MAX_SESSION_NUMBER))
