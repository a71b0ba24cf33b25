"""FollowerAppender: answers of a standby to AppendRecords requests (push-replication 2.9 to 2.11).

The request is checked first, then each partition by itself under the partition's lock. The decision is that of
``push_entries``; the log's writer carries it out. Entries that need no disk are answered without a task.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.replication.follower.record_intake import RecordIntake, size_of
from tierd.replication.follower.rules.followed_partition import FetchStage
from tierd.replication.follower.rules.log_facts import FollowerLog
from tierd.replication.follower.rules.push_entries import AppendVerdict, judge_entry, take_append_failure
from tierd.replication.follower.service_log import answer_code
from tierd.replication.follower.standby_identity import StandbyIdentity
from tierd.replication.follower.standby_replicas import StandbyReplica, StandbyReplicas
from tierd.replication.model.messages import (
    AppendRecordsRequest,
    AppendRecordsResponse,
    PartitionAppend,
    PartitionAppendResult,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity

_LOG = structlog.get_logger(__name__)


class AppendStatistics:
    """Counters of the answers since the start: ``errors`` by code, and the bytes and entries that were appended."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.errors: dict[int, int] = {}
        self.appended_bytes = 0
        self.entries = 0
        self.duplicates = 0


class FollowerAppender:
    """Handler of AppendRecords requests of all leaders. For one event loop."""

    def __init__(
        self,
        identity: StandbyIdentity,
        replicas: StandbyReplicas,
        intake: RecordIntake,
        *,
        clock: Clock,
        on_unknown_epoch: Callable[[int], None] = lambda _leader_id: None,
    ) -> None:
        """Prepare.

        Args:
            identity: of this standby.
            replicas: the partitions.
            intake: bound on the memory.
            clock: for the silence of leaders.
            on_unknown_epoch: called with the node id of a leader that has a higher epoch than the standby knows.
        """
        self.statistics = AppendStatistics()
        self._identity = identity
        self._replicas = replicas
        self._intake = intake
        self._clock = clock
        self._on_unknown_epoch = on_unknown_epoch
        self._leader_processes: dict[int, int] = {}

    async def append_records(self, request: AppendRecordsRequest, peer: PeerIdentity) -> AppendRecordsResponse:
        """Answer a request of a peer that has proved who it is."""
        sender_id = peer.node_id
        refusal = self._check_request(request, sender_id) or self._check_process(request)
        if refusal is not None:
            _LOG.warning("append_request_refused", leader=request.leader_id, sender=sender_id, code=int(refusal))
            self._count(refusal)
            return AppendRecordsResponse(error_code=refusal)
        if len(request.partitions) > 1:
            return AppendRecordsResponse(partitions=await self._answer_each(request.partitions, sender_id))
        return AppendRecordsResponse(
            partitions=tuple([await self._answer_one(entry, sender_id) for entry in request.partitions])
        )

    async def _answer_one(self, entry: PartitionAppend, sender_id: int) -> PartitionAppendResult:
        """Answer the only entry of a request, which needs no task of its own."""
        begun = self._begin(entry, sender_id)
        if isinstance(begun, PartitionAppendResult):
            return begun
        with self._intake.holding(size_of(entry.records)):
            return await self._append(*begun, entry, sender_id)

    async def _answer_each(
        self, entries: Sequence[PartitionAppend], sender_id: int
    ) -> tuple[PartitionAppendResult, ...]:
        """Answer entries side by side, in their order."""
        answers: list[PartitionAppendResult | asyncio.Task[PartitionAppendResult]] = []
        seen: set[tuple[object, int]] = set()
        async with asyncio.TaskGroup() as group:
            for entry in entries:
                key = (entry.topic_id, entry.partition)
                if key in seen:
                    answers.append(self._answer(entry, PushErrorCode.INVALID_REQUEST))
                    continue
                seen.add(key)
                begun = self._begin(entry, sender_id)
                if isinstance(begun, PartitionAppendResult):
                    answers.append(begun)
                else:
                    answers.append(self._start(group, *begun, entry, sender_id))
        return tuple(each.result() if isinstance(each, asyncio.Task) else each for each in answers)

    def _check_request(self, request: AppendRecordsRequest, sender_id: int) -> PushErrorCode | None:
        if request.leader_id != sender_id:
            return PushErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if request.cluster_id != self._identity.cluster_id:
            return PushErrorCode.INCONSISTENT_CLUSTER_ID
        if not self._identity.admits(request.leader_id):
            return PushErrorCode.CLUSTER_AUTHORIZATION_FAILED
        if request.replica_epoch != self._identity.process_epoch:
            return PushErrorCode.STALE_BROKER_EPOCH
        return None

    def _check_process(self, request: AppendRecordsRequest) -> PushErrorCode | None:
        """End the sessions of a leader's earlier process, which its present one does not know."""
        leader_id, epoch = request.leader_id, request.leader_process_epoch
        known = self._leader_processes.get(leader_id, epoch)
        if epoch < known:
            return PushErrorCode.NOT_LEADER_OR_FOLLOWER
        self._leader_processes[leader_id] = epoch
        if epoch == known:
            return None
        now_s = self._clock.monotonic_s()
        for replica in self._replicas:
            followed = replica.followed
            if followed.is_pushed and followed.leader is not None and followed.leader.node_id == leader_id:
                followed.enter_pull(FetchStage.FETCHING, now_s=now_s)
                self._replicas.wake(replica)
        _LOG.info("leader_restarted", leader=leader_id)
        return None

    def _begin(
        self, entry: PartitionAppend, sender_id: int
    ) -> PartitionAppendResult | tuple[StandbyReplica, FollowerLog]:
        """Answer an entry at once if that is possible; else return the replica and the log that it waits for."""
        replica = self._replicas.get(entry.topic_id, entry.partition)
        if replica is None:
            return self._answer(entry, self._replicas.missing_code(entry.topic_id))
        if replica.log is None:
            return self._answer(entry, replica.unavailable)
        if not replica.log.is_online:
            return self._fail(replica, entry, PushErrorCode.KAFKA_STORAGE_ERROR, "the log dir is offline")
        size_bytes = size_of(entry.records)
        if size_bytes and not self._intake.admits(size_bytes):
            return self._answer(entry, PushErrorCode.FOLLOWER_BUSY, replica)
        is_quick = not size_bytes and not replica.lock.locked() and not _may_raise_start(replica, replica.log, entry)
        if is_quick:
            return self._finish(replica, replica.log, entry, self._judge(replica, replica.log, entry, sender_id))
        return replica, replica.log

    def _start(
        self,
        group: asyncio.TaskGroup,
        replica: StandbyReplica,
        log: FollowerLog,
        entry: PartitionAppend,
        sender_id: int,
    ) -> asyncio.Task[PartitionAppendResult]:
        size_bytes = size_of(entry.records)
        task = group.create_task(self._append(replica, log, entry, sender_id))
        self._intake.take(size_bytes)  # before the next entry asks for room
        task.add_done_callback(lambda _: self._intake.give_back(size_bytes))
        return task

    async def _append(
        self, replica: StandbyReplica, log: FollowerLog, entry: PartitionAppend, sender_id: int
    ) -> PartitionAppendResult:
        async with replica.lock:
            if replica.is_gone:
                return self._answer(entry, self._replicas.missing_code(entry.topic_id))
            verdict = self._judge(replica, log, entry, sender_id)
            return await self._carry_out(replica, log, entry, verdict)

    async def _carry_out(
        self, replica: StandbyReplica, log: FollowerLog, entry: PartitionAppend, verdict: AppendVerdict
    ) -> PartitionAppendResult:
        if verdict.change is not None and verdict.change.needs_disk:
            try:
                await log.apply(verdict.change)
            except TierError as error:
                return self._fail(replica, entry, answer_code(error), error)
            self.statistics.appended_bytes += verdict.change.size_bytes
        return self._finish(replica, log, entry, verdict)

    def _judge(
        self, replica: StandbyReplica, log: FollowerLog, entry: PartitionAppend, sender_id: int
    ) -> AppendVerdict:
        was_pushed = replica.followed.is_pushed
        now_s = self._clock.monotonic_s()
        verdict = judge_entry(replica.followed, entry, log.facts, sender_id=sender_id, now_s=now_s)
        if was_pushed != replica.followed.is_pushed:
            where = {"partition": str(replica.partition), "leader": sender_id, "session": replica.followed.session_id}
            _LOG.info("push_session_begun" if not was_pushed else "push_session_ended", **where)
            self._replicas.wake(replica)
        if verdict.code is PushErrorCode.UNKNOWN_LEADER_EPOCH:
            self._on_unknown_epoch(sender_id)
        return verdict

    def _finish(
        self, replica: StandbyReplica, log: FollowerLog, entry: PartitionAppend, verdict: AppendVerdict
    ) -> PartitionAppendResult:
        change = verdict.change
        if change is not None and not change.needs_disk and change.high_watermark is not None:
            log.set_high_watermark(change.high_watermark)
        self.statistics.entries += 1
        if verdict.code is PushErrorCode.NONE:
            replica.last_error = ""
            if size_of(entry.records) and (change is None or not change.records):
                self.statistics.duplicates += 1
        facts = log.facts
        self._count(verdict.code)
        return PartitionAppendResult(
            topic_id=entry.topic_id,
            partition=entry.partition,
            error_code=verdict.code,
            log_end_offset=facts.log_end_offset,
            log_start_offset=facts.log_start_offset,
            session_id=replica.followed.session_id,
            diverging=verdict.diverging,
        )

    def _fail(
        self, replica: StandbyReplica, entry: PartitionAppend, code: PushErrorCode, error: TierError | str
    ) -> PartitionAppendResult:
        replica.note(error)
        take_append_failure(replica.followed, code, now_s=self._clock.monotonic_s())
        self._replicas.wake(replica)
        _LOG.warning("append_failed", partition=str(replica.partition), code=int(code), error=str(error))
        return self._answer(entry, code, replica)

    def _answer(
        self, entry: PartitionAppend, code: PushErrorCode, replica: StandbyReplica | None = None
    ) -> PartitionAppendResult:
        self._count(code)
        usable = replica.usable_log if replica is not None else None
        return PartitionAppendResult(
            topic_id=entry.topic_id,
            partition=entry.partition,
            error_code=code,
            log_end_offset=-1 if usable is None else usable.facts.log_end_offset,
            session_id=-1 if replica is None else replica.followed.session_id,
        )

    def _count(self, code: PushErrorCode) -> None:
        if code is not PushErrorCode.NONE:
            self.statistics.errors[code] = self.statistics.errors.get(code, 0) + 1


def _may_raise_start(replica: StandbyReplica, log: FollowerLog, entry: PartitionAppend) -> bool:
    return max(entry.log_start_offset, replica.followed.bounds.log_start_offset) > log.facts.log_start_offset
