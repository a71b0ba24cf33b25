"""ReadEndpoint: the endpoint of one process, from its first look at the tier to its last answer.

::

    what it serves is learnt ──► listening ──► stop: connections drain ──► the last commits are written
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from tierd.app.endpoint.endpoint_partitions import EndpointPartitions
from tierd.config import EndpointListenerSettings, KafkaEndpointSettings
from tierd.serve import ConsumerGroups, EndpointAccess, FetchSessionCache, KafkaEndpoint
from tierd.tasks import end_tasks

if TYPE_CHECKING:  # at run time only where a connection to Kafka is configured
    from tierd.control import BrokerWatermarks

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointParts:
    """Parts of one endpoint.

    Attributes:
        access: of the clients.
        partitions: everything that is served.
        server: the listeners.
        groups: of the consumers.
        sessions: of their fetches.
        watermarks: of the broker beside it; None where no connection to Kafka is configured.
    """

    access: EndpointAccess
    partitions: EndpointPartitions
    server: KafkaEndpoint
    groups: ConsumerGroups
    sessions: FetchSessionCache
    watermarks: "BrokerWatermarks | None"


class ReadEndpoint:
    """Run of one endpoint. ``run`` is called once."""

    def __init__(self, listeners: tuple[EndpointListenerSettings, ...], parts: EndpointParts) -> None:
        """Bind nothing yet."""
        self._settings = {listener.name: listener for listener in listeners}
        self._stopping = asyncio.Event()
        self._listening = asyncio.Event()
        self.parts = parts

    @property
    def not_ready(self) -> str:
        """Return why clients cannot connect; empty when they can."""
        return "" if self._listening.is_set() else "the read endpoint does not listen yet"

    async def wait_until_listening(self) -> None:
        """Return once clients can connect."""
        await self._listening.wait()

    def stop(self) -> None:
        """End ``run`` in order: clients get the answers that are under way, and move to other endpoints."""
        self._stopping.set()

    async def follow(self, settings: KafkaEndpointSettings) -> None:
        """Take the settings of a reload that can change while the endpoint runs: those of the access."""
        await self.parts.access.follow(settings)

    async def run(self, loaded: Callable[[], Awaitable[None]]) -> None:
        """Serve until ``stop`` or a cancellation; ``loaded`` returns when the partitions of this host are known.

        Raises:
            ListenError: an address cannot be bound.
        """
        parts = self.parts
        async with asyncio.TaskGroup() as group:
            background = [group.create_task(parts.watermarks.run(), name="watermarks")] if parts.watermarks else []
            try:
                if await self._learn(loaded):
                    background.append(group.create_task(parts.partitions.run(), name="served partitions"))
                    await self._serve(group)
            finally:
                await end_tasks(background)

    async def _learn(self, loaded: Callable[[], Awaitable[None]]) -> bool:
        """Learn what is served; return False if the stop came first. An outage of the metadata lasts for any time."""

        async def learn() -> None:
            await loaded()
            await self.parts.partitions.prepare()

        learning = asyncio.create_task(learn(), name="learn what is served")
        stopping = asyncio.create_task(self._stopping.wait(), name="stop of the endpoint")
        try:
            await asyncio.wait({learning, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not learning.done():
                return False
            learning.result()
            return True
        finally:
            await end_tasks([learning, stopping])

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        parts = self.parts
        groups = group.create_task(parts.groups.run(), name="consumer groups")
        try:
            async with parts.server.listening(group) as bound:
                addresses = self._advertised(bound)
                parts.partitions.listen_at(addresses)
                self._listening.set()
                shown = {name: f"{host}:{port}" for name, (host, port) in addresses.items()}
                log.info("endpoint_listening", listeners=shown, topics=len(parts.partitions.topics))
                await self._stopping.wait()
            log.info("endpoint_stopped")
        finally:
            self._listening.clear()
            await end_tasks([groups])

    def _advertised(self, bound: Mapping[str, tuple[str, int]]) -> dict[str, tuple[str, int]]:
        return {name: self._settings[name].advertised_address(port) for name, (_, port) in bound.items()}
