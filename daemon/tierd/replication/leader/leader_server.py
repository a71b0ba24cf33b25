"""PushLeaderServer: handlers of the push listener for the questions of standbys (push-replication 3.2).

Only a standby that a partition is sent to gets answers about it (3.5). The node id of a request has to be that of the
certificate, and its replica epoch that of the Hello.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tierd.clock import Clock
from tierd.replication.leader.assignments import LeaderAssignments
from tierd.replication.leader.fetch_polls import FetchPolls, ReplicatorLookup, StandbyFetchLimits, in_turns
from tierd.replication.model.messages import (
    AssignmentsRequest,
    AssignmentsResponse,
    EpochEndOffsetResult,
    EpochEndOffsetsRequest,
    EpochEndOffsetsResponse,
    EpochQuery,
    FetchRecordsRequest,
    FetchRecordsResponse,
    LogBoundsRequest,
    LogBoundsResponse,
    LogBoundsResult,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity

PushHandler = Callable[[Any, PeerIdentity], Awaitable[object]]


class PushLeaderServer:
    """Answers for all partitions that this node leads. Made on the event loop.

    Attributes:
        polls: of the standbys that fetch.
    """

    def __init__(
        self,
        led: ReplicatorLookup,
        assignments: LeaderAssignments,
        *,
        clock: Clock,
        limits: StandbyFetchLimits | None = None,
    ) -> None:
        """Answer for the partitions of ``led``."""
        self._led = led
        self._assignments = assignments
        self.polls = FetchPolls(led, limits or StandbyFetchLimits(), clock=clock)

    @property
    def handlers(self) -> Mapping[type, PushHandler]:
        """Return the handlers by the type of the request."""
        return {
            FetchRecordsRequest: self.fetch_records,
            EpochEndOffsetsRequest: self.epoch_end_offsets,
            LogBoundsRequest: self.log_bounds,
            AssignmentsRequest: self.assignments,
        }

    async def fetch_records(self, request: FetchRecordsRequest, peer: PeerIdentity) -> FetchRecordsResponse:
        """Answer a long poll for records."""
        if request.replica_id != peer.node_id:
            return FetchRecordsResponse(error_code=PushErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if request.replica_epoch != peer.process_epoch:
            return FetchRecordsResponse(error_code=PushErrorCode.STALE_BROKER_EPOCH)
        return await self.polls.answer(request, peer)

    async def epoch_end_offsets(self, request: EpochEndOffsetsRequest, peer: PeerIdentity) -> EpochEndOffsetsResponse:
        """Answer the question for the ends of epochs."""
        if request.replica_id != peer.node_id:
            return EpochEndOffsetsResponse(error_code=PushErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        results = [self._epoch_end(query, peer) async for query in in_turns(request.partitions)]
        return EpochEndOffsetsResponse(partitions=tuple(results))

    async def log_bounds(self, request: LogBoundsRequest, peer: PeerIdentity) -> LogBoundsResponse:
        """Answer the question for start and end of logs."""
        if request.replica_id != peer.node_id:
            return LogBoundsResponse(error_code=PushErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        results = [self._log_bounds(query, peer) async for query in in_turns(request.partitions)]
        return LogBoundsResponse(partitions=tuple(results))

    async def assignments(self, request: AssignmentsRequest, peer: PeerIdentity) -> AssignmentsResponse:
        """Answer a long poll for the partitions that are sent to the standby."""
        return await self._assignments.answer(request, peer)

    def _epoch_end(self, query: EpochQuery, peer: PeerIdentity) -> EpochEndOffsetResult:
        replicator = self._led.find(query.topic_id, query.partition)
        if replicator is None:
            code = PushErrorCode.UNKNOWN_TOPIC_ID
            return EpochEndOffsetResult(topic_id=query.topic_id, partition=query.partition, error_code=code)
        return replicator.answers.epoch_end_offset(query, peer)

    def _log_bounds(self, query: EpochQuery, peer: PeerIdentity) -> LogBoundsResult:
        replicator = self._led.find(query.topic_id, query.partition)
        if replicator is None:
            code = PushErrorCode.UNKNOWN_TOPIC_ID
            return LogBoundsResult(topic_id=query.topic_id, partition=query.partition, error_code=code)
        return replicator.answers.log_bounds(query, peer)
