"""Rules that make a follower's log a prefix of its leader's (push-replication 2.12; KIP-101, KIP-279): pure.

::

    TRUNCATING ──epoch and end of the leader──► truncate, done     ──► FETCHING
        ▲                                  └──► truncate, ask again ──► TRUNCATING
        │ the leader's epoch changed, or a divergence was reported
    FETCHING ──out of range──► bounds of the leader ──► truncate, or restart, or keep
"""

from dataclasses import dataclass

from tierd.model import EpochEndOffset
from tierd.replication.follower.rules.log_facts import NO_EPOCH, FollowerLogFacts


@dataclass(frozen=True, slots=True)
class Truncation:
    """New end of the log; unless ``is_done``, the leader is asked again for the epoch that is last then."""

    offset: int
    is_done: bool


@dataclass(frozen=True, slots=True)
class LeaderBounds:
    """Answer of the leader to a LogBounds request."""

    log_start_offset: int
    log_end_offset: int
    end_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class RestartAt:
    """Drop every record and begin again at ``offset``."""

    offset: int


@dataclass(frozen=True, slots=True)
class KeepLog:
    """Keep the log as it is and fetch from its end again."""


def truncate_by_epoch(answer: EpochEndOffset, log: FollowerLogFacts, *, held_offset: int) -> Truncation:
    """Decide about the leader's end of an epoch.

    Args:
        answer: the epoch that the leader knows, and its exclusive end; -1 for what the leader does not know.
        log: the follower's log.
        held_offset: fetch offset that is used when the leader knows nothing: at first the high watermark.
    """
    end = log.log_end_offset
    if answer.end_offset < 0:
        return Truncation(min(held_offset, end), is_done=True)
    if answer.epoch < 0:
        return Truncation(min(answer.end_offset, end), is_done=True)
    own = log.end_offset_for(answer.epoch)
    if own.end_offset < 0:
        return Truncation(min(answer.end_offset, end), is_done=True)
    if own.epoch != answer.epoch:
        return Truncation(min(own.end_offset, end), is_done=False)
    return Truncation(min(own.end_offset, answer.end_offset, end), is_done=True)


def resolve_out_of_range(leader: LeaderBounds, log: FollowerLogFacts) -> Truncation | RestartAt | KeepLog:
    """Decide after the leader has refused a fetch offset as out of range."""
    end = log.log_end_offset
    if leader.log_end_offset < end:
        return Truncation(leader.log_end_offset, is_done=True)
    if leader.log_start_offset > end:
        return RestartAt(leader.log_start_offset)
    if leader.log_start_offset == end and leader.end_epoch < 0 and not log.is_empty:
        return RestartAt(end)  # the leader deleted all of it, and knows no epoch that a fetch could be compared with
    latest = log.lineage.latest
    if leader.end_epoch >= 0 and not log.is_empty and latest is not None and latest.epoch > leader.end_epoch:
        # The leader has no record of the last epoch of this log, so that it cannot tell where that epoch ends.
        own = log.end_offset_for(leader.end_epoch)
        return Truncation(own.end_offset if own.end_offset >= 0 else log.log_start_offset, is_done=True)
    return KeepLog()
