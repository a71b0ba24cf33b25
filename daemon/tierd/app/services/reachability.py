"""Reachability: the state of one service by the outcomes of the calls to it."""

import asyncio

import structlog

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.serve import Outage, Service

log = structlog.get_logger()

_FAILURES = 3
_AT_LEAST_S = 2.0  # calls that run side by side fail together when one connection breaks
_SLOW_FAILURES = 2
_SLOW_AT_LEAST_S = 10.0
_CANCELLED_AT_LEAST_S = 10.0  # in all: a single call that is cancelled soon had hardly the time to be answered


class Reachability:
    """State of one service, from the outcomes of all calls to it; logs each change once.

    ::

        answers ──a call fails──► suspected ──more fail, without an answer between──► unreachable
           ▲      or is cancelled     │                                                    │
           └──────── a call is answered, be it with an error of its own ────────────────────┘
    """

    def __init__(self, service: Service, *, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._failures = 0  # since the last answer
        self._since_ms = 0  # of the first of these failures
        self._since_s = 0.0
        self._cancelled_s = 0.0  # that calls lasted which were cancelled since the last answer
        self._last_outcome_s = clock.monotonic_s()
        self._outage: Outage | None = None
        self.suspected = asyncio.Event()
        """Event that is set from the first call that failed, or was cancelled without an answer, to the next answer."""

    @property
    def outage(self) -> Outage | None:
        """Return since when, and why, the service is unreachable; None while it answers or is only suspected."""
        return self._outage

    @property
    def outage_s(self) -> float:
        """Return the seconds since the outage began; 0 without one."""
        return self._clock.monotonic_s() - self._since_s if self._outage else 0.0

    @property
    def quiet_s(self) -> float:
        """Return the seconds since the last call had an outcome."""
        return self._clock.monotonic_s() - self._last_outcome_s

    def answered(self) -> None:
        """Note an answer of the service, which may be a refusal."""
        self._last_outcome_s = self._clock.monotonic_s()
        if self._outage is not None:
            log.info("service_reachable_again", service=self._service, unreachable_s=round(self.outage_s, 1))
        self._failures, self._cancelled_s, self._outage = 0, 0.0, None
        self.suspected.clear()

    def failed(self, problem: str, *, remedy: str = "") -> None:
        """Note a call that the service did not answer."""
        self._last_outcome_s = self._clock.monotonic_s()
        if not self._failures:
            self._since_ms, self._since_s = self._clock.now_ms(), self._last_outcome_s
        self._failures += 1
        self.suspected.set()
        if self._outage is None and not self._is_out():
            return
        began = self._outage is None
        self._outage = Outage(
            service=self._service, since_ms=self._since_ms, problem=" ".join(problem.split()), remedy=remedy
        )
        if began:
            log.warning("service_unreachable", **self._outage.to_json())

    def cancelled(self, after_s: float) -> None:
        """Note a call that its caller cancelled after ``after_s`` seconds.

        The service has not failed by that, since a large upload may take longer. But if nothing was answered meanwhile
        the service is suspected: where every caller has less patience than a call, no call ever fails.
        """
        if self.quiet_s >= after_s:
            self._cancelled_s += after_s
        if self._cancelled_s >= _CANCELLED_AT_LEAST_S:
            self.suspected.set()

    def outcome(self, failure: TierError | None) -> None:
        """Note a call that ended: with ``failure`` when the service did not answer, else None."""
        if failure is None:
            self.answered()
        else:
            self.failed(str(failure), remedy=failure.remedy)

    def _is_out(self) -> bool:
        lasted_s = self._clock.monotonic_s() - self._since_s
        is_slow = self._failures >= _SLOW_FAILURES and lasted_s >= _SLOW_AT_LEAST_S
        return is_slow or (self._failures >= _FAILURES and lasted_s >= _AT_LEAST_S)
