"""ServiceWatch: the services that the daemon depends on, and the probes that find out when an outage is over."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.errors import RemoteStorageError, RemoteStorageFullError, RetriableRemoteStorageError, TierError
from tierd.remote import ObjectStoreCall
from tierd.serve import Outage, Service

log = structlog.get_logger()

ProbeService = Callable[[], Awaitable[object]]
"""Small call to a service. The watch learns the outcome as it does that of every call."""

_PROBE_BACKOFF: Final = Backoff(base_s=3.0, cap_s=15.0)
_PROBE_TIMEOUT_S: Final = 10.0
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


class ServiceWatch:
    """Reachability of the object store, the metadata store and, where a connection is configured, Kafka."""

    def __init__(self, *, clock: Clock, random: Callable[[], float], with_kafka: bool) -> None:
        self._clock = clock
        self._random = random
        self.object_store = Reachability("object_store", clock=clock)
        self.metadata_store = Reachability("metadata_store", clock=clock)
        self.kafka = Reachability("kafka", clock=clock)
        self._watched: dict[Service, Reachability] = {
            "object_store": self.object_store,
            "metadata_store": self.metadata_store,
        }
        if with_kafka:
            self._watched["kafka"] = self.kafka

    def outages(self) -> tuple[Outage, ...]:
        """Return the services that are unreachable now."""
        return tuple(each.outage for each in self._watched.values() if each.outage is not None)

    def unreachable_s(self) -> Mapping[str, float]:
        """Return for each service the seconds since it became unreachable; 0 while it answers."""
        return {service: each.outage_s for service, each in self._watched.items()}

    def object_store_attempted(self, call: ObjectStoreCall) -> None:
        """Take note of an attempt at a call to the object store."""
        match call.failure:
            case RetriableRemoteStorageError() as failure if not isinstance(failure, RemoteStorageFullError):
                self.object_store.outcome(failure)
            case RemoteStorageError():
                self.object_store.answered()
            case None if call.outcome == "ok":
                self.object_store.answered()
            case None if call.outcome == "cancelled":
                self.object_store.cancelled(call.duration_s)

    async def run(self, probes: Mapping[Service, ProbeService]) -> None:
        """Ask a service that failed, and that no other call reaches, until it answers; ends only when cancelled.

        A daemon with nothing to copy would otherwise report an outage that is over. No service that answers is asked.
        """
        async with asyncio.TaskGroup() as group:
            for service, probe in probes.items():
                group.create_task(self._ask_again(self._watched[service], probe), name=f"probe {service}")

    async def _ask_again(self, reachability: Reachability, probe: ProbeService) -> None:
        failures = 0
        while True:
            await reachability.suspected.wait()
            failures += 1
            pause_s = _PROBE_BACKOFF.delay_s(failures, random=self._random)
            await self._clock.sleep(pause_s)
            if not reachability.suspected.is_set():
                failures = 0
            elif reachability.quiet_s >= pause_s:
                await self._probe(reachability, probe)

    async def _probe(self, reachability: Reachability, probe: ProbeService) -> None:
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                await probe()
        except TimeoutError:
            reachability.failed(
                f"no answer within {_PROBE_TIMEOUT_S:g} s", remedy="look at the network and the service"
            )
        except TierError:
            pass  # the outcome was noted where that of every call is
