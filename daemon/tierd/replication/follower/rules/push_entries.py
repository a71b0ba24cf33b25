"""Decision about each entry of an AppendRecords request (push-replication 2.9, steps 2 to 10, and 2.11): pure."""

from dataclasses import dataclass

from tierd.replication.follower.rules.append_rules import AppendRefusal, has_records, place_records
from tierd.replication.follower.rules.followed_partition import FetchStage, FollowedPartition
from tierd.replication.follower.rules.log_facts import FollowerLogFacts, LogChange
from tierd.replication.follower.rules.record_runs import BadRecordsError, LeaderBatches, check_order
from tierd.replication.model.messages import DivergingEpoch, PartitionAppend
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.replication_state import FINAL_SESSION_ID, UNKNOWN_SESSION_ID

# The leader ends its session at these answers without a signal, so that the follower ends it too.
_ENDS_SESSION = frozenset({PushErrorCode.INVALID_RECORD, PushErrorCode.KAFKA_STORAGE_ERROR})


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendVerdict:
    """Decision about an entry; ``change`` is carried out before the answer."""

    code: PushErrorCode = PushErrorCode.NONE
    diverging: DivergingEpoch | None = None
    change: LogChange | None = None


def judge_entry(
    followed: FollowedPartition, entry: PartitionAppend, log: FollowerLogFacts, *, sender_id: int, now_s: float
) -> AppendVerdict:
    """Decide about an entry, and change the follower's mode accordingly: a session begins before its first append.

    Args:
        followed: the follower's state.
        entry: of the request.
        log: no other change of the log is under way.
        sender_id: node id of the leader that sent the request.
        now_s: monotonic time.
    """
    refusal = _check_leader(followed, entry, sender_id) or _check_session(followed, entry)
    if refusal is not None:
        return AppendVerdict(code=refusal)
    if entry.end_session:
        return _end_session(followed, entry, now_s=now_s)
    if followed.is_pushed and not has_records(entry):
        return _accept(followed, entry, _nothing(log), log, now_s=now_s)
    return _judge_records(followed, entry, log, now_s=now_s)


def _check_leader(followed: FollowedPartition, entry: PartitionAppend, sender_id: int) -> PushErrorCode | None:
    leader = followed.leader
    if leader is None or entry.leader_epoch > leader.leader_epoch:
        return PushErrorCode.UNKNOWN_LEADER_EPOCH
    if entry.leader_epoch < leader.leader_epoch:
        return PushErrorCode.FENCED_LEADER_EPOCH
    return None if sender_id == leader.node_id else PushErrorCode.NOT_LEADER_OR_FOLLOWER


def _check_session(followed: FollowedPartition, entry: PartitionAppend) -> PushErrorCode | None:
    mine = followed.session_id
    if entry.session_id > mine:
        return PushErrorCode.INVALID_REQUEST
    if entry.session_id < mine:
        return None if entry.end_session else PushErrorCode.STALE_REPLICATION_SESSION
    if followed.is_pushed or entry.end_session:
        return None
    if mine in (UNKNOWN_SESSION_ID, FINAL_SESSION_ID):
        return PushErrorCode.STALE_REPLICATION_SESSION
    return PushErrorCode.FOLLOWER_BUSY if followed.stage is FetchStage.REBUILDING else None


def _end_session(followed: FollowedPartition, entry: PartitionAppend, *, now_s: float) -> AppendVerdict:
    if has_records(entry):
        return AppendVerdict(code=PushErrorCode.INVALID_REQUEST)
    if followed.is_pushed and entry.session_id == followed.session_id:
        followed.enter_pull(FetchStage.FETCHING, now_s=now_s)
    return AppendVerdict()


def _judge_records(
    followed: FollowedPartition, entry: PartitionAppend, log: FollowerLogFacts, *, now_s: float
) -> AppendVerdict:
    try:
        place = place_records(entry, log)
        if isinstance(place, AppendRefusal):
            return _refuse(followed, place, now_s=now_s)
        if not followed.is_pushed:
            if not place.is_at_end:  # records that are there, of a session that has not begun
                return AppendVerdict()
            followed.enter_push()
        change = _nothing(log)
        if place.batches is not None:
            change = append_of(place.batches, place.restart_at, log, leader_epoch=entry.leader_epoch)
    except BadRecordsError as error:
        return _refuse(followed, AppendRefusal(error.code), now_s=now_s)
    return _accept(followed, entry, change, log, now_s=now_s)


def take_append_failure(followed: FollowedPartition, code: int, *, now_s: float) -> None:
    """Take note that the change of an accepted entry failed; the session ends where the leader ends it silently."""
    if code in _ENDS_SESSION:
        followed.enter_pull(FetchStage.FETCHING, now_s=now_s)


def append_of(batches: LeaderBatches, restart_at: int | None, log: FollowerLogFacts, *, leader_epoch: int) -> LogChange:
    """Return the append of checked batches at the log end, or at ``restart_at``.

    Raises:
        BadRecordsError: offsets or epochs are not in order, or a checksum is wrong.
    """
    start = log.log_end_offset if restart_at is None else restart_at
    # A batch of a lower epoch than the last record's would cut the lineage of the records that are there.
    check_order(batches, from_offset=start, from_epoch=log.last_epoch, leader_epoch=leader_epoch)
    runs = batches.runs(max_bytes=log.max_append_bytes)
    return LogChange(
        expected_end=log.log_end_offset,
        end_offset=batches.next_offset,
        restart_at=restart_at,
        records=runs,
        headers=batches.headers if len(runs) == 1 and not batches.headers[0].position else None,
    )


def _refuse(followed: FollowedPartition, refusal: AppendRefusal, *, now_s: float) -> AppendVerdict:
    if refusal.code is PushErrorCode.LOG_DIVERGED:
        followed.enter_pull(FetchStage.TRUNCATING, now_s=now_s)
    take_append_failure(followed, refusal.code, now_s=now_s)
    return AppendVerdict(code=refusal.code, diverging=refusal.diverging)


def _accept(
    followed: FollowedPartition, entry: PartitionAppend, change: LogChange, log: FollowerLogFacts, *, now_s: float
) -> AppendVerdict:
    followed.heard_s = now_s
    followed.leader_end_offset = change.end_offset
    followed.sync.on_pushed(now_s)
    followed.bounds.on_pushed(high_watermark=entry.high_watermark, log_start_offset=entry.log_start_offset)
    return AppendVerdict(change=followed.bounds.complete(change, log))


def _nothing(log: FollowerLogFacts) -> LogChange:
    return LogChange(expected_end=log.log_end_offset, end_offset=log.log_end_offset)
