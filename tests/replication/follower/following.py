"""A follower of one partition for tests of the rules: entries and answers go in, the log and the answers come out."""

from uuid import UUID

from tests.fakes.memory_follower_log import MemoryFollowerLog
from tierd.errors import CorruptRecordError
from tierd.log import NewRecord, encode_batch
from tierd.model import TopicIdPartition
from tierd.replication.follower.rules.followed_partition import (
    FetchStage,
    FollowedPartition,
    FollowerTimes,
    LeaderClaim,
)
from tierd.replication.follower.rules.push_entries import judge_entry, take_append_failure
from tierd.replication.model.messages import DivergingEpoch, PartitionAppend, PartitionAppendResult
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.replication_state import ReplicationMode, ReplicationState

TOPIC_ID = UUID(int=7)
PARTITION = TopicIdPartition(TOPIC_ID, "orders", 0)
LEADER_ID = 1
EPOCH = 7


def batch(
    base_offset: int, count: int = 1, *, epoch: int = EPOCH, value: bytes = b"value", key: bytes = b"key"
) -> bytes:
    """Return one batch of ``count`` records."""
    return encode_batch([NewRecord(key, value, 1000)] * count, base_offset=base_offset, leader_epoch=epoch)


def entry(
    *,
    append_offset: int = -1,
    last_epoch: int = -1,
    session_id: int = 0,
    leader_epoch: int = EPOCH,
    high_watermark: int = -1,
    log_start_offset: int = -1,
    end_session: bool = False,
    records: bytes | None = None,
    topic_id: UUID = TOPIC_ID,
    partition: int = 0,
) -> PartitionAppend:
    """Return an entry of an AppendRecords request."""
    return PartitionAppend(
        topic_id=topic_id,
        partition=partition,
        leader_epoch=leader_epoch,
        session_id=session_id,
        append_offset=append_offset,
        last_epoch=last_epoch,
        high_watermark=high_watermark,
        log_start_offset=log_start_offset,
        end_session=end_session,
        records=None if records is None else [records],
    )


class Following:
    """A follower of node 1 at leader epoch 7, with a log in memory."""

    def __init__(self, *, now_s: float = 100.0, times: FollowerTimes | None = None) -> None:
        self.now_s = now_s
        self.log = MemoryFollowerLog()
        self.followed = FollowedPartition(PARTITION, now_s=now_s, times=times)
        self.followed.follow(LeaderClaim(LEADER_ID, EPOCH), now_s=now_s)
        self.followed.stage = FetchStage.FETCHING

    def fill(self, *batches: bytes) -> "Following":
        """Put batches into the log."""
        for each in batches:
            self.log._append(each)
        return self

    def in_state(self, mode: ReplicationMode, session_id: int) -> "Following":
        """Set the mode and the session id."""
        self.followed.state = ReplicationState(mode, session_id)
        self.followed.heard_s = self.now_s
        return self

    def push(self, sent: PartitionAppend, *, sender_id: int = LEADER_ID) -> PartitionAppendResult:
        """Return the answer to an entry, as ``FollowerAppender`` gives it."""
        verdict = judge_entry(self.followed, sent, self.log.facts, sender_id=sender_id, now_s=self.now_s)
        code: PushErrorCode = verdict.code
        if verdict.change is not None:
            try:
                self.log.change(verdict.change)
            except CorruptRecordError:
                code = PushErrorCode.CORRUPT_MESSAGE
                take_append_failure(self.followed, code, now_s=self.now_s)
        return PartitionAppendResult(
            topic_id=sent.topic_id,
            partition=sent.partition,
            error_code=code,
            log_end_offset=self.log.log_end_offset,
            log_start_offset=self.log.log_start_offset,
            session_id=self.followed.session_id,
            diverging=verdict.diverging,
        )

    @property
    def mode(self) -> ReplicationMode:
        return self.followed.state.mode


def diverging(epoch: int, end_offset: int) -> DivergingEpoch:
    """Return the values of a divergence."""
    return DivergingEpoch(epoch, end_offset)
