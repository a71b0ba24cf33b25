"""FakeLeaders: leaders of a standby that answer its requests from logs in memory, without a network."""

import asyncio
from contextlib import suppress
from uuid import UUID

from tests.replication.follower.model_leader import ModelLeader
from tierd.replication.follower.leader_connection import FollowerRequest
from tierd.replication.model.messages import (
    AssignedPartition,
    AssignmentsRequest,
    AssignmentsResponse,
    DeletedReplica,
    EpochEndOffsetResult,
    EpochEndOffsetsRequest,
    EpochEndOffsetsResponse,
    FetchRecordsRequest,
    FetchRecordsResponse,
    LogBoundsRequest,
    LogBoundsResponse,
    LogBoundsResult,
    PartitionFetchResult,
)
from tierd.replication.model.push_error_code import PushErrorCode

HELD_S = 0.03
"""Real time for which a leader holds a fetch back that has no records."""


class FakeLeader:
    """One node: its partitions, what it announces, and the requests that it got."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.partitions: dict[tuple[UUID, int], ModelLeader] = {}
        self.announced: list[AssignedPartition] = []
        self.deleted: list[DeletedReplica] = []
        self.version = 0
        self.is_away = False
        self.fetches: list[FetchRecordsRequest] = []
        self.refuses: dict[tuple[UUID, int], PushErrorCode] = {}
        self.changed = asyncio.Event()

    def announce(
        self,
        topic: str,
        topic_id: UUID,
        *,
        epoch: int,
        partition: int = 0,
        config: tuple[tuple[str, str], ...] = (),
    ) -> ModelLeader:
        """Lead a partition from now on; return its log."""
        self.announced = [each for each in self.announced if (each.topic, each.partition) != (topic, partition)]
        assigned = AssignedPartition(
            topic=topic, topic_id=topic_id, partition=partition, leader_epoch=epoch, config=config
        )
        self.announced.append(assigned)
        leader = self.partitions.setdefault((topic_id, partition), ModelLeader(topic_id=topic_id))
        self.tell()
        return leader

    def delete(self, topic_id: UUID, partition: int = 0) -> None:
        """Announce the deletion of a partition."""
        self.announced = [each for each in self.announced if (each.topic_id, each.partition) != (topic_id, partition)]
        self.deleted.append(DeletedReplica(topic_id, partition))
        self.partitions.pop((topic_id, partition), None)
        self.tell()

    def tell(self) -> None:
        """Answer the requests that wait."""
        self.version += 1
        self.changed.set()
        self.changed = asyncio.Event()

    async def answer(self, request: FollowerRequest) -> object:
        """Answer a request; an assignment is held back until there is a change, a fetch for a short time."""
        if self.is_away:
            raise ConnectionRefusedError("nobody listens")
        match request:
            case AssignmentsRequest():
                while request.known_version == self.version:
                    await self.changed.wait()
                return AssignmentsResponse(
                    version=self.version, partitions=tuple(self.announced), deleted=tuple(self.deleted)
                )
            case EpochEndOffsetsRequest():
                return EpochEndOffsetsResponse(
                    partitions=tuple(
                        self._epoch_end(each.topic_id, each.partition, each.epoch) for each in request.partitions
                    )
                )
            case LogBoundsRequest():
                return LogBoundsResponse(
                    partitions=tuple(self._bounds(each.topic_id, each.partition) for each in request.partitions)
                )
            case FetchRecordsRequest():
                return await self._fetch(request)

    async def _fetch(self, request: FetchRecordsRequest) -> FetchRecordsResponse:
        self.fetches.append(request)
        results = [
            self._fetch_one(each.topic_id, each.partition, each.fetch_offset, each.last_fetched_epoch)
            for each in request.partitions
        ]
        if not any(each.records or each.error_code or each.diverging for each in results):
            with suppress(TimeoutError):
                async with asyncio.timeout(HELD_S):
                    await self.changed.wait()
        return FetchRecordsResponse(partitions=tuple(results))

    def _fetch_one(self, topic_id: UUID, partition: int, offset: int, epoch: int) -> PartitionFetchResult:
        leader = self.partitions.get((topic_id, partition))
        code = self.refuses.get((topic_id, partition), PushErrorCode.NOT_LEADER_OR_FOLLOWER)
        if leader is None or (topic_id, partition) in self.refuses:
            return PartitionFetchResult(topic_id=topic_id, partition=partition, error_code=code)
        return leader.fetch(offset, epoch, partition=partition)

    def _epoch_end(self, topic_id: UUID, partition: int, epoch: int) -> EpochEndOffsetResult:
        leader = self.partitions.get((topic_id, partition))
        if leader is None:
            code = PushErrorCode.NOT_LEADER_OR_FOLLOWER
            return EpochEndOffsetResult(topic_id=topic_id, partition=partition, error_code=code)
        end = leader.epoch_end(epoch)
        return EpochEndOffsetResult(
            topic_id=topic_id, partition=partition, error_code=0, epoch=end.epoch, end_offset=end.end_offset
        )

    def _bounds(self, topic_id: UUID, partition: int) -> LogBoundsResult:
        bounds = self.partitions[topic_id, partition].bounds()
        return LogBoundsResult(
            topic_id=topic_id,
            partition=partition,
            error_code=0,
            log_start_offset=bounds.log_start_offset,
            log_end_offset=bounds.log_end_offset,
            end_epoch=bounds.end_epoch,
        )


class FakeLeaders:
    """Several nodes, and the connections to them."""

    def __init__(self, *node_ids: int) -> None:
        self.nodes = {node_id: FakeLeader(node_id) for node_id in node_ids}
        self.open_channels = 0

    async def open_channel(self, node_id: int) -> "FakeChannel":
        """Connect to a node."""
        if self.nodes[node_id].is_away:
            raise ConnectionRefusedError("nobody listens")
        self.open_channels += 1
        return FakeChannel(self, self.nodes[node_id])


class FakeChannel:
    """Connection to one node."""

    def __init__(self, leaders: FakeLeaders, node: FakeLeader) -> None:
        self._leaders = leaders
        self._node = node

    async def ask(self, request: FollowerRequest, timeout_s: float) -> object:
        assert timeout_s > 0
        return await self._node.answer(request)

    async def close(self) -> None:
        self._leaders.open_channels -= 1
