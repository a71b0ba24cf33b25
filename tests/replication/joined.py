"""A leader with owned logs and a standby, both whole, in one process: their messages pass through the codec."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self
from uuid import UUID

from tests.fakes.eventually import eventually
from tests.log.cleaning.cleaners import own_log_rules
from tests.log.logs import records
from tierd.clock import SystemClock
from tierd.errors import TierError
from tierd.log import LogConfig, LogManager, LogManagerSettings, LogService, PartitionWriter, UnifiedLog
from tierd.model import TopicIdPartition
from tierd.replication.follower.leader_connection import FollowerRequest
from tierd.replication.follower.pull_fetcher import PullSettings
from tierd.replication.follower.standby import Standby
from tierd.replication.follower.standby_identity import StandbyIdentity
from tierd.replication.follower.standby_memory import StandbyMemory
from tierd.replication.follower.standby_settings import StandbySettings
from tierd.replication.follower.standby_topics import StandbyTopics
from tierd.replication.leader.assignments import LeaderAssignments
from tierd.replication.leader.leader_server import PushLeaderServer
from tierd.replication.leader.led_replicators import LedReplicators
from tierd.replication.leader.logs.open_segments import OpenSegments, whole_batches_end
from tierd.replication.leader.logs.owned_leader_log import OwnedLeaderLog
from tierd.replication.leader.logs.record_memory import batch_bounds
from tierd.replication.leader.pushing.push_actions import PushLeader
from tierd.replication.leader.pushing.push_manager import PushManager
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.replicas.replicator_settings import ReplicatorSettings
from tierd.replication.model.messages import AppendRecordsRequest, AppendRecordsResponse
from tierd.replication.model.push_session import PeerIdentity, PeerNode
from tierd.replication.wire.push_frames import (
    api_of,
    decode_push_request,
    decode_push_response,
    encode_push_request,
    encode_push_response,
)

LEADER: Final = PushLeader("cluster", 1, 50)
STANDBY: Final = PeerNode(2, "standby", 9406)
STANDBY_EPOCH: Final = 100
TOPIC_ID: Final = UUID(int=7)
CONFIG: Final = LogConfig(segment_bytes=4000, retention_ms=-1)

Handler = Callable[[Any, PeerIdentity], Awaitable[Any]]


class CodedChannel:
    """Connection whose requests and answers are encoded and decoded on their way."""

    def __init__(self, link: "Link", handler: Handler, asking: PeerIdentity, answering: PeerIdentity) -> None:
        self._link = link
        self._handler = handler
        self._asking = asking
        self._answering = answering
        link.channels.add(self)
        self._closed = asyncio.Event()

    @property
    def peer_process_epoch(self) -> int:
        return self._answering.process_epoch

    async def ask(self, request: Any, timeout_s: float) -> Any:  # noqa: ANN401 - any request, and its answer
        """Return the answer of the other side.

        Raises:
            TierError: the connection was closed.
        """
        api = api_of(request)
        frame = b"".join(encode_push_request(request, correlation_id=1, client_id="test"))
        received = decode_push_request(memoryview(frame)[4:]).request
        answering = asyncio.ensure_future(self._handler(received, self._asking))
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.wait({answering, closing}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() or self._closed.is_set():
                raise TierError("the connection is closed")
            answer = b"".join(encode_push_response(api, answering.result(), correlation_id=1))
        finally:
            closing.cancel()
            answering.cancel()
        return decode_push_response(api, memoryview(answer)[4:])[1]

    def break_off(self) -> None:
        """Break, as a connection does that is reset."""
        self._closed.set()

    async def close(self) -> None:
        self._link.channels.discard(self)
        self.break_off()


class Link:
    """Network between the two: up or down."""

    def __init__(self) -> None:
        self.is_up = True
        self.channels: set[CodedChannel] = set()

    def cut(self) -> None:
        """Break all connections, and let none be made."""
        self.is_up = False
        for channel in list(self.channels):
            channel.break_off()

    def open(self, handler: Handler, *, asking: PeerIdentity, answering: PeerIdentity) -> CodedChannel:
        """Connect.

        Raises:
            ConnectionRefusedError: the link is down.
        """
        if not self.is_up:
            raise ConnectionRefusedError("the link is down")
        return CodedChannel(self, handler, asking, answering)


class JoinedPair:
    """Leader 1 and standby 2. Entered, both run."""

    def __init__(self, directory: Path, **push: float) -> None:
        self.clock = SystemClock()
        self.link = Link()
        self._directory = directory
        self._push_settings = PushSettings(**push)  # type: ignore[arg-type]
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self.leader_identity = PeerIdentity(LEADER.node_id, LEADER.process_epoch)
        self.standby_identity = PeerIdentity(STANDBY.node_id, STANDBY_EPOCH)

    async def __aenter__(self) -> Self:
        self.leader_logs = await self._stack.enter_async_context(self._service("leader", lambda _: CONFIG))
        await self._begin_leader()
        await self._begin_standby()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        self.led.close()
        self.push.shutdown()
        await self.push.wait_closed()
        self.segments.close()
        await self._stack.aclose()

    async def lead(self, topic: str = "orders", partition: int = 0, *, topic_id: UUID = TOPIC_ID) -> OwnedLeaderLog:
        """Lead a partition, in leader epoch 1."""
        led = TopicIdPartition(topic_id, topic, partition)
        writer = await self.leader_logs.get_or_create(led.topic_partition, topic_id=topic_id)
        log = await OwnedLeaderLog.open(led, writer, self.segments, leader_epoch=1)
        self.led.lead(log, [STANDBY], raise_high_watermark=log.raise_high_watermark)
        return log

    async def append(self, log: OwnedLeaderLog, count: int = 1, *, size: int = 20) -> None:
        """Append batches of one record each."""
        writer = self.leader_logs.writer(log.partition.topic_partition)
        data = records(value=bytes(size))
        await asyncio.gather(*(writer.append_as_leader(data, leader_epoch=log.leader_epoch) for _ in range(count)))

    async def same_content(self, log: OwnedLeaderLog) -> None:
        """Return when the copy has what the leader has, and its watermark."""
        name = log.partition.topic_partition
        leading = self.leader_logs.writer(name)

        def is_same() -> bool:
            with suppress(TierError):
                copy = self.standby_logs.writer(name).log
                ends = {each.log_end_offset for each in (leading.log, copy)}
                return len(ends | {each.high_watermark for each in (leading.log, copy)}) == 1
            return False

        await eventually(is_same, what=f"the copy of {name}: {self.led.statuses()}, {self.standby.status()}")
        assert await _content(self.standby_logs.writer(name)) == await _content(leading)

    async def pushed(self, log: OwnedLeaderLog) -> None:
        """Return when both sides are in push mode."""

        def is_pushed() -> bool:
            statuses = [each for each in self.led.statuses() if each.partition == log.partition]
            modes = [each.mode for each in self.standby.status().replicas]
            return all(not each.why_not_pushed for each in statuses) and all(modes)

        await eventually(is_pushed, what=f"a session: {self.led.statuses()}, {self.standby.status()}")

    async def _begin_leader(self) -> None:
        settings = self._push_settings
        self.segments = OpenSegments()
        self.assignments = LeaderAssignments(self.clock)
        self.push = PushManager(
            settings,
            LEADER,
            self._to_standby,
            on_leadership_doubted=self._doubt,
        )
        replicator_settings = ReplicatorSettings(
            transition_max_lag_bytes=settings.transition_max_lag_bytes,
            replica_lag_time_max_s=settings.replica_lag_time_max_s,
        )
        self.led = LedReplicators(
            self.push, self.assignments, replicator_settings, process_epoch=LEADER.process_epoch, clock=self.clock
        )
        self.server = PushLeaderServer(self.led, self.assignments, clock=self.clock)
        self.push.startup()
        self._tasks.append(asyncio.create_task(self.led.run(), name="led replicators"))

    async def _begin_standby(self) -> None:
        state_dir = self._directory / "state"
        state_dir.mkdir()
        memory = StandbyMemory.load(state_dir)
        topics = StandbyTopics(memory.topics, flush="never", flush_interval_s=1)
        self.standby_logs = await self._stack.enter_async_context(self._service("standby", topics.config_for))
        self.standby = Standby(
            StandbyIdentity(cluster_id="cluster", node_id=STANDBY.node_id, process_epoch=STANDBY_EPOCH),
            self.standby_logs,
            self._to_leader,
            topics=topics,
            memory=memory,
            clock=self.clock,
            settings=StandbySettings(state_dir=state_dir, fetch=PullSettings(max_wait_s=0.1)),
        )
        self.standby.set_leaders([LEADER.node_id])
        self._tasks.append(asyncio.create_task(self.standby.run(), name="standby"))

    def _doubt(self, partition: TopicIdPartition, leader_epoch: int) -> None:
        self.led.doubt_leadership(partition, leader_epoch)

    async def _to_standby(self, node: PeerNode) -> CodedChannel:
        assert node == STANDBY

        async def handle(request: AppendRecordsRequest, peer: PeerIdentity) -> AppendRecordsResponse:
            return await self.standby.append_records(request, peer)

        return self.link.open(handle, asking=self.leader_identity, answering=self.standby_identity)

    async def _to_leader(self, node_id: int) -> CodedChannel:
        assert node_id == LEADER.node_id

        async def handle(request: FollowerRequest, peer: PeerIdentity) -> object:
            return await self.server.handlers[type(request)](request, peer)

        return self.link.open(handle, asking=self.standby_identity, answering=self.leader_identity)

    def _service(self, name: str, config_for: Callable[[str], LogConfig]) -> LogService:
        log_dir = self._directory / name
        log_dir.mkdir()
        manager = LogManager([log_dir], LogManagerSettings(config_for=config_for, clock=self.clock))
        return LogService(manager, clock=self.clock, rewriting=own_log_rules())


async def _content(writer: PartitionWriter) -> bytes:
    def read(log: UnifiedLog) -> bytes:
        data, offset = b"", log.log_start_offset
        while offset < log.log_end_offset:
            found = bytes(log.read(offset, max_bytes=1 << 20, isolation=None).records)
            end = whole_batches_end(found)  # a read ends anywhere in a batch, as a fetch does
            assert end > 0, f"no whole batch at offset {offset}"
            data += found[:end]
            *_, last = batch_bounds(found[:end])
            offset = last.next_offset
        return data

    return await writer.read(read)
