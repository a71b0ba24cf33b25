"""KafkaConnection to a broker that breaks the protocol in many ways; real brokers are in test_real_kafka."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from uuid import UUID

import pytest
import uvloop

from tests.coded import coded
from tests.control.connecting import plaintext
from tests.fakes.eventually import eventually
from tests.fakes.kafka_broker import CLUSTER_ID, ScriptedBroker
from tests.services.ports import free_port
from tierd.config import KafkaConnectionSettings
from tierd.control.cluster_metadata import BrokerAddress
from tierd.control.kafka_connection import MAX_FRAME_BYTES, KafkaConnection
from tierd.control.kafka_messages import metadata
from tierd.errors import KafkaError, KafkaUnreachableError, TierErrorCode

ORDERS = UUID(int=1)


async def connected(address: str, *, request_timeout_s: float = 5.0) -> KafkaConnection:
    host, _, port = address.rpartition(":")
    return await KafkaConnection.open(
        BrokerAddress(host, int(port)), plaintext(address, request_timeout_s=request_timeout_s)
    )


@contextlib.asynccontextmanager
async def saying(answer: bytes) -> AsyncIterator[str]:
    """Run a server that is no broker: it answers the first bytes with ``answer`` and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()


async def test_requests_are_answered_one_after_another() -> None:
    broker = ScriptedBroker(topics={ORDERS: {0: (1, 5)}})
    async with broker.listening() as address:
        connection = await connected(address)
        for _ in range(3):
            answer = await connection.call(metadata([ORDERS]))
            assert answer.cluster_id == CLUSTER_ID
        connection.close()
        assert not connection.is_open
    assert broker.requests == [(18, 0), (3, 1), (3, 1), (3, 1)]


async def test_requests_that_are_sent_together_are_answered_in_their_order() -> None:
    broker = ScriptedBroker(topics={ORDERS: {0: (1, 5)}})
    async with broker.listening() as address:
        connection = await connected(address)
        requests = [metadata([ORDERS]), metadata(), metadata([ORDERS])]

        numbers = [await connection.send(request) for request in requests]
        answers = [
            await connection.receive(request, number, timeout_s=5.0)
            for request, number in zip(requests, numbers, strict=True)
        ]

        assert [len(answer.topics) for answer in answers] == [1, 0, 1]
        assert connection.is_open
        connection.close()


async def test_answer_that_is_awaited_for_too_long_closes_the_connection() -> None:
    broker = ScriptedBroker()
    async with broker.listening() as address:
        connection = await connected(address)
        broker.is_silent = True
        number = await connection.send(metadata())

        with pytest.raises(KafkaUnreachableError, match=r"no answer to Metadata within 0\.1 s"):
            await connection.receive(metadata(), number, timeout_s=0.1)

        assert not connection.is_open


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_request_on_a_connection_that_another_task_closed_is_unreachable(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A task whose ``receive`` fails closes the connection under the task that sends."""

    async def send_after_the_end() -> None:
        async with ScriptedBroker().listening() as address:
            connection = await connected(address)
            connection.close()
            for _ in range(2):  # the second time, the event loop has dropped the socket
                with pytest.raises(KafkaUnreachableError, match="connection lost at Metadata"):
                    await connection.send(metadata())
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(send_after_the_end())


async def test_port_without_a_server_is_unreachable() -> None:
    with pytest.raises(KafkaUnreachableError, match="cannot connect"):
        await connected(f"127.0.0.1:{free_port()}")


@pytest.mark.parametrize(
    ("answer", "kind", "code", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", KafkaError, TierErrorCode.KAFKA_PROTOCOL, "not a Kafka broker"),
        (b"\x15\x03\x03\x00\x02\x02\x46", KafkaError, TierErrorCode.KAFKA_TLS, "speaks TLS"),
        ((MAX_FRAME_BYTES + 1).to_bytes(4, "big"), KafkaError, TierErrorCode.KAFKA_PROTOCOL, "not a Kafka broker"),
        (b"\xff\xff\xff\xff", KafkaError, TierErrorCode.KAFKA_PROTOCOL, "not a Kafka broker"),
        (b"\0\0\0\2ab", KafkaError, TierErrorCode.KAFKA_PROTOCOL, "not a Kafka broker"),
        (
            b"\0\0\0\x08" + (99).to_bytes(4, "big") + b"1234",
            KafkaError,
            TierErrorCode.KAFKA_PROTOCOL,
            "another request's number",
        ),
        (b"", KafkaUnreachableError, None, "closed at the first request"),
        (b"\0\0\0\x40half", KafkaUnreachableError, None, "closed at the first request"),
    ],
)
async def test_server_that_is_no_broker_is_recognised(
    answer: bytes, kind: type[KafkaError], code: TierErrorCode | None, problem: str
) -> None:
    async with saying(answer) as address:
        with pytest.raises(kind, check=coded(code), match=problem) as caught:
            await connected(address)
    assert caught.value.remedy


async def test_broker_that_is_too_old_is_refused_with_the_name_of_the_missing_request() -> None:
    async with ScriptedBroker(versions={3: (0, 9), 32: (0, 3)}).listening() as address:
        with pytest.raises(
            KafkaError, check=coded(TierErrorCode.KAFKA_PROTOCOL), match="Metadata version 12"
        ) as caught:
            await connected(address)
    assert "3.1" in caught.value.remedy


async def test_connection_to_a_silent_broker_is_closed_at_the_deadline() -> None:
    broker = ScriptedBroker()
    async with broker.listening() as address:
        connection = await connected(address, request_timeout_s=1.0)
        broker.is_silent = True
        with pytest.raises(KafkaUnreachableError, match="no answer to Metadata within 1 s"):
            await connection.call(metadata())
        assert not connection.is_open


async def test_silent_listener_is_unreachable_at_the_connect_timeout() -> None:
    async with ScriptedBroker(is_silent=True).listening() as address:
        host, _, port = address.rpartition(":")
        settings = KafkaConnectionSettings(bootstrap_servers=(address,), connect_timeout_s=0.05)
        with pytest.raises(KafkaUnreachableError, match="connect_timeout"):
            await KafkaConnection.open(BrokerAddress(host, int(port)), settings)


async def test_cancelled_request_closes_the_connection() -> None:
    broker = ScriptedBroker()
    async with broker.listening() as address:
        connection = await connected(address)
        broker.is_silent = True
        asking = asyncio.create_task(connection.call(metadata()))
        await eventually(lambda: broker.requests[-1] == (3, 0), what="the question")
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not connection.is_open


@pytest.mark.parametrize(
    "spoil",
    [lambda _: None, lambda answer: answer[: len(answer) // 2], lambda _: b"\0\0\0\x05\0\0\0\2\1", lambda _: b"junk!"],
    ids=["hangs up", "half an answer", "a header of another kind", "noise"],
)
async def test_malformed_answer_closes_the_connection(spoil: Callable[[bytes], bytes | None]) -> None:
    broker = ScriptedBroker()
    async with broker.listening() as address:
        connection = await connected(address, request_timeout_s=1.0)
        broker.spoil = spoil
        with pytest.raises(KafkaError) as caught:
            await connection.call(metadata())
        assert caught.value.remedy
        assert not connection.is_open


async def test_connection_that_the_broker_reset_is_closed() -> None:
    broker = ScriptedBroker()
    async with broker.listening() as address:
        connection = await connected(address)
        broker.drop_connections()
        with pytest.raises(KafkaUnreachableError):
            await connection.call(metadata())
        assert not connection.is_open
