"""A leader of partitions in memory: its led partitions, and the handlers for its standbys."""

import asyncio
from uuid import UUID

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.replication.leader.memory_leader_log import MemoryLeaderLog
from tests.replication.leader.push_story import PushStory
from tests.replication.leader.replicating import RoutedPushes
from tierd.model import TopicIdPartition
from tierd.replication.leader.assignments import LeaderAssignments
from tierd.replication.leader.fetch_polls import StandbyFetchLimits
from tierd.replication.leader.leader_server import PushLeaderServer
from tierd.replication.leader.led_replicators import LedReplicators
from tierd.replication.leader.replicas.replicator_settings import ReplicatorSettings
from tierd.replication.model.messages import FetchRecordsRequest, FetchRecordsResponse, ReplicaFetch
from tierd.replication.model.push_session import PeerIdentity, PeerNode
from tierd.replication.model.replication_state import FINAL_SESSION_ID

TOPIC_ID = UUID(int=1)
PEER = PeerIdentity(1, 100)
NODE = PeerNode(1, "host1", 9406)
EPOCH = 1


class LedSetup:
    """Leader whose logs are in memory. Its standbys fetch with push switched off, unless a session id is given."""

    def __init__(self, limits: StandbyFetchLimits | None = None) -> None:
        self.clock = ManualClock()
        self.story = PushStory()
        self.pushes = RoutedPushes(self.story)
        self.assignments = LeaderAssignments(self.clock)
        self.led = LedReplicators(
            self.pushes, self.assignments, ReplicatorSettings(), process_epoch=1, clock=self.clock
        )
        self.server = PushLeaderServer(self.led, self.assignments, clock=self.clock, limits=limits)

    def lead(self, partition: int = 0, *nodes: PeerNode, topic_id: UUID = TOPIC_ID) -> MemoryLeaderLog:
        """Lead a partition whose standbys are ``nodes``, node 1 by default."""
        log = MemoryLeaderLog(TopicIdPartition(topic_id, "orders", partition), leader_epoch=EPOCH)
        self.led.lead(log, nodes or (NODE,), raise_high_watermark=log.raise_high_watermark)
        return log

    async def fetch(
        self,
        *fetches: ReplicaFetch,
        peer: PeerIdentity = PEER,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> FetchRecordsResponse:
        """Have a standby fetch; by default it does not wait."""
        request = FetchRecordsRequest(
            replica_id=peer.node_id,
            replica_epoch=peer.process_epoch,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            partitions=fetches,
        )
        return await self.server.fetch_records(request, peer)

    async def begin_poll(self, *fetches: ReplicaFetch, min_bytes: int = 1) -> "asyncio.Task[FetchRecordsResponse]":
        """Return a poll of 5 s that waits."""
        before = self.clock.sleeping
        polling = asyncio.create_task(self.fetch(*fetches, max_wait_ms=5000, min_bytes=min_bytes), name="poll")
        await eventually(lambda: self.clock.sleeping > before, what="the poll to wait")
        return polling


def fetch_of(
    partition: int = 0,
    offset: int = 0,
    *,
    last_epoch: int = EPOCH,
    session_id: int = FINAL_SESSION_ID,
    max_bytes: int = 1 << 20,
    topic_id: UUID = TOPIC_ID,
    leader_epoch: int = EPOCH,
    compared_version: int = -1,
    is_comparison: bool = False,
) -> ReplicaFetch:
    """Return the fetch of a partition, by a standby whose last record is of ``last_epoch``."""
    return ReplicaFetch(
        topic_id=topic_id,
        partition=partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch if offset else -1,
        log_start_offset=0,
        max_bytes=max_bytes,
        session_id=session_id,
        compared_version=compared_version,
        is_comparison=is_comparison,
    )
