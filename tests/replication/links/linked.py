"""A push listener on this host for tests, links to it, and a peer that sends any bytes."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from tests.fakes.manual_clock import ManualClock
from tests.services.certificates import Authority, Certificate
from tierd.clock import Clock, SystemClock
from tierd.config import PushTlsSettings
from tierd.ports import ConnectionGate, ConnectionLimits
from tierd.replication.links.link_identity import LinkIdentity
from tierd.replication.links.link_limits import LinkLimits
from tierd.replication.links.node_certificates import NodeCertificates
from tierd.replication.links.peer_connector import PeerConnector
from tierd.replication.links.peer_link import PeerLink
from tierd.replication.links.push_listener import PushListener, PushListenPlan
from tierd.replication.links.served_link import LinkHandler
from tierd.replication.model.messages import (
    AppendRecordsRequest,
    AppendRecordsResponse,
    AssignmentsRequest,
    AssignmentsResponse,
    EpochEndOffsetsRequest,
    EpochEndOffsetsResponse,
    FetchRecordsRequest,
    FetchRecordsResponse,
    LogBoundsRequest,
    LogBoundsResponse,
    PartitionAppend,
    PartitionAppendResult,
    PushApi,
    RecordBytes,
)
from tierd.replication.model.push_session import PeerIdentity, PeerNode
from tierd.replication.wire.message_schemas import PushRequest, PushResponse
from tierd.replication.wire.push_frames import decode_push_response, encode_push_request

CLUSTER: Final = "cluster-A"
LEADER: Final = LinkIdentity(cluster_id=CLUSTER, node_id=1, process_epoch=50, software_version="1.0")
STANDBY: Final = LinkIdentity(cluster_id=CLUSTER, node_id=2, process_epoch=70, software_version="1.0")
TOPIC_ID: Final = UUID(int=7)
DEADLINE_S: Final = 30.0


def append_request(*records: RecordBytes, leader_id: int = LEADER.node_id) -> AppendRecordsRequest:
    """Return a request with one partition."""
    partition = PartitionAppend(
        topic_id=TOPIC_ID, partition=3, leader_epoch=1, session_id=2, append_offset=4, last_epoch=1, records=records
    )
    return AppendRecordsRequest(
        cluster_id=CLUSTER, leader_id=leader_id, leader_process_epoch=50, replica_epoch=70, partitions=(partition,)
    )


@dataclass
class RecordingStandby:
    """Handlers that keep what they get.

    Attributes:
        appended: sizes of the records of each append.
        peers: the asking process of each request.
        gate: open while appends and long polls end at once.
        cancelled: types of the requests whose handler was cancelled.
        is_broken: True makes the handler of appends raise a bug.
    """

    appended: list[int] = field(default_factory=list)
    peers: list[PeerIdentity] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: list[type] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    is_broken: bool = False

    def __post_init__(self) -> None:
        self.gate.set()

    async def append(self, request: AppendRecordsRequest, peer: PeerIdentity) -> AppendRecordsResponse:
        """Acknowledge the number of bytes."""
        if self.is_broken:
            raise RuntimeError("a bug")
        await self._wait(request)
        self.peers.append(peer)
        sizes = [sum(map(len, each.records or ())) for each in request.partitions]
        self.appended += sizes
        results = [
            PartitionAppendResult(topic_id=each.topic_id, partition=each.partition, error_code=0, log_end_offset=size)
            for each, size in zip(request.partitions, sizes, strict=True)
        ]
        return AppendRecordsResponse(partitions=tuple(results))

    async def fetch(self, request: FetchRecordsRequest, peer: PeerIdentity) -> FetchRecordsResponse:
        """Answer with nothing."""
        await self._wait(request)
        self.peers.append(peer)
        return FetchRecordsResponse(throttle_ms=request.max_wait_ms)

    async def epochs(self, request: EpochEndOffsetsRequest, peer: PeerIdentity) -> EpochEndOffsetsResponse:
        """Answer with nothing."""
        self.peers.append(peer)
        return EpochEndOffsetsResponse(error_code=len(request.partitions))

    async def bounds(self, request: LogBoundsRequest, peer: PeerIdentity) -> LogBoundsResponse:
        """Answer with nothing."""
        self.peers.append(peer)
        return LogBoundsResponse(error_code=len(request.partitions))

    async def assignments(self, request: AssignmentsRequest, peer: PeerIdentity) -> AssignmentsResponse:
        """Answer with the version that is known."""
        await self._wait(request)
        self.peers.append(peer)
        return AssignmentsResponse(version=request.known_version)

    @property
    def handlers(self) -> Mapping[type, LinkHandler]:
        """Return the handlers by type."""
        return {
            AppendRecordsRequest: self.append,
            FetchRecordsRequest: self.fetch,
            EpochEndOffsetsRequest: self.epochs,
            LogBoundsRequest: self.bounds,
            AssignmentsRequest: self.assignments,
        }

    async def _wait(self, request: object) -> None:
        self.begun.set()
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(type(request))
            raise


@dataclass(frozen=True)
class RunningListener:
    """A listener that runs in a task."""

    listener: PushListener
    standby: RecordingStandby
    port: int
    task: asyncio.Task[None]

    @property
    def node(self) -> PeerNode:
        """Return the address of the standby."""
        return PeerNode(STANDBY.node_id, "127.0.0.1", self.port)

    async def link(
        self,
        me: LinkIdentity = LEADER,
        *,
        certificates: NodeCertificates | None = None,
        limits: LinkLimits | None = None,
    ) -> PeerLink:
        """Connect as ``me``."""
        return await PeerConnector(me, certificates=certificates, limits=limits).open(self.node)


@asynccontextmanager
async def running_listener(
    *,
    clock: Clock | None = None,
    certificates: NodeCertificates | None = None,
    limits: LinkLimits | None = None,
    places: int = 32,
    handlers: Mapping[type, LinkHandler] | None = None,
) -> AsyncIterator[RunningListener]:
    """Run a listener of the standby on a port of this host."""
    clock = clock or ManualClock()
    standby = RecordingStandby()
    gate = ConnectionGate(ConnectionLimits(connections=places, per_peer=places), clock=clock, is_short=lambda: False)
    plan = PushListenPlan(host="127.0.0.1", port=0, certificates=certificates)
    chosen = standby.handlers if handlers is None else handlers
    listener = PushListener(plan, STANDBY, chosen, gate, clock=clock, limits=limits)
    _, port = await listener.bind()
    task = asyncio.create_task(listener.run(), name="listener")
    try:
        yield RunningListener(listener, standby, port, task)
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        listener.close()


class RawPeer:
    """Peer that sends any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def say(self, request: PushRequest, *, correlation_id: int = 0) -> None:
        """Send a request."""
        pieces = encode_push_request(request, correlation_id=correlation_id, client_id="raw")
        await self.send(b"".join(map(bytes, pieces)))

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, api: PushApi) -> PushResponse:
        """Return the next answer."""
        async with asyncio.timeout(DEADLINE_S):
            size = await self._reader.readexactly(4)
            frame = await self._reader.readexactly(int.from_bytes(size, "big"))
        return decode_push_response(api, memoryview(frame))[1]

    async def is_closed(self) -> bool:
        """Return True once the listener has closed the connection; False if it sends something."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return not await self._reader.read(1)
            except ConnectionError:
                return True


@asynccontextmanager
async def raw_peer(port: int, *, says_hello: bool = False) -> AsyncIterator[RawPeer]:
    """Connect."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    peer = RawPeer(reader, writer)
    try:
        if says_hello:
            await peer.say(LEADER.hello(PushApi))
            await peer.answer(PushApi.HELLO)
        yield peer
    finally:
        writer.transport.abort()
        await asyncio.wait({asyncio.ensure_future(_ended(writer))})


async def _ended(writer: asyncio.StreamWriter) -> None:
    try:
        await writer.wait_closed()
    except OSError:
        return


@asynccontextmanager
async def scripted_listener(*answers: Any) -> AsyncIterator[tuple[PeerNode, list[bytes]]]:  # noqa: ANN401 - bytes or a callable
    """Listen with a peer that answers the frames of a connection with these bytes, one after the other, then nothing.

    Also return the frames that it got.
    """
    got: list[bytes] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = iter(answers)
        try:
            while size := await reader.read(4):
                got.append(await reader.readexactly(int.from_bytes(size, "big")))
                writer.write(next(script, b""))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield PeerNode(STANDBY.node_id, "127.0.0.1", port), got


class Nodes:
    """Certificates of nodes, signed by one authority."""

    def __init__(self, folder: Path, name: str = "cluster") -> None:
        self.authority = Authority(folder, name)

    def settings(self, certificate: Certificate, *, trusts: "Nodes | None" = None, **rest: object) -> PushTlsSettings:
        """Return the settings of a daemon with a certificate, which trusts this authority or another."""
        ca_file = (trusts or self).authority.ca_file
        files = {"certificate_file": certificate.cert_file, "key_file": certificate.key_file, "ca_file": ca_file}
        return PushTlsSettings.model_validate({**files, **rest})

    def certificate(self, identity: LinkIdentity, **rest: Any) -> Certificate:  # noqa: ANN401 - as Authority.issue
        """Sign the certificate of a node on this host."""
        return self.authority.issue(
            f"node-{identity.node_id}", hosts=("127.0.0.1",), uris=(str(identity.name),), **rest
        )

    async def of(self, identity: LinkIdentity, **rest: Any) -> NodeCertificates:  # noqa: ANN401 - as Authority.issue
        """Return the loaded certificates of a node."""
        return await loaded(self.settings(self.certificate(identity, **rest)))


async def loaded(settings: PushTlsSettings) -> NodeCertificates:
    """Return certificates that were read."""
    certificates = NodeCertificates(lambda: settings, clock=SystemClock())
    await certificates.load()
    return certificates
