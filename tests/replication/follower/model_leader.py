"""ModelLeader: a leader in memory that answers as Kafka's does, and a loop that has a follower catch up with it."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from tests.fakes.memory_follower_log import MemoryFollowerLog
from tests.replication.follower.following import TOPIC_ID, batch
from tierd.model import EpochEndOffset
from tierd.replication.follower.rules.followed_partition import FollowedPartition, LeaderQuestion, QuestionKind
from tierd.replication.follower.rules.log_comparison import LogComparison
from tierd.replication.follower.rules.log_facts import FollowerLog, FollowerLogFacts, LogChange, LogMatch
from tierd.replication.follower.rules.pull_answers import (
    take_bounds,
    take_compared,
    take_epoch_end,
    take_failure,
    take_fetched,
)
from tierd.replication.follower.rules.record_runs import LeaderBatches, read_batches
from tierd.replication.follower.rules.truncation_rules import LeaderBounds
from tierd.replication.model.messages import DivergingEpoch, PartitionFetchResult, RecordBytes
from tierd.replication.model.push_error_code import PushErrorCode

ENOUGH_ROUNDS = 200


class ModelLeader:
    """Leader of one partition, whose log is a ``MemoryFollowerLog``.

    Attributes:
        version: of the log; 0 for a leader of an earlier tierd, which has none.
    """

    def __init__(self, log: MemoryFollowerLog | None = None, *, topic_id: UUID = TOPIC_ID) -> None:
        self.log = log or MemoryFollowerLog()
        self.topic_id = topic_id
        self.max_batches = 3
        self.version = 0

    def lead(self, epoch: int) -> None:
        """Begin an epoch, also where no record follows."""
        self.log.lineage = self.log.lineage.assign(epoch=epoch, start_offset=self.log.log_end_offset)

    def append(self, *batches: bytes) -> None:
        """Append batches at the log end."""
        for each in batches:
            self.log._append(each)

    def append_new(self, count: int, *, epoch: int, records: int = 1, value: bytes = b"value") -> None:
        """Append ``count`` new batches."""
        for _ in range(count):
            self.append(batch(self.log.log_end_offset, records, epoch=epoch, value=value))

    def epoch_end(self, epoch: int) -> EpochEndOffset:
        return self.log.facts.end_offset_for(epoch)

    def bounds(self) -> LeaderBounds:
        latest = self.log.lineage.latest
        return LeaderBounds(self.log.log_start_offset, self.log.log_end_offset, -1 if latest is None else latest.epoch)

    def lose_tail(self, batches: int) -> None:
        """Lose the last batches, and keep the leader epoch; the log has another version."""
        if batches:
            kept = self.log.batches[:-batches]
            self.log._truncate(kept[-1].last_offset + 1 if kept else self.log.log_start_offset)
        self.version += 1

    def fetch_compared(self, start: int) -> PartitionFetchResult:
        """Answer a fetch of records that are compared."""
        return replace(self.fetch(start, -1, compared_version=self.version), log_version=self.version)

    def fetch(
        self, offset: int, last_epoch: int, *, partition: int = 0, compared_version: int = 0
    ) -> PartitionFetchResult:
        """Answer a fetch, in Kafka's order of checks; a standby that has yet to compare its log gets the version."""
        log = self.log

        def answer(
            code: int = 0, diverging: DivergingEpoch | None = None, records: Sequence[RecordBytes] = ()
        ) -> PartitionFetchResult:
            return PartitionFetchResult(
                topic_id=self.topic_id,
                partition=partition,
                error_code=code,
                high_watermark=log.high_watermark,
                log_start_offset=log.log_start_offset,
                log_end_offset=log.log_end_offset,
                diverging=diverging,
                records=records,
            )

        if last_epoch >= 0:
            end = self.epoch_end(last_epoch)
            if end.end_offset < 0 or offset < log.log_start_offset:
                return answer(PushErrorCode.OFFSET_OUT_OF_RANGE)
            if end.epoch < last_epoch or end.end_offset < offset:
                return answer(diverging=DivergingEpoch(end.epoch, end.end_offset))
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return answer(PushErrorCode.OFFSET_OUT_OF_RANGE)
        if compared_version != self.version:
            return replace(answer(), log_version=self.version)
        found = [each.data for each in log.batches if each.last_offset >= offset]
        return answer(records=found[: self.max_batches])

    def answer(
        self, followed: FollowedPartition, question: LeaderQuestion, log: FollowerLogFacts, *, now_s: float
    ) -> LogChange | None:
        """Return the change that the follower makes of the answer to its question."""
        match question.kind:
            case QuestionKind.EPOCH_END:
                return take_epoch_end(followed, self.epoch_end(question.epoch), log)
            case QuestionKind.BOUNDS:
                return take_bounds(followed, self.bounds(), log, now_s=now_s)
            case QuestionKind.RECORDS:
                result = self.fetch(question.log_end_offset, question.epoch, compared_version=question.compared_version)
                if result.error_code:
                    take_failure(followed, result.error_code, now_s=now_s)
                    return None
                return take_fetched(followed, result, log, now_s=now_s)


def catch_up(
    followed: FollowedPartition, leader: ModelLeader, log: MemoryFollowerLog, *, rounds: int = ENOUGH_ROUNDS
) -> bool:
    """Have a follower ask until it has the leader's end; return False if it had not after ``rounds`` questions."""
    now_s = 1000.0
    for _ in range(rounds):
        now_s += 10
        question = followed.question(log.facts, now_s=now_s)
        if question is None:
            continue
        is_at_end = question.kind is QuestionKind.RECORDS and _is_answered_with_nothing(leader, question)
        if question.comparison is not None:
            start, result, batches = compare_once(log, leader, question.comparison)
            match = log.match(batches) if batches.headers else None
            change = answer_compared(followed, result, match, log.facts, start=start, now_s=now_s)
        else:
            change = leader.answer(followed, question, log.facts, now_s=now_s)
        if change is not None:
            log.change(change)
        if is_at_end:
            return True
    return False


def compare_once(
    log: FollowerLog, leader: ModelLeader, comparison: LogComparison
) -> tuple[int, PartitionFetchResult, LeaderBatches]:
    """Fetch the range of a comparison; return its first offset, the answer and its batches."""
    start = comparison.start
    if start is None:
        start = max(log.start_before(comparison.below, comparison.size_bytes), comparison.lowest_offset)
    result = leader.fetch_compared(start)
    return start, result, read_batches(result.records)


def answer_compared(
    followed: FollowedPartition,
    result: PartitionFetchResult,
    match: LogMatch | None,
    log: FollowerLogFacts,
    *,
    start: int,
    now_s: float,
) -> LogChange | None:
    """Return the change that the follower makes of the answer about a range that is compared."""
    if result.error_code:
        take_failure(followed, result.error_code, now_s=now_s)
        return None
    return take_compared(followed, result, match, log, start=start)


def _is_answered_with_nothing(leader: ModelLeader, question: LeaderQuestion) -> bool:
    if question.comparison is not None:
        return False
    result = leader.fetch(question.log_end_offset, question.epoch, compared_version=question.compared_version)
    return not (result.error_code or result.diverging or result.records or result.log_version)
