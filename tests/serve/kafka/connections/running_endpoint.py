"""An endpoint with listeners on this host for tests, and a client that speaks frames."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kio.static.protocol import RequestPayload, ResponsePayload

from tests.fakes.manual_clock import ManualClock
from tests.serve.kafka.kio_messages import decoded_answer, frame, sized
from tierd.serve.kafka.access import PrincipalQuotas
from tierd.serve.kafka.endpoint import KafkaEndpoint
from tierd.serve.kafka.endpoint_limits import EndpointLimits
from tierd.serve.kafka.endpoint_listener import ListenerPlan
from tierd.serve.kafka.endpoint_statistics import ListenerStatistics, RequestRecord
from tierd.serve.kafka.request_context import Handler

PLAIN = ListenerPlan(name="plain", host="127.0.0.1", port=0)
DEADLINE_S = 60.0


class FrameClient:
    """One connection of a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, request: RequestPayload, *, correlation_id: int = 1, client_id: str | None = "client") -> None:
        """Send a request."""
        await self.send_bytes(sized(frame(request, correlation_id=correlation_id, client_id=client_id)))

    async def send_bytes(self, content: bytes) -> None:
        """Send any bytes."""
        self.writer.write(content)
        await self.writer.drain()

    async def receive(self) -> bytes:
        """Return the next frame with its size."""
        async with asyncio.timeout(DEADLINE_S):
            size = await self.reader.readexactly(4)
            return size + await self.reader.readexactly(int.from_bytes(size, "big"))

    async def ask(self, request: RequestPayload, response: type[ResponsePayload]) -> ResponsePayload:
        """Send a request and return its answer."""
        await self.send(request, correlation_id=5)
        correlation_id, answer = decoded_answer(response, await self.receive())
        assert correlation_id == 5
        return answer

    async def is_closed(self) -> bool:
        """Return True when the endpoint has closed the connection; False if it sends something."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return not await self.reader.read(1)
            except ConnectionError:
                return True

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            return


@dataclass
class Records:
    """Recorder that keeps everything."""

    requests: list[RequestRecord] = field(default_factory=list)

    def record(self, request: RequestRecord) -> None:
        """Keep one record."""
        self.requests.append(request)


@dataclass
class RunningEndpoint:
    """An endpoint that listens, its clock and its records."""

    endpoint: KafkaEndpoint
    addresses: Mapping[str, tuple[str, int]]
    clock: ManualClock
    records: Records
    clients: list[FrameClient] = field(default_factory=list)

    async def connect(self, listener: str = "plain", *, tls: ssl.SSLContext | None = None) -> FrameClient:
        """Return a new client, which is closed at the end of the test."""
        host, port = self.addresses[listener]
        name = "localhost" if tls else None
        client = FrameClient(*await asyncio.open_connection(host, port, ssl=tls, server_hostname=name))
        self.clients.append(client)
        return client

    def socket(self, listener: str = "plain") -> socket.socket:
        """Return a new connected socket, which blocks."""
        return socket.create_connection(self.addresses[listener])

    def statistics(self, listener: str = "plain") -> ListenerStatistics:
        """Return the state of one listener."""
        return next(each for each in self.endpoint.statistics().listeners if each.name == listener)

    async def pass_deadline(self, delay_s: float) -> None:
        """Move time on, and let the gate see it: it looks once a second."""
        for _ in range(2):
            self.clock.advance(delay_s)
            await asyncio.sleep(0)
            await asyncio.sleep(0)


@asynccontextmanager
async def running_endpoint(
    handlers: Mapping[int, Handler],
    *listeners: ListenerPlan,
    limits: EndpointLimits | None = None,
    quotas: PrincipalQuotas | None = None,
    is_short: bool = False,
) -> AsyncIterator[RunningEndpoint]:
    """Run an endpoint while the context lasts; it stops without waiting for handlers that do not end."""
    clock, records = ManualClock(), Records()
    endpoint = KafkaEndpoint(
        listeners or (PLAIN,),
        handlers,
        limits=limits or EndpointLimits(),
        quotas=PrincipalQuotas(lambda: ()) if quotas is None else quotas,
        recorder=records,
        clock=clock,
        is_short=lambda: is_short,
    )
    async with asyncio.TaskGroup() as group:
        async with endpoint.listening(group) as addresses:
            running = RunningEndpoint(endpoint, addresses, clock, records)
            try:
                yield running
            finally:
                for client in running.clients:
                    await client.close()
        await asyncio.sleep(0)
