"""Decision about each answer to a question of pull mode (push-replication 2.12): pure."""

from dataclasses import replace

from tierd.model import EpochEndOffset
from tierd.replication.follower.rules.followed_partition import NOT_COMPARED, FetchStage, FollowedPartition
from tierd.replication.follower.rules.log_comparison import LogComparison
from tierd.replication.follower.rules.log_facts import FollowerLogFacts, LogChange, LogMatch
from tierd.replication.follower.rules.push_entries import append_of
from tierd.replication.follower.rules.record_runs import read_batches
from tierd.replication.follower.rules.truncation_rules import (
    KeepLog,
    LeaderBounds,
    RestartAt,
    Truncation,
    resolve_out_of_range,
    truncate_by_epoch,
)
from tierd.replication.model.messages import PartitionFetchResult
from tierd.replication.model.push_error_code import PushErrorCode


def take_epoch_end(followed: FollowedPartition, answer: EpochEndOffset, log: FollowerLogFacts) -> LogChange:
    """Return the truncation after the leader's answer about the last epoch of the log."""
    return _truncation(followed, truncate_by_epoch(answer, log, held_offset=log.high_watermark), log)


def take_bounds(
    followed: FollowedPartition, bounds: LeaderBounds, log: FollowerLogFacts, *, now_s: float
) -> LogChange | None:
    """Return the change after the leader's answer about start and end of its log; None where the log stays."""
    followed.leader_end_offset = bounds.log_end_offset
    if followed.stage is FetchStage.REBUILDING:
        return _restart(followed, bounds.log_start_offset, log, now_s=now_s)
    match resolve_out_of_range(bounds, log):
        case RestartAt(offset):
            return _restart(followed, offset, log, now_s=now_s)
        case Truncation() as truncation:
            return _truncation(followed, truncation, log)
        case KeepLog():
            followed.stage = FetchStage.FETCHING
            followed.pause(now_s=now_s)
            return None


def take_fetched(
    followed: FollowedPartition, result: PartitionFetchResult, log: FollowerLogFacts, *, now_s: float
) -> LogChange | None:
    """Return the change that a fetch without an error asks for; None for none. With ``diverging`` it is a truncation.

    Raises:
        BadRecordsError: the records cannot be taken.
    """
    if result.diverging is not None:
        end = EpochEndOffset(result.diverging.epoch, result.diverging.end_offset)
        return _truncation(followed, truncate_by_epoch(end, log, held_offset=log.log_end_offset), log)
    if result.log_version:
        _begin_comparison(followed, result, log)
        return None
    change = _records_of(followed, result, log)
    if change.truncate_to is not None:
        return change
    followed.leader_end_offset = max(result.log_end_offset, change.end_offset)
    followed.sync.on_leader_end(followed.leader_end_offset, log_end=change.end_offset, now_s=now_s)
    followed.bounds.on_fetched(high_watermark=result.high_watermark, log_start_offset=result.log_start_offset)
    if result.push_started:
        followed.pause(now_s=now_s, for_s=followed.times.started_pause_s)
    completed = followed.bounds.complete(change, log)
    return completed if completed.needs_disk or completed.high_watermark is not None else None


def take_compared(
    followed: FollowedPartition,
    result: PartitionFetchResult,
    match: LogMatch | None,
    log: FollowerLogFacts,
    *,
    start: int,
) -> LogChange | None:
    """Return the truncation after a comparison; None where there is none yet, or no difference.

    Args:
        followed: the follower's state.
        result: answer of the leader, with its records.
        match: of these records with the log; None where there were none, or they could not be compared now.
        log: the log.
        start: first offset that was asked for.
    """
    comparison = followed.comparison
    if comparison is None or result.log_version != comparison.version or result.log_end_offset <= start:
        followed.end_comparison()  # the leader's log was cut back meanwhile
        return None
    if match is None:
        return None
    is_lowest = start <= max(log.log_start_offset, result.log_start_offset)
    if match.differs_at is None and match.next_offset < comparison.below:
        followed.comparison = replace(comparison, start=match.next_offset)
        return None
    differs_at = comparison.differs_at if match.differs_at is None else match.differs_at
    if differs_at is None:
        followed.agree_with(comparison.version)
        return None
    if not match.agrees and not is_lowest:
        followed.comparison = comparison.go_down(start, differs_at)
        return None
    followed.end_comparison()
    return _truncation(followed, Truncation(differs_at, is_done=True), log)


def take_failure(followed: FollowedPartition, code: int, *, now_s: float) -> None:
    """Take note of an error in the answer to a question."""
    comparison = followed.comparison
    if comparison is not None and code == PushErrorCode.KAFKA_STORAGE_ERROR:
        is_last = followed.fail_comparison()
        if is_last and comparison.differs_at is None:
            followed.agree_with(comparison.version)  # as far as the leader can read its log
            return
    followed.end_comparison()
    if code == PushErrorCode.OFFSET_OUT_OF_RANGE and followed.stage is FetchStage.FETCHING:
        followed.stage = FetchStage.OUT_OF_RANGE
    else:
        followed.pause(now_s=now_s)


def take_change_failure(followed: FollowedPartition, change: LogChange, *, now_s: float) -> None:
    """Take note that a change was not carried out, or only in part: the log is compared with its leader's again."""
    if change.restart_at is not None and not change.records:
        followed.sync.forget()  # the records of before may still be there
    followed.compared_version = NOT_COMPARED
    if not followed.is_pushed:
        followed.stage = FetchStage.TRUNCATING
        followed.pause(now_s=now_s)


def loses_every_record(followed: FollowedPartition, change: LogChange, log: FollowerLogFacts) -> bool:
    """Return True if a leader without the records of this log would have all of them dropped, replicated ones too.

    That is a leader that lost its disk, or an election of an empty replica: the copy may be the last one there is. A
    leader that deleted the records by its log start loses nothing.
    """
    if log.high_watermark <= log.log_start_offset:
        return False
    if change.truncate_to is not None:
        return change.truncate_to <= log.log_start_offset
    is_begun_again = change.restart_at is not None and not change.records
    return is_begun_again and followed.leader_end_offset < log.high_watermark


def rebuild_if_cleaned(
    followed: FollowedPartition, change: LogChange, log: FollowerLogFacts, *, cleaned_to: int
) -> bool:
    """Return True if a truncation would reach below what the cleaner may have changed; the log then begins again.

    The cleaner removed older records of a key because of a newer one. If a truncation removed the newer one, the log
    would lack the key, and its leader would have it.
    """
    if change.truncate_to is None or not log.is_compacted:
        return False
    if change.truncate_to >= min(max(cleaned_to, log.high_watermark), log.log_end_offset):
        return False
    followed.stage = FetchStage.REBUILDING
    return True


def _records_of(followed: FollowedPartition, result: PartitionFetchResult, log: FollowerLogFacts) -> LogChange:
    end = log.log_end_offset
    fetched = read_batches(result.records, may_be_torn=True)
    _, batches = fetched.split_at(sum(header.last_offset < end for header in fetched.headers))
    if not batches.headers:
        return LogChange(expected_end=end, end_offset=end)
    first = batches.first_offset
    if first < end and not log.is_empty:  # a truncation cut inside a batch, and the log end is not on a boundary
        return LogChange(expected_end=end, end_offset=first, truncate_to=first)
    leader_epoch = -1 if followed.leader is None else followed.leader.leader_epoch
    return append_of(batches, first if first < end else None, log, leader_epoch=leader_epoch)


def _begin_comparison(followed: FollowedPartition, result: PartitionFetchResult, log: FollowerLogFacts) -> None:
    lowest_offset = max(log.log_start_offset, result.log_start_offset)
    if lowest_offset >= log.log_end_offset:
        followed.compared_version = result.log_version  # no record of the log is one of the leader's
        return
    followed.stage = FetchStage.COMPARING
    followed.comparison = LogComparison(
        version=result.log_version,
        log_end_offset=log.log_end_offset,
        lowest_offset=lowest_offset,
        below=log.log_end_offset,
    )


def _truncation(followed: FollowedPartition, truncation: Truncation, log: FollowerLogFacts) -> LogChange:
    followed.stage = FetchStage.FETCHING if truncation.is_done else FetchStage.TRUNCATING
    end = log.log_end_offset
    return LogChange(expected_end=end, end_offset=truncation.offset, truncate_to=truncation.offset)


def _restart(followed: FollowedPartition, offset: int, log: FollowerLogFacts, *, now_s: float) -> LogChange:
    followed.stage = FetchStage.FETCHING
    followed.sync.begin_rebuild(now_s)
    return LogChange(expected_end=log.log_end_offset, end_offset=offset, restart_at=offset)
