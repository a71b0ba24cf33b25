"""Visitors of an endpoint: connections of clients that log in, consume, wait, fail and vanish, one story each."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.schema.list_groups.v4.response import ListGroupsResponse
from kio.schema.metadata.v9.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v9.response import MetadataResponse
from kio.schema.types import TopicName
from kio.static.protocol import RequestPayload, ResponsePayload

from tests.fakes.eventually import eventually
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.manual_clock import ManualClock
from tests.serve.kafka.access.clients import PASSWORD, AiokafkaScram
from tests.serve.kafka.connections.running_endpoint import FrameClient
from tests.serve.kafka.fetching.fetch_endpoint import Want, fetch_request
from tests.serve.kafka.groups.asked_groups import FakeConsumer
from tests.serve.kafka.kio_messages import sample
from tierd.app.endpoint.read_endpoint import ReadEndpoint
from tierd.serve.kafka.message_versions import in_version

TOPIC, PARTITIONS = "orders", 2
LONG_SESSION_S = 300.0
_HANDSHAKE, _AUTHENTICATE, _FETCH = 17, 36, 1
_FETCH_VERSION = 12
R = TypeVar("R", bound=ResponsePayload)


class VisitorConnection:
    """One connection, as ``FakeConsumer`` asks it."""

    def __init__(self, frames: FrameClient) -> None:
        self.frames = frames

    async def answer(
        self, request: RequestPayload, response: type[R], *, version: int | None = None, client_id: str = "client"
    ) -> R:
        """Ask in a version, that of ``request`` unless it is given; return the answer as a ``response``."""
        wanted = request if version is None else in_version(request, load_request_schema(request.__api_key__, version))
        asked = load_response_schema(request.__api_key__, int(wanted.__version__))
        del client_id
        return in_version(await self.frames.ask(wanted, asked), response)

    async def fetch(self, *wants: Want, **fields: Any) -> Any:  # noqa: ANN401 - of kio
        """Return the answer to a Fetch."""
        request = fetch_request(wants, version=_FETCH_VERSION, **fields)
        return await self.frames.ask(request, load_response_schema(_FETCH, _FETCH_VERSION))

    async def log_in(self, name: str, password: str = PASSWORD) -> ErrorCode:
        """Log in by SCRAM, and return the error of the last token."""
        handshake: Any = load_request_schema(_HANDSHAKE, 1)
        await self.frames.ask(handshake(mechanism="SCRAM-SHA-256"), load_response_schema(_HANDSHAKE, 1))
        scram = AiokafkaScram("SCRAM-SHA-256", name, password)
        first = await self._token(scram.first())
        return ErrorCode((await self._token(scram.final(first.auth_bytes))).error_code)

    async def _token(self, token: bytes) -> Any:  # noqa: ANN401 - of kio
        request: Any = load_request_schema(_AUTHENTICATE, 2)
        return await self.frames.ask(request(auth_bytes=token), load_response_schema(_AUTHENTICATE, 2))


class DayVisitors:
    """All clients of one endpoint; the clock moves while each of them waits for time."""

    def __init__(self, endpoint: ReadEndpoint, clock: ManualClock, rows: FaultyKeyValueStore) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._rows = rows
        self._waiting = 0
        self._left_open = list[FrameClient]()
        self.resident: tuple[VisitorConnection, FakeConsumer] | None = None

    def stories(self, number: int) -> "list[Coroutine[object, object, None]]":
        """Return the stories of one round; ``unlucky`` comes apart from them, for its fault may meet any of them."""
        return [
            self.consumer(number),
            self.member_that_vanishes(number),
            self.stranger(number),
            self.greedy(),
            self.held(number),
            self.lost_fetch(),
            self.noise(),
        ]

    async def play(self, *stories: "Coroutine[object, object, None]") -> None:
        """Return when the stories have ended."""
        async with asyncio.TaskGroup() as group:
            pending = {group.create_task(story) for story in stories}
            while pending:
                _, pending = await asyncio.wait(pending, timeout=0.005)
                if pending and len(pending) == self._waiting:
                    self._clock.advance(1.0)

    # ---------------------------------------------------------------------------------------------------- stories

    async def consumer(self, number: int) -> None:
        """Log in, join a group of several rounds, read everything in a session, wait at the end, commit, and leave."""
        async with self._connected("LOGIN") as connection:
            assert await connection.log_in("etl") is ErrorCode.none
            await self._join_and_read(connection, FakeConsumer(connection, group=f"app-{number % 5}"), leaves=True)

    async def member_that_vanishes(self, number: int) -> None:
        """Commit in a group of this round only, and go away without a word."""
        async with self._connected("OPEN") as connection:
            await self._join_and_read(connection, FakeConsumer(connection, group=f"once-{number}"), leaves=False)

    async def stranger(self, number: int) -> None:
        """Log in with a wrong password, under a name of this round."""
        failures = self._endpoint.parts.access.statistics
        before = failures().failed_logins
        async with self._connected("LOGIN") as connection:
            login = asyncio.ensure_future(connection.log_in(f"stranger-{number}"))
            await eventually(lambda: failures().failed_logins > before, what="the failure")
            with self._in_need_of_time():
                assert await login is ErrorCode.sasl_authentication_failed

    async def greedy(self) -> None:
        """Ask faster than the quota allows."""
        async with self._connected("LOGIN") as connection:
            assert await connection.log_in("greedy") is ErrorCode.none
            for _ in range(15):
                with self._in_need_of_time():
                    await connection.answer(ListGroupsRequest(states_filter=()), ListGroupsResponse)

    async def held(self, number: int) -> None:
        """Ask while the quarantine holds the principal back, for topics of this round that there are not."""
        async with self._connected("LOGIN") as connection:
            assert await connection.log_in("held") is ErrorCode.none
            answer = await connection.fetch(Want(TOPIC), Want(f"none-{number}"), session=(0, 0))
            assert all(each.partitions[0].error_code is not ErrorCode.none for each in answer.responses)
            missing = (MetadataRequestTopic(name=TopicName(f"none-{number}")),)
            request = replace(sample(MetadataRequest), topics=missing)
            found = await connection.answer(request, MetadataResponse)
            assert found.topics[0].error_code is ErrorCode.unknown_topic_or_partition

    async def lost_fetch(self) -> None:
        """Go away while a Fetch waits for records."""
        async with self._connected("OPEN") as connection:
            wants = [Want(TOPIC, number, offset=await self._end(number)) for number in range(PARTITIONS)]
            sleeping = self._clock.sleeping
            await connection.frames.send(fetch_request(wants, version=_FETCH_VERSION, max_wait_ms=600_000))
            await eventually(lambda: self._clock.sleeping > sleeping, what="the wait")

    async def noise(self) -> None:
        """Send what is no request, half a request, and nothing; the last two stay open until they are cut."""
        async with self._connected("OPEN") as connection:
            await connection.frames.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
            assert await connection.frames.is_closed()
        for content in (b"\0\0\1\0\0\1", b""):
            frames = await self._connect("OPEN")
            self._left_open.append(frames)
            await frames.send_bytes(content)

    async def unlucky(self, number: int) -> None:
        """Ask for offsets behind the end, and commit while the store fails."""
        async with self._connected("OPEN") as connection:
            answer = await connection.fetch(Want(TOPIC, 1, offset=10**9 + number), Want(TOPIC, 9))
            codes = {part.error_code for topic in answer.responses for part in topic.partitions}
            assert codes == {ErrorCode.offset_not_available, ErrorCode.unknown_topic_or_partition}
            self._rows.apply_faults.append(Fault.FAIL)
            await FakeConsumer(connection, group=f"unlucky-{number}").commit(1)
            self._rows.apply_faults.clear()

    # -------------------------------------------------------------------------------------------- who stays longer

    async def move_in(self) -> None:
        """Connect a member that stays for some hours."""
        connection = VisitorConnection(await self._connect("OPEN"))
        consumer = FakeConsumer(connection, "resident", group="residents", instance_id="resident")
        assert await consumer.join(session_s=LONG_SESSION_S) is ErrorCode.none
        await consumer.sync({consumer.member_id: b"all"})
        self.resident = (connection, consumer)

    async def beat(self) -> None:
        """Let the member that stays show that it is alive."""
        if self.resident is not None:
            assert await self.resident[1].beat() is ErrorCode.none

    async def move_out(self) -> None:
        """Close all connections that were left open; the endpoint has cut all but one."""
        if self.resident is not None:
            await self.resident[0].frames.close()
        self.resident = None
        for frames in self._left_open:
            assert await frames.is_closed()
            await frames.close()
        self._left_open.clear()

    # -------------------------------------------------------------------------------------------------- their parts

    async def _join_and_read(self, connection: VisitorConnection, consumer: FakeConsumer, *, leaves: bool) -> None:
        with self._in_need_of_time():
            assert await consumer.join(session_s=LONG_SESSION_S) is ErrorCode.none
            await consumer.sync({consumer.member_id: b"all"})
        wants = [Want(TOPIC, number) for number in range(PARTITIONS)]
        answer = await connection.fetch(*wants, session=(0, 0))
        assert answer.session_id
        ends = [Want(TOPIC, number, offset=await self._end(number)) for number in range(PARTITIONS)]
        with self._in_need_of_time():
            answer = await connection.fetch(*ends, session=(answer.session_id, 1), max_wait_ms=500)
        assert answer.error_code is ErrorCode.none
        assert await consumer.commit(7) is ErrorCode.none
        if leaves:
            assert await consumer.leave() is ErrorCode.none

    async def _end(self, number: int) -> int:
        served = self._endpoint.parts.partitions
        log = served.log(served.topics[TOPIC].partitions[number].partition)
        assert log is not None
        return (await log.bounds()).high_watermark

    async def _connect(self, listener: str) -> FrameClient:
        node = self._endpoint.parts.partitions.cluster(listener).nodes[0]
        return FrameClient(*await asyncio.open_connection(node.host, node.port))

    @contextlib.asynccontextmanager
    async def _connected(self, listener: str) -> AsyncIterator[VisitorConnection]:
        async with AsyncExitStack() as stack:
            frames = await self._connect(listener)
            stack.push_async_callback(frames.close)
            yield VisitorConnection(frames)

    @contextmanager
    def _in_need_of_time(self) -> Iterator[None]:
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
