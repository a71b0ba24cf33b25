"""BrokerConnections: fail-over from one broker to the next, and never to brokers of another cluster."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from tests.coded import coded
from tests.control.connecting import plaintext
from tests.fakes.kafka_broker import CLUSTER_ID, ScriptedBroker
from tierd.control.broker_connections import BACKOFF, BrokerConnections
from tierd.control.cluster_metadata import BrokerAddress
from tierd.control.kafka_connection import KafkaConnection
from tierd.control.kafka_messages import metadata
from tierd.errors import ForeignClusterError, KafkaError, KafkaUnreachableError, TierErrorCode


def to(*servers: str, request_timeout_s: float = 5.0) -> BrokerConnections:
    return BrokerConnections(
        plaintext(*servers, request_timeout_s=request_timeout_s), cluster_id=CLUSTER_ID, random=lambda: 0.0
    )


@contextlib.asynccontextmanager
async def cluster(count: int) -> AsyncIterator[list[ScriptedBroker]]:
    """Run brokers that name one another."""
    brokers = [ScriptedBroker(node_id=node) for node in range(1, count + 1)]
    async with contextlib.AsyncExitStack() as stack:
        for broker in brokers:
            await stack.enter_async_context(broker.listening())
        for broker in brokers:
            broker.brokers |= {each.node_id: each.address for each in brokers}
        yield brokers


async def test_one_connection_serves_several_requests() -> None:
    async with cluster(1) as (broker,):
        connections = to(str(broker.address))
        for _ in range(3):
            await connections.call(metadata())
        connections.close()
    assert broker.connections == 1


async def test_the_next_bootstrap_server_is_tried_when_one_is_down() -> None:
    async with cluster(2) as (down, up):
        address = str(down.address)
    async with up.listening():
        connections = to(address, str(up.address))
        await connections.call(metadata())
        assert connections.current is not None
        assert str(connections.current.address) == str(up.address)
        connections.close()


async def test_brokers_known_from_the_cluster_are_tried_when_the_bootstrap_server_is_down() -> None:
    async with cluster(2) as (first, second):
        connections = to(str(first.address))
        await connections.call(metadata())
        assert connections.brokers == (first.address, second.address)
        first.spoil = lambda _: None
        with pytest.raises(KafkaUnreachableError):
            await connections.call(metadata())
        await connections.call(metadata())
        assert connections.current is not None
        assert connections.current.address == second.address
        connections.close()


async def test_hanging_broker_is_replaced_by_another_one() -> None:
    async with cluster(2) as (hung, other):
        connections = to(str(hung.address), request_timeout_s=1.0)
        await connections.call(metadata())
        hung.is_silent = True
        with pytest.raises(KafkaUnreachableError, match="no answer"):
            await connections.call(metadata())
        assert set((await connections.call(metadata())).brokers) == {hung.address, other.address}
        connections.close()


async def test_a_broker_of_another_cluster_is_refused_by_name() -> None:
    async with ScriptedBroker(cluster_id="another").listening() as address:
        connections = to(address)
        with pytest.raises(ForeignClusterError, match=f"belongs to cluster another, the log dirs to {CLUSTER_ID}"):
            await connections.call(metadata())
        assert connections.current is None


async def test_a_broker_that_does_not_know_its_cluster_yet_is_tried_again() -> None:
    broker = ScriptedBroker(cluster_id=None)
    async with broker.listening() as address:
        connections = to(address)
        with pytest.raises(KafkaUnreachableError):
            await connections.call(metadata())
        broker.cluster_id = CLUSTER_ID
        await connections.call(metadata())
        connections.close()


async def test_permanent_failure_is_reported_before_a_transient_one() -> None:
    async with ScriptedBroker(versions={}).listening() as too_old, cluster(1) as (down,):
        address = str(down.address)
        down.spoil = lambda _: None
        with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_PROTOCOL)):
            await to(too_old, address).call(metadata())
        with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_PROTOCOL)):
            await to(address, too_old).call(metadata())


async def test_every_broker_is_asked_once_and_brokers_that_fail_are_left_out() -> None:
    async with cluster(3) as (first, second, third):
        connections = to(str(first.address))
        await connections.call(metadata())
        third.spoil = lambda _: None
        answers = await connections.ask_every(metadata())
        connections.close()
    assert len(answers) == 2
    assert (first.connections, second.connections) == (2, 1)


@pytest.mark.parametrize(
    "address",
    [
        BrokerAddress("a" * 64 + ".example", 9092),
        BrokerAddress(".example", 9092),
        BrokerAddress("", 9092),
        BrokerAddress("nul\0.example", 9092),
        BrokerAddress("127.0.0.1", 70_000),
        BrokerAddress("127.0.0.1", -1),
    ],
)
async def test_invalid_host_name_counts_as_a_broker_that_is_down(address: BrokerAddress) -> None:
    """A cluster names its brokers as their operators configured them: a bad name must end only the attempt."""
    with pytest.raises(KafkaUnreachableError, match="cannot connect"):
        await KafkaConnection.open(address, plaintext("127.0.0.1:1"))
    async with cluster(1) as (broker,):
        broker.brokers |= {7: BrokerAddress(address.host, address.port, 7)}
        connections = to(str(broker.address))
        await connections.call(metadata())
        assert len(await connections.ask_every(metadata())) == 1
        connections.close()


async def test_a_cluster_with_many_dead_brokers_is_searched_a_few_at_a_time() -> None:
    async with cluster(8) as brokers:
        addresses = [str(broker.address) for broker in brokers]
    async with brokers[7].listening():
        connections = to(*addresses)
        with pytest.raises(KafkaUnreachableError):
            await connections.call(metadata())
        await connections.call(metadata())
        connections.close()


def test_waits_double_up_to_half_a_minute_with_jitter() -> None:
    assert [BACKOFF.delay_s(n, random=lambda: 0.5) for n in (1, 2, 3, 4)] == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert BACKOFF.delay_s(99, random=lambda: 0.5) == pytest.approx(30.0)
    assert BACKOFF.delay_s(1, random=lambda: 0.0) == pytest.approx(0.16)
