"""Removal of records from a log: at its end (truncation) and at its start (retention, delete records).

Removed files are renamed to ``.deleted`` at once and unlinked after a delay (log-format 7 and 10).
"""

from collections.abc import Callable

import structlog

from tierd.errors import LogError, OffsetOutOfRangeError, TierErrorCode
from tierd.log.log_errors import AppendError
from tierd.log.partition.log_state import LogState
from tierd.log.partition.producer_rebuild import rebuild_producer_state
from tierd.log.partition.retention import (
    Breach,
    DeletionPlan,
    LogFacts,
    Predicate,
    RetentionSegment,
    breaches,
    is_internal_topic,
    log_start_breached,
    plan_deletion,
    size_breached,
    time_breached,
)
from tierd.log.segments.log_segment import LogSegment

HIGH_WATERMARK = -1
"""As the offset of ``delete_records``: everything that may be read."""

_LOG = structlog.get_logger(__name__)


def truncate_to(state: LogState, offset: int, *, now_ms: int) -> bool:
    """Cut the log so that it ends at ``offset``; return whether it was longer (Kafka: UnifiedLog.truncateTo).

    A batch that holds ``offset`` goes as a whole; the log end is ``offset`` all the same.

    Raises:
        ValueError: a negative offset.
        LogError: the segment to cut is damaged, and nothing has changed; or the rest is damaged, and the log takes
            no more calls that change it.
        OSError: the disk failed.
    """
    if offset < 0:
        raise ValueError(f"{state.name}: cannot truncate to {offset}")
    end = state.segments.log_end.offset
    if offset >= end:
        if state.leader_epochs is not None:  # a leader that appended nothing has left its epoch at the end
            state.leader_epochs.truncate_from_end(end)
            state.leader_epochs.write_pending()
        _LOG.info("truncation_without_effect", **state.where, offset=offset, log_end_offset=end)
        return False
    _LOG.info("truncating", **state.where, offset=offset, log_end_offset=end)
    first = state.segments.segments.first
    if first is not None and first.base_offset > offset:
        truncate_fully(state, offset, log_start_offset=offset, now_ms=now_ms)
        return True
    state.offsets.cut_highest_remote(offset)  # first: retention must never take rewritten records for copied ones
    removed = state.segments.truncate_to(offset, now_ms=now_ms)
    state.forget_rolls_above(offset)
    state.delete_snapshots(removed, now_ms=now_ms)
    if state.leader_epochs is not None:
        state.leader_epochs.truncate_from_end(offset)
        state.leader_epochs.write_pending()  # once the log is that long again, no load can tell that they are stale
    offsets = state.offsets
    offsets.reset_log_start(min(offset, offsets.log_start_offset), local=offsets.local_log_start_offset)
    with offsets.lock:
        try:
            _rebuild_producers(state, offset, now_ms)
        finally:
            offsets.follow_log_end()
            offsets.refresh_first_unstable()
            state.report_truncation()
    return True


def truncate_fully(state: LogState, offset: int, *, log_start_offset: int, now_ms: int) -> None:
    """Drop every record and begin again at ``offset`` (Kafka: UnifiedLog.truncateFullyAndStartAt).

    Raises:
        OSError: the disk failed.
    """
    _LOG.info("truncating_fully", **state.where, offset=offset, log_start_offset=log_start_offset)
    state.offsets.cut_highest_remote(offset)
    state.segments.truncate_fully_and_start_at(offset, now_ms=now_ms)
    if state.leader_epochs is not None:
        state.leader_epochs.clear()
    with state.offsets.lock:
        state.producers.truncate_fully_and_start_at(offset)
        state.offsets.reset_log_start(log_start_offset, local=offset if state.is_tiered else None)
        _rebuild_producers(state, offset, now_ms)
        state.offsets.update_high_watermark(state.segments.log_end)
    state.forget_rolls_above(-1)
    state.report_truncation()


def delete_records(state: LogState, offset: int) -> int:
    """Raise the log start to ``offset``; return the new log start. No file changes (log-format 10).

    Args:
        state: the log.
        offset: exclusive; ``HIGH_WATERMARK`` for all that may be read.

    Raises:
        AppendError: an internal topic, or a topic that is only compacted.
        OffsetOutOfRangeError: negative, or above the high watermark.
    """
    if is_internal_topic(state.topic_partition.topic):
        raise AppendError(
            f"{state.name}: records of an internal topic cannot be deleted", code=TierErrorCode.POLICY_VIOLATION
        )
    if "delete" not in state.config.cleanup_policy:
        raise AppendError(f"{state.name}: cleanup.policy does not include delete", code=TierErrorCode.POLICY_VIOLATION)
    wanted = state.offsets.high_watermark.offset if offset == HIGH_WATERMARK else offset
    if wanted < 0:
        raise OffsetOutOfRangeError(f"{state.name}: cannot delete up to {offset}", remedy="ask for an offset, or -1")
    raise_log_start(state, wanted, reason="client delete records request")
    return state.offsets.log_start_offset


def raise_log_start(state: LogState, offset: int, *, reason: str) -> bool:
    """Move the log start up; return whether it moved.

    The recovery point is never below it; so that it says the truth, and a crash that forgets the new log start finds
    whole what lies below, that is flushed first.

    Raises:
        OffsetOutOfRangeError: above the high watermark.
        OSError: the disk failed.
    """
    if state.segments.recovery_point < offset <= state.offsets.high_watermark.offset:
        state.flush(offset)
    if not state.offsets.raise_log_start(offset):
        return False
    _LOG.info("log_start_incremented", **state.where, offset=offset, reason=reason)
    if state.leader_epochs is not None:
        state.leader_epochs.truncate_from_start(offset)
    return True


def delete_old_segments(state: LogState, *, now_ms: int) -> int:
    """Apply the topic's retention, rule after rule; return how many segments that concerned (log-format 7.1).

    Raises:
        OSError: the disk failed.
    """
    start = state.offsets.local_log_start_offset if state.is_tiered else state.offsets.log_start_offset
    by_start, by_size, by_time = breaches(state.config, waits_for_copy=state.waits_for_copy, log_start_offset=start)
    rules: list[tuple[Breach, Callable[[LogFacts], Predicate]]] = [(by_start, log_start_breached)]
    if "delete" in state.config.cleanup_policy:
        rules.append((by_size, lambda log: size_breached(log, by_size.limit)))
        rules.append((by_time, lambda _: time_breached(by_time.limit, now_ms=now_ms)))
    return sum(_delete_breached(state, breach, rule, now_ms) for breach, rule in rules)


def facts_of(state: LogState) -> LogFacts:
    """Return the facts from which retention decides about the log."""
    segments = state.segments.segments.values
    offsets = state.offsets
    return LogFacts(
        segments=tuple(RetentionSegment(s.base_offset, s.size_bytes, s.largest_timestamp_ms) for s in segments),
        log_end_offset=state.segments.log_end.offset,
        high_watermark=offsets.high_watermark.offset,
        log_start_offset=offsets.log_start_offset,
        local_log_start_offset=offsets.local_log_start_offset,
        highest_remote_offset=offsets.highest_remote_offset,
        is_tiered=state.is_tiered,
    )


def _delete_breached(state: LogState, breach: Breach, rule: Callable[[LogFacts], Predicate], now_ms: int) -> int:
    facts = facts_of(state)
    plan = plan_deletion(facts, rule(facts), waits_for_copy=state.waits_for_copy)
    return carry_out(state, facts, plan, breach=breach, now_ms=now_ms)


def carry_out(state: LogState, facts: LogFacts, plan: DeletionPlan, *, breach: Breach, now_ms: int) -> int:
    """Carry out a plan of retention (Kafka: UnifiedLog.deleteSegments); return the number of deleted segments."""
    oldest = list(state.segments.segments.values[: plan.count])
    if plan.rolls_active:
        _LOG.info("rolling_for_retention", **state.where, **breach.fields())
        state.roll(now_ms=now_ms)
    if not oldest:
        return 0
    if len(state.segments.segments) == len(oldest):  # there is always one segment
        recreated = state.roll(now_ms=now_ms).base_offset
        if recreated == oldest[-1].base_offset:
            oldest.pop()
    if oldest:
        _LOG.info("deleting_segments", **state.where, **breach.fields_of_deletion(facts, len(oldest)))
        _delete(state, oldest, now_ms)
    return plan.count


def _delete(state: LogState, oldest: list[LogSegment], now_ms: int) -> None:
    following = state.segments.segments.higher(oldest[-1].base_offset)
    assert following is not None  # or a roll would have made one
    if state.waits_for_copy:
        state.offsets.raise_local_log_start(following.base_offset)
    else:
        raise_log_start(state, following.base_offset, reason="segment deletion")
    state.segments.delete_segments(oldest, now_ms=now_ms)
    state.delete_snapshots(oldest, now_ms=now_ms)


def _rebuild_producers(state: LogState, end_offset: int, now_ms: int) -> None:
    try:
        rebuild_producer_state(
            state.producers,
            state.segments.segments,
            disk=state.disk,
            log_start_offset=state.offsets.log_start_offset,
            end_offset=end_offset,
            reload_from_clean_shutdown=False,
            now_ms=now_ms,
        )
    except LogError:  # what is left is damaged and its producers are unknown: nothing may be appended
        state.close_handles()
        raise
