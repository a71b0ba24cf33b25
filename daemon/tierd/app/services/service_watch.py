"""ServiceWatch: the services that the daemon depends on, and the probes that find out when an outage is over."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from tierd.app.services.reachability import Reachability
from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.errors import RemoteStorageError, RemoteStorageFullError, RetriableRemoteStorageError, TierError
from tierd.remote import ObjectStoreCall
from tierd.serve import Outage, Service

Probe = Callable[[], Awaitable[object]]
"""Small call to a service. The watch learns the outcome as it does that of every call."""

_PROBE_BACKOFF: Final = Backoff(base_s=3.0, cap_s=15.0)
_PROBE_TIMEOUT_S: Final = 10.0


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

    async def run(self, probes: Mapping[Service, Probe]) -> None:
        """Ask a service that failed, and that no other call reaches, until it answers; ends only when cancelled.

        A daemon with nothing to copy would otherwise report an outage that is over. No service that answers is asked.
        """
        async with asyncio.TaskGroup() as group:
            for service, probe in probes.items():
                group.create_task(self._ask_again(self._watched[service], probe), name=f"probe {service}")

    async def _ask_again(self, reachability: Reachability, probe: Probe) -> None:
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

    async def _probe(self, reachability: Reachability, probe: Probe) -> None:
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                await probe()
        except TimeoutError:
            reachability.failed(
                f"no answer within {_PROBE_TIMEOUT_S:g} s", remedy="look at the network and the service"
            )
        except TierError:
            pass  # the outcome was noted where that of every call is
