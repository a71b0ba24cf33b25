"""Appending to a log: sets of records, gathered in memory one by one and written together (log-format 4.2).

The steps for each set: analysis; numbering (leader) or a check of the numbers (follower); leader epochs; a roll where
one is due; the producers; the buffer of the active segment. A refused set leaves no bytes in the buffer, but may leave
an epoch or a roll (log-format C 18). The buffer is written when all sets are in it, before a roll, and before an
aborted transaction gets its index entry. Then the log end moves. No set is acknowledged before everything was written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from tierd.errors import LogError, TierErrorCode
from tierd.log.log_errors import AppendError, RecordValidationError
from tierd.log.partition.append_info import (
    NO_TIMESTAMP,
    UNKNOWN_OFFSET,
    Analysis,
    AppendInfo,
    AppendRequest,
    analyze,
    analyze_numbered,
    check_last_offset,
    check_sizes,
)
from tierd.log.partition.log_state import LogState
from tierd.log.producers.active_producer import AppendedBatch
from tierd.log.producers.producer_append import ProducerAppendInfo
from tierd.log.producers.transactions import CompletedTransaction, EndMarker, end_marker_of
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.log_config import MAX_INT, TimestampType
from tierd.log.records.log_offset import LogOffset
from tierd.log.records.record_batch import with_data
from tierd.log.records.validation import validate_and_assign
from tierd.log.segments.log_segment import LogSegment

AppendOutcome = AppendInfo | LogError

_LOG = structlog.get_logger(__name__)


def append_all(state: LogState, requests: Sequence[AppendRequest], *, now_ms: int) -> list[AppendOutcome]:
    """Append every set that the log accepts; return for each set its append or its refusal, in their order.

    When the disk fails, no set of the group is acknowledged, even if it was written: the log dir goes offline.
    """
    outcomes: list[AppendOutcome] = []
    try:
        if state.partition_metadata is not None:
            state.partition_metadata.maybe_flush()
        for request in requests:
            outcomes.append(_outcome(state, request, now_ms))  # noqa: PERF401 - those before a failure are kept
        _write(state)
        if state.unreported:
            state.report_appends()
        _flush_if_due(state, now_ms)
    except OSError as error:
        state.unreported.clear()
        offline = state.offline.mark(error)
        written = [outcome if isinstance(outcome, LogError) else offline for outcome in outcomes]
        return [*written, *[offline] * (len(requests) - len(outcomes))]
    return outcomes


def _outcome(state: LogState, request: AppendRequest, now_ms: int) -> AppendOutcome:
    try:
        return _append(state, request, now_ms)
    except LogError as refusal:
        return refusal


def _append(state: LogState, request: AppendRequest, now_ms: int) -> AppendInfo:
    """Check, number and write the set (Kafka: UnifiedLog.append)."""
    seen = analyze(request, max_message_bytes=state.config.max_message_bytes, name=state.name, counters=state.counters)
    if not seen.batches:
        return _info(state, seen, NO_TIMESTAMP)
    log_append_time_ms = NO_TIMESTAMP
    if request.origin.assigns_offsets:
        log_append_time_ms = _number(state, request, seen, now_ms)
    elif seen.first_or_last_offset_of_first_batch < state.segments.next_offset:
        raise _unexpected_offset(state, seen)
    _assign_epochs(state, seen.batches)
    size_bytes = len(seen.records)
    is_single_replica = request.origin is AppendOrigin.REPLICATION and len(seen.batches) == 1
    # A batch that the leader has is taken even if segment.bytes was lowered since: it gets a segment of its own.
    if size_bytes > state.config.segment_bytes and not is_single_replica:
        raise AppendError(
            f"{state.name}: a set of {size_bytes} bytes is above segment.bytes, {state.config.segment_bytes}",
            remedy="append smaller sets, or raise segment.bytes of the topic",
            code=TierErrorCode.RECORD_BATCH_TOO_LARGE,
        )
    segment = _segment_for(state, seen, now_ms)
    producers = _analyze_producers(state, request, seen, segment)
    if isinstance(producers, AppendedBatch):
        return _duplicate(state, producers)
    append_offset = state.segments.next_offset
    state.segments.append(
        [seen.records],
        seen.batches,
        last_offset=seen.last_offset,
        max_timestamp_ms=seen.max_timestamp_ms,
        shallow_offset=seen.shallow_offset_of_max_timestamp,
    )
    if state.offsets.observer is not None:
        state.note_append(append_offset, seen.records)
    if producers is not None:
        _apply_producers(state, producers, segment)
    return _info(state, seen, log_append_time_ms)


def _number(state: LogState, request: AppendRequest, seen: Analysis, now_ms: int) -> int:
    """Validate and number the records; return their new timestamp, -1 if they keep their own."""
    config = state.config
    result = validate_and_assign(
        seen.records,
        first_offset=state.segments.next_offset,
        leader_epoch=request.leader_epoch,
        origin=request.origin,
        config=config,
        now_ms=now_ms,
        source_compression=seen.source_compression,
        name=state.name,
        counters=state.counters,
    )
    check_last_offset(result.last_offset, name=state.name)
    seen.first_offset = state.segments.next_offset
    seen.last_offset = result.last_offset
    seen.max_timestamp_ms = result.max_timestamp_ms
    seen.shallow_offset_of_max_timestamp = result.shallow_offset_of_max_timestamp
    seen.records = memoryview(result.records)
    seen.batches = analyze_numbered(result.records, name=state.name)
    if result.size_may_have_changed:
        check_sizes(seen.batches, max_message_bytes=config.max_message_bytes)
    return now_ms if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP


def _unexpected_offset(state: LogState, seen: Analysis) -> AppendError:
    first = seen.batches[0]
    first_offset = seen.first_offset
    if first_offset == UNKNOWN_OFFSET:
        first_offset = next(with_data(first, seen.records[: first.size_bytes]).records()).offset
    end = state.segments.next_offset
    return AppendError(
        f"{state.name}: records {first_offset} to {seen.last_offset} begin below the log end {end}",
        code=TierErrorCode.UNEXPECTED_APPEND_OFFSET,
    )


def _assign_epochs(state: LogState, batches: Sequence[BatchHeader]) -> None:
    epochs = state.leader_epochs
    if epochs is None:
        return
    latest_epoch = epochs.latest_epoch
    for batch in batches:
        epoch = batch.partition_leader_epoch
        if batch.magic < 2:
            if not epochs.is_empty:
                _LOG.warning("leader_epochs_cleared_by_legacy_batch", **state.where, offset=batch.base_offset)
                epochs.clear()
            latest_epoch = None
        elif epoch < 0:
            raise RecordValidationError(f"{state.name}: the batch at offset {batch.base_offset} has no leader epoch")
        elif epoch != latest_epoch:
            epochs.assign(epoch=epoch, start_offset=batch.base_offset)
            latest_epoch = epoch


def _segment_for(state: LogState, seen: Analysis, now_ms: int) -> LogSegment:
    """Return the segment for the set; roll first where that is due (log-format 5.1)."""
    active = state.segments.active
    if not active.should_roll(
        size_bytes=len(seen.records),
        max_timestamp_ms=seen.max_timestamp_ms,
        max_offset=seen.last_offset,
        now_ms=now_ms,
        config=state.config,
    ):
        return active
    _write(state)
    legacy_base = seen.last_offset - MAX_INT  # a legacy set's first offset is not known; it cannot be lower
    expected = legacy_base if seen.first_offset == UNKNOWN_OFFSET else seen.first_offset
    return state.roll(now_ms=now_ms, expected_next_offset=expected)


@dataclass(slots=True)
class _Producers:
    """Changes that a set of records makes to its producers, collected until they are applied."""

    appends: dict[int, ProducerAppendInfo] = field(default_factory=dict)
    completed: list[CompletedTransaction] = field(default_factory=list)


def _analyze_producers(
    state: LogState, request: AppendRequest, seen: Analysis, segment: LogSegment
) -> _Producers | AppendedBatch | None:
    """Check the set against the state of its producers; return the batch that it repeats, if any (log-format 4.4)."""
    if not seen.has_producers:
        return None
    found = _Producers()
    manager = state.producers
    for batch in seen.batches:
        if batch.producer_id < 0:
            continue
        if request.origin is AppendOrigin.CLIENT and (known := manager.last_entry(batch.producer_id)):
            duplicate = known.find_duplicate(batch)
            if duplicate is not None:
                return duplicate
        append = found.appends.get(batch.producer_id)
        if append is None:
            append = manager.prepare_update(batch.producer_id, request.origin)
            found.appends[batch.producer_id] = append
        place = LogOffset(batch.base_offset, segment.base_offset, segment.size_bytes + batch.position)
        completed = append.append(batch, place, _marker_of(batch, seen.records))
        if completed is not None:
            found.completed.append(completed)
    return found


def _marker_of(batch: BatchHeader, records: memoryview) -> EndMarker | None:
    if not batch.is_control:
        return None
    return end_marker_of(with_data(batch, records[batch.position : batch.end_position]))


def _apply_producers(state: LogState, found: _Producers, segment: LogSegment) -> None:
    """Apply the changes of the producers; aborted transactions get index entries, after the bytes of their markers."""
    manager = state.producers
    with state.offsets.lock:  # before the log end moves: no open transaction may ever lie below what is readable
        for append in found.appends.values():
            manager.update(append)
    if any(transaction.is_aborted for transaction in found.completed):
        _write(state)
    for transaction in found.completed:
        entry = manager.index_entry(transaction)
        if entry is not None:
            segment.transaction_index.append(entry)
        with state.offsets.lock:
            manager.complete(transaction)


def _write(state: LogState) -> None:
    """Write the buffered batches; the log end moves, and readers may read them."""
    segments = state.segments
    before = segments.log_end.offset
    segments.write_out()
    after = segments.log_end.offset
    if after != before:
        state.offsets.follow_log_end()
        state.producers.update_map_end_offset(after)
    state.offsets.refresh_first_unstable()


def _flush_if_due(state: LogState, now_ms: int) -> None:
    end = state.segments.log_end.offset
    if end - state.segments.recovery_point >= state.config.flush_messages:
        state.flush(end, now_ms=now_ms)


def _duplicate(state: LogState, batch: AppendedBatch) -> AppendInfo:
    return AppendInfo(
        first_offset=batch.first_offset,
        last_offset=batch.last_offset,
        max_timestamp_ms=batch.timestamp_ms,
        shallow_offset_of_max_timestamp=batch.last_offset,
        log_append_time_ms=batch.timestamp_ms,
        log_start_offset=state.offsets.log_start_offset,
        size_bytes=0,
        is_duplicate=True,
    )


def _info(state: LogState, seen: Analysis, log_append_time_ms: int) -> AppendInfo:
    return AppendInfo(
        seen.first_offset,
        seen.last_offset,
        seen.max_timestamp_ms,
        seen.shallow_offset_of_max_timestamp,
        log_append_time_ms,
        state.offsets.log_start_offset,
        len(seen.records),
    )
