"""PullChanges: carries out what the answers of leaders ask for, one partition at a time."""

from collections.abc import Awaitable, Callable

import structlog

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.replication.follower.record_intake import RecordIntake
from tierd.replication.follower.rules.followed_partition import LeaderQuestion
from tierd.replication.follower.rules.log_facts import FollowerLog, FollowerLogFacts, LogChange, LogMatch
from tierd.replication.follower.rules.pull_answers import (
    loses_every_record,
    rebuild_if_cleaned,
    take_change_failure,
    take_failure,
)
from tierd.replication.follower.rules.record_runs import BadRecordsError, read_batches
from tierd.replication.follower.standby_replicas import StandbyReplica
from tierd.replication.model.messages import PartitionFetchResult

_LOG = structlog.get_logger(__name__)

Decision = Callable[[FollowerLogFacts], LogChange | None]
"""Rule of ``pull_answers`` with an answer; called with the log as it is when nothing else changes it."""


KeepLostCopy = Callable[[StandbyReplica], Awaitable[None]]
"""Sets the log of a replica aside and begins another one; called without the lock of the replica."""


class PullStatistics:
    """Counters since the start."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.fetched_bytes = 0
        self.truncations_below_high_watermark = 0
        self.truncated_records = 0
        self.restarts = 0
        self.discarded_answers = 0


class PullChanges:
    """The one place where answers of leaders change logs. For one event loop."""

    def __init__(self, intake: RecordIntake, *, clock: Clock, keep_lost_copy: KeepLostCopy) -> None:
        """Prepare; ``keep_lost_copy`` is called where a leader without any record would empty a log."""
        self.intake = intake
        self.statistics = PullStatistics()
        self._clock = clock
        self._keep_lost_copy = keep_lost_copy

    async def match(self, replica: StandbyReplica, result: PartitionFetchResult) -> LogMatch | None:
        """Compare records of the leader with the log of a replica.

        Returns None where there are none, or they cannot be compared now: then the replica pauses. A damaged batch of
        either log, which ``tierd verify`` finds, does not keep the log from following its leader.
        """
        log = replica.usable_log
        if log is None:
            return None
        try:
            theirs = read_batches(result.records, may_be_torn=True)
            return await log.compare(theirs) if theirs.headers else None
        except BadRecordsError as error:
            if replica.followed.fail_comparison():
                _LOG.warning("leader_not_compared", partition=str(replica.partition), error=str(error))
                return LogMatch(log.facts.log_end_offset, agrees=False)
            replica.note(str(error))
        except TierError as error:
            if not error.retriable:
                _LOG.warning("copy_not_compared", partition=str(replica.partition), error=str(error))
                return LogMatch(log.facts.log_end_offset, agrees=False)
            replica.note(error)
        replica.followed.pause(now_s=self._clock.monotonic_s())
        return None

    async def take(self, replica: StandbyReplica, question: LeaderQuestion, decide: Decision) -> None:
        """Carry out an answer to ``question``, unless the answer does not count any more."""
        async with replica.lock:
            is_lost = await self._decide(replica, question, decide)
        if is_lost:
            await self._keep_lost_copy(replica)

    async def _decide(self, replica: StandbyReplica, question: LeaderQuestion, decide: Decision) -> bool:
        """Decide and carry out; return True if nothing was done, because the log is to be set aside as a whole."""
        log = replica.usable_log
        if log is None or not replica.followed.is_current(question, log.facts):
            self.statistics.discarded_answers += 1
            return False
        try:
            change = decide(log.facts)
        except BadRecordsError as error:
            replica.note(str(error))
            take_failure(replica.followed, error.code, now_s=self._clock.monotonic_s())
            return False
        if change is None:
            replica.last_error = ""
            return False
        if loses_every_record(replica.followed, change, log.facts):
            _LOG.error("leader_lost_every_record", partition=str(replica.partition), leader=question.leader.node_id)
            take_change_failure(replica.followed, change, now_s=self._clock.monotonic_s())
            return True
        try:
            await self._keep_lost_records(replica, log, change, leader_id=question.leader.node_id)
        except TierError as error:
            self._fail(replica, change, error)
            return not error.retriable  # a damaged batch; a disk that fails takes the log offline
        if replica.followed.leader != question.leader:  # meanwhile; it may have the records
            self.statistics.discarded_answers += 1
            return False
        await self._carry_out(replica, log, change)
        return False

    async def _keep_lost_records(
        self, replica: StandbyReplica, log: FollowerLog, change: LogChange, *, leader_id: int
    ) -> None:
        """Copy committed records that a truncation would remove: no other log may have them."""
        facts, offset = log.facts, change.truncate_to
        if offset is None or offset >= facts.high_watermark or facts.is_empty or replica.kept == (offset, facts):
            return
        where = {"partition": str(replica.partition), "leader": leader_id, "offset": offset}
        _LOG.error("leader_lost_committed_records", **where, high_watermark=facts.high_watermark)
        directory = await log.copy_aside(offset)
        replica.kept = offset, facts
        if directory is not None:
            _LOG.warning("lost_records_kept", **where, log_end_offset=facts.log_end_offset, directory=str(directory))

    def _fail(self, replica: StandbyReplica, change: LogChange, error: TierError) -> None:
        replica.note(error)
        take_change_failure(replica.followed, change, now_s=self._clock.monotonic_s())
        _LOG.warning("follower_change_failed", partition=str(replica.partition), error=str(error))

    async def _carry_out(self, replica: StandbyReplica, log: FollowerLog, change: LogChange) -> None:
        before = log.facts
        if not change.needs_disk:
            if change.high_watermark is not None:
                log.set_high_watermark(change.high_watermark)
            replica.last_error = ""
            return
        try:
            if change.truncate_to is not None and before.is_compacted:
                cleaned_to = await log.cleaned_to()
                if rebuild_if_cleaned(replica.followed, change, before, cleaned_to=cleaned_to):
                    return
            replica.kept = None
            await log.apply(change)
        except TierError as error:
            self._fail(replica, change, error)
            return
        replica.last_error = ""
        self._count(replica, change, before)

    def _count(self, replica: StandbyReplica, change: LogChange, before: FollowerLogFacts) -> None:
        statistics = self.statistics
        statistics.fetched_bytes += change.size_bytes
        new_end = change.restart_at if change.truncate_to is None else change.truncate_to
        if new_end is None or (change.truncate_to is not None and new_end >= before.log_end_offset):
            return
        fields = {"partition": str(replica.partition), "offset": new_end, "log_end_offset": before.log_end_offset}
        if change.restart_at is not None and change.truncate_to is None:
            statistics.restarts += 1
            _LOG.warning("follower_log_begun_again", **fields)
            return
        statistics.truncated_records += before.log_end_offset - new_end
        if new_end < before.high_watermark:
            statistics.truncations_below_high_watermark += 1
            _LOG.warning("truncated_below_high_watermark", **fields, high_watermark=before.high_watermark)
        else:
            _LOG.info("follower_log_truncated", **fields)
