"""BrokerConnections: a connection to a broker of the right cluster, and to the next broker when that one fails."""

import asyncio
import random as _random
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from typing import Final, TypeVar

import structlog

from tierd.backoff import Backoff
from tierd.config import KafkaConnectionSettings
from tierd.control.cluster_metadata import BrokerAddress, ClusterMetadata
from tierd.control.kafka_connection import KafkaConnection
from tierd.control.kafka_framing import Request
from tierd.control.kafka_messages import metadata
from tierd.errors import ForeignClusterError, KafkaError, KafkaUnreachableError

log = structlog.get_logger()

A = TypeVar("A")

_ATTEMPTS: Final = 5  # brokers tried before a failure is reported; the next attempt begins behind them

BACKOFF: Final = Backoff(base_s=0.2)
"""Wait between attempts: a cluster that elects a leader is away for a second, and its brokers are few."""


class BrokerConnections:
    """One connection, and the brokers to try next: the bootstrap servers, then the brokers that they named.

    For one task: ``call`` and ``move_on`` never run at the same time. ``ask_every`` opens connections of its own.
    """

    def __init__(
        self,
        settings: KafkaConnectionSettings,
        *,
        cluster_id: str,
        random: Callable[[], float] = _random.random,
    ) -> None:
        """Keep the collaborators; a broker of another cluster than ``cluster_id`` is asked for its cluster only."""
        self._settings = settings
        self._cluster_id = cluster_id
        self._bootstrap = bootstrap_addresses(settings)
        self._learned: tuple[BrokerAddress, ...] = ()
        # Not every daemon of a cluster should begin with the same broker.
        self._next = int(random() * len(self._bootstrap))
        self._connection: KafkaConnection | None = None

    @property
    def brokers(self) -> tuple[BrokerAddress, ...]:
        """Return the brokers alive by the last answer of the cluster; none before the first answer."""
        return self._learned

    @property
    def current(self) -> KafkaConnection | None:
        """Return the connection in use; None without one."""
        return self._connection

    async def call(self, request: Request[A]) -> A:
        """Ask the connected broker, or the next one that can be reached; a cancellation closes the connection.

        Raises:
            KafkaError: none of a few brokers answered; the most telling reason.
        """
        connection = await self._ready()
        try:
            return await connection.call(request)
        except KafkaError:
            self.move_on()
            raise

    async def ask_every(self, request: Request[A]) -> list[A]:
        """Ask every broker, all at once; those that do not answer are left out.

        Each broker is asked over a connection of its own, at the address that the cluster gives. Behind the address of
        the connected one may be any broker, and no broker may be counted twice.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._ask(each, request), name=f"ask {each}") for each in self._learned]
        return [answer for task in tasks for answer in task.result()]

    def learn(self, brokers: Collection[BrokerAddress]) -> None:
        """Remember the brokers alive; an empty list, from a broker that knows none, changes nothing."""
        self._learned = tuple(brokers) or self._learned

    def move_on(self) -> None:
        """Leave the connected broker; the next call goes to another one."""
        self.close()
        self._next += 1

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _ready(self) -> KafkaConnection:
        if self._connection is not None and self._connection.is_open:
            return self._connection
        self.close()
        failures: list[KafkaError] = []
        for candidate in self._candidates():
            try:
                self._connection = await self._open(candidate)
            except KafkaError as error:
                failures.append(error)
                self._next += 1
            else:
                log.info("kafka_connected", broker=str(self._connection.address))
                return self._connection
        raise _most_informative(failures)

    async def _open(self, address: BrokerAddress) -> KafkaConnection:
        """Connect, check that the cluster is the right one, and learn its brokers."""
        connection = await KafkaConnection.open(address, self._settings)
        try:
            cluster = await connection.call(metadata())
            self._require_ours(address, cluster)
        except BaseException:
            connection.close()
            raise
        self.learn(cluster.brokers)
        return connection

    async def _ask(self, address: BrokerAddress, request: Request[A]) -> list[A]:
        try:
            with closing(await KafkaConnection.open(address, self._settings)) as connection:
                self._require_ours(address, await connection.call(metadata()))
                return [await connection.call(request)]
        except KafkaError:
            return []

    def _require_ours(self, address: BrokerAddress, cluster: ClusterMetadata) -> None:
        if cluster.cluster_id == self._cluster_id:
            return
        if cluster.cluster_id is None:
            raise KafkaUnreachableError(
                f"{address}: the broker does not know its cluster yet", remedy="nothing: retried"
            )
        raise ForeignClusterError(
            f"{address} belongs to cluster {cluster.cluster_id}, the log dirs to {self._cluster_id}",
            remedy="let leadership.kafka.bootstrap_servers name brokers of the cluster whose log dirs these are",
        )

    def _candidates(self) -> list[BrokerAddress]:
        """Return the next few addresses to try, in their order."""
        known = {(each.host, each.port) for each in self._bootstrap}
        every = [*self._bootstrap, *(each for each in self._learned if (each.host, each.port) not in known)]
        return [every[(self._next + turn) % len(every)] for turn in range(min(len(every), _ATTEMPTS))]


def bootstrap_addresses(settings: KafkaConnectionSettings) -> tuple[BrokerAddress, ...]:
    """Return the brokers to ask first, as the configuration names them."""
    return tuple(_address(server) for server in settings.bootstrap_servers)


def _address(server: str) -> BrokerAddress:
    host, _, port = server.rpartition(":")
    return BrokerAddress(host.removeprefix("[").removesuffix("]"), int(port))


def _most_informative(failures: Sequence[KafkaError]) -> KafkaError:
    """Return the first error that is not retriable, else the last one: a refused login explains more than silence."""
    return next((error for error in failures if not error.retriable), failures[-1])
