"""TargetCluster: connections to the brokers of the cluster that a restore writes to, or reads changelogs from."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Final, TypeVar

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.config import KafkaConnectionSettings
from tierd.control import (
    BrokerAddress,
    ClusterMetadata,
    GroupCoordinator,
    KafkaConnection,
    Request,
    TopicLeaders,
    bootstrap_addresses,
    find_coordinator,
    metadata,
    named_topics,
)
from tierd.errors import ForeignClusterError, KafkaError, KafkaUnreachableError
from tierd.model import TopicPartition
from tierd.restore.live_cluster.target_errors import PASSING_ERRORS

log = structlog.get_logger()

A = TypeVar("A")

_BACKOFF: Final = Backoff(base_s=0.2, cap_s=5.0)


class TargetCluster:
    """Brokers of one cluster, learned from the bootstrap servers; connections are opened when they are needed.

    Attributes:
        cluster_id: of the cluster that answered first.
        patience_s: how long a call is repeated while the cluster cannot answer it.
    """

    def __init__(
        self, settings: KafkaConnectionSettings, *, clock: Clock, patience_s: float, first: ClusterMetadata
    ) -> None:
        """Keep the collaborators; ``first`` is the first answer of the cluster."""
        assert first.cluster_id is not None, "the caller waits for a broker that knows its cluster"
        self.cluster_id = first.cluster_id
        self.patience_s = patience_s
        self.clock = clock
        self._settings = settings
        self._brokers = {each.node_id: each for each in first.brokers if each.node_id is not None}
        self._connections: dict[BrokerAddress, KafkaConnection] = {}
        self._locks: dict[BrokerAddress, asyncio.Lock] = {}

    @property
    def node_ids(self) -> list[int]:
        """Return the brokers alive by the last answer of the cluster."""
        return list(self._brokers)

    async def connect(self, node_id: int) -> KafkaConnection:
        """Open a connection to a broker, which the caller closes.

        Raises:
            KafkaError: the broker is not known, or cannot be reached.
        """
        address = self._brokers.get(node_id)
        if address is None:
            raise KafkaUnreachableError(
                f"broker {node_id} is not among the brokers alive", remedy="start the broker, or wait for a new leader"
            )
        return await self._open(address)

    async def leaders(self, topics: Collection[str]) -> Mapping[str, TopicLeaders]:
        """Return the leaders of those ``topics`` that exist, by the answer of one broker.

        Raises:
            KafkaError: no broker answers.
        """
        self._learn(await self.ask(metadata()))
        return await self.ask(named_topics(topics))

    async def ask(self, request: Request[A]) -> A:
        """Ask the brokers in turn, and return the first answer.

        Raises:
            KafkaError: none answers; the last failure.
        """
        failure: KafkaError | None = None
        for address in self._addresses():
            try:
                return await self._call(address, request)
            except KafkaError as error:
                failure = error
                if not error.retriable:
                    raise
        assert failure is not None, "there is at least one bootstrap server"
        raise failure

    async def ask_leader(self, name: TopicPartition, request: Request[A]) -> A:
        """Ask the present leader of a partition.

        Raises:
            KafkaError: there is none, or it does not answer.
        """
        topic = (await self.leaders([name.topic])).get(name.topic)
        leader = next((each for each in topic.partitions if each.partition == name.partition), None) if topic else None
        if leader is None or leader.leader_id not in self._brokers:
            raise KafkaUnreachableError(f"{name} has no leader at present", remedy="look at the brokers of the target")
        return await self._call(self._brokers[leader.leader_id], request)

    async def ask_coordinator(self, group: str, request: Request[A]) -> A:
        """Ask the present coordinator of a group.

        Raises:
            KafkaError: there is none, or it does not answer.
        """
        found: GroupCoordinator = await self.ask(find_coordinator(group))
        if found.address is None:
            if found.error in PASSING_ERRORS:
                raise KafkaUnreachableError(
                    f"group {group} has no coordinator at present: {found.error}",
                    remedy="look at the brokers of the target",
                )
            raise KafkaError(
                f"the coordinator of group {group} is not told: {found.error}",
                remedy="grant the user of the target the right Describe and Read on the group",
            )
        return await self._call(found.address, request)

    async def ask_broker(self, node_id: int, request: Request[A]) -> A:
        """Ask one broker.

        Raises:
            KafkaError: it does not answer.
        """
        address = self._brokers.get(node_id)
        if address is None:
            raise KafkaUnreachableError(f"broker {node_id} is not alive", remedy="start it")
        return await self._call(address, request)

    async def patiently(self, call: Callable[[], Awaitable[A]], error_of: Callable[[A], str]) -> A:
        """Repeat ``call`` until its answer is final, for at most ``patience_s``.

        Args:
            call: one attempt.
            error_of: Kafka's name of the error in an answer; empty for success.

        Returns:
            The first answer without an error that passes by itself.

        Raises:
            KafkaError: the last failure.
        """
        deadline_s, failures = self.clock.monotonic_s() + self.patience_s, 0
        while True:
            failure: KafkaError | None = None
            try:
                answer = await call()
            except KafkaError as error:
                if not error.retriable:
                    raise
                failure = error
            else:
                error_name = error_of(answer)
                if error_name not in PASSING_ERRORS:
                    return answer
                failure = KafkaUnreachableError(
                    f"the target answers {error_name}", remedy="look at the brokers of the target"
                )
            failures += 1
            if self.clock.monotonic_s() >= deadline_s:
                raise failure
            if failures == 1:
                log.warning("target_waits", problem=str(failure))
            await self.clock.sleep(_BACKOFF.delay_s(failures, random=random.random))

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _call(self, address: BrokerAddress, request: Request[A]) -> A:
        async with self._locks.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                if connection is not None:
                    connection.close()  # the broker has ended its side
                connection = self._connections[address] = await self._open(address)
            return await connection.call(request)

    async def _open(self, address: BrokerAddress) -> KafkaConnection:
        """Connect, and check that the broker is still one of the cluster."""
        connection = await KafkaConnection.open(address, self._settings)
        try:
            cluster = await connection.call(metadata())
            self._require_ours(address, cluster.cluster_id)
        except BaseException:
            connection.close()
            raise
        self._learn(cluster)
        return connection

    def _require_ours(self, address: BrokerAddress, cluster_id: str | None) -> None:
        if cluster_id is None:
            raise KafkaUnreachableError(f"{address}: the broker does not know its cluster yet", remedy="retried")
        if cluster_id != self.cluster_id:
            raise ForeignClusterError(
                f"{address} belongs to cluster {cluster_id}, the restore writes to {self.cluster_id}",
                remedy="let --to name brokers of one cluster",
            )

    def _addresses(self) -> list[BrokerAddress]:
        known = list(self._brokers.values())
        places = {(each.host, each.port) for each in known}
        return [
            *known,
            *(each for each in bootstrap_addresses(self._settings) if (each.host, each.port) not in places),
        ]

    def _learn(self, cluster: ClusterMetadata) -> None:
        found = {each.node_id: each for each in cluster.brokers if each.node_id is not None}
        self._brokers = found or self._brokers


@contextlib.asynccontextmanager
async def open_target(
    settings: KafkaConnectionSettings, *, clock: Clock, patience_s: float
) -> AsyncIterator[TargetCluster]:
    """Connect to the first bootstrap server that answers, and close every connection in the end.

    Raises:
        KafkaError: none answers; a refused login or certificate comes first.
    """
    failures: list[KafkaError] = []
    for address in bootstrap_addresses(settings):
        try:
            with contextlib.closing(await KafkaConnection.open(address, settings)) as connection:
                first = await connection.call(metadata())
        except KafkaError as error:
            failures.append(error)
            continue
        if first.cluster_id is None:
            failures.append(
                KafkaUnreachableError(f"{address}: the broker does not know its cluster yet", remedy="try again")
            )
            continue
        target = TargetCluster(settings, clock=clock, patience_s=patience_s, first=first)
        try:
            yield target
        finally:
            target.close()
        return
    raise next((each for each in failures if not each.retriable), failures[-1])
