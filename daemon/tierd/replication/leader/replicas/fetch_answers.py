"""Answers of a leader to FetchRecords, EpochEndOffsets and LogBounds (push-replication 2.12). Pure."""

from dataclasses import dataclass
from typing import Final

from tierd.model import Lineage
from tierd.replication.model.messages import (
    DivergingEpoch,
    EpochEndOffsetResult,
    EpochQuery,
    LogBoundsResult,
    ReplicaFetch,
)
from tierd.replication.model.push_error_code import PushErrorCode

_NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class LedLogFacts:
    """The log of a led partition at one moment."""

    log_start_offset: int
    log_end_offset: int
    lineage: Lineage


def check_leader_epoch(current_leader_epoch: int, leader_epoch: int) -> PushErrorCode:
    """Compare the epoch that a standby knows with the leader's own."""
    if current_leader_epoch < leader_epoch:
        return PushErrorCode.FENCED_LEADER_EPOCH
    if current_leader_epoch > leader_epoch:
        return PushErrorCode.UNKNOWN_LEADER_EPOCH
    return PushErrorCode.NONE


def check_fetch(fetch: ReplicaFetch, log: LedLogFacts) -> PushErrorCode | DivergingEpoch | None:
    """Return the refusal of a fetch, or the point from which the follower's log differs; None for neither.

    The order is Kafka's: unknown epoch, below the log start, divergence, above the log end.
    """
    offset, epoch = fetch.fetch_offset, fetch.last_fetched_epoch
    end = log.lineage.end_offset_for(epoch, log_end_offset=log.log_end_offset)
    if epoch >= 0 and end.end_offset < 0:
        return PushErrorCode.OFFSET_OUT_OF_RANGE
    if offset < log.log_start_offset:
        return PushErrorCode.OFFSET_OUT_OF_RANGE
    if epoch >= 0 and (end.epoch < epoch or end.end_offset < offset):
        return DivergingEpoch(end.epoch, end.end_offset)
    return PushErrorCode.OFFSET_OUT_OF_RANGE if offset > log.log_end_offset else None


def epoch_end_offset(query: EpochQuery, log: LedLogFacts) -> EpochEndOffsetResult:
    """Answer with the end of an epoch (KIP-101, KIP-279)."""
    end = log.lineage.end_offset_for(query.epoch, log_end_offset=log.log_end_offset)
    return EpochEndOffsetResult(
        topic_id=query.topic_id, partition=query.partition, error_code=0, epoch=end.epoch, end_offset=end.end_offset
    )


def log_bounds(query: EpochQuery, log: LedLogFacts) -> LogBoundsResult:
    """Answer with start and end of the log, and the epochs of its first and last record; -1 of an empty log."""
    start, end = log.log_start_offset, log.log_end_offset
    is_empty = start >= end
    return LogBoundsResult(
        topic_id=query.topic_id,
        partition=query.partition,
        error_code=0,
        log_start_offset=start,
        log_end_offset=end,
        start_epoch=_NO_EPOCH if is_empty else known_epoch(log.lineage, start),
        end_epoch=_NO_EPOCH if is_empty else known_epoch(log.lineage, end - 1),
    )


def known_epoch(lineage: Lineage, offset: int) -> int:
    """Return the epoch of the record at ``offset``; -1 without one."""
    epoch = lineage.epoch_for(offset)
    return _NO_EPOCH if epoch is None else epoch
