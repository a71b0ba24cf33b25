"""Rules for the records of an AppendRecords entry: place, duplicates, divergence (push-replication 2.9, 6 to 9): pure.

::

    append_offset > log end                  20002
    append_offset = log end                  last_epoch must be the epoch of our last record, else 20003
    append_offset < log end, log not empty   known batches are left out if the epoch of the last one is ours, else 20003
    append_offset < log end, log empty       batches below the log start are left out; a batch across the log start
                                             makes the log begin again at the base offset of the batch
"""

from dataclasses import dataclass

from tierd.replication.follower.rules.log_facts import FollowerLogFacts
from tierd.replication.follower.rules.record_runs import LeaderBatches, read_batches
from tierd.replication.model.messages import DivergingEpoch, PartitionAppend
from tierd.replication.model.push_error_code import PushErrorCode


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """Place of the records in the follower's log.

    Attributes:
        batches: those that the log lacks; None without any.
        restart_at: offset at which the log begins again before the append.
        is_at_end: the entry follows the log's last record, so that it may begin a session.
    """

    batches: LeaderBatches | None
    restart_at: int | None = None
    is_at_end: bool = True


@dataclass(frozen=True, slots=True)
class AppendRefusal:
    """Answer to an entry that is refused."""

    code: PushErrorCode
    diverging: DivergingEpoch | None = None


_MISMATCH = AppendRefusal(PushErrorCode.APPEND_OFFSET_MISMATCH)


def has_records(entry: PartitionAppend) -> bool:
    """Return True if the entry has any byte of records."""
    return bool(entry.records) and any(map(len, entry.records or ()))


def place_records(entry: PartitionAppend, log: FollowerLogFacts) -> RecordPlace | AppendRefusal:
    """Find the place of an entry's records.

    Raises:
        BadRecordsError: the records cannot be parsed.
    """
    end = log.log_end_offset
    if entry.append_offset > end:
        return _MISMATCH
    if entry.append_offset == end:
        if not _follows(entry, log):
            return diverged(log)
        return RecordPlace(read_batches(entry.records or ()) if has_records(entry) else None)
    if not has_records(entry):
        return _MISMATCH
    batches = read_batches(entry.records or ())
    return _place_in_empty_log(batches, log) if log.is_empty else _place_after_known(batches, log)


def diverged(log: FollowerLogFacts) -> AppendRefusal:
    """Return the refusal that names the follower's last epoch and its end."""
    return AppendRefusal(PushErrorCode.LOG_DIVERGED, DivergingEpoch(log.last_epoch, log.log_end_offset))


def _follows(entry: PartitionAppend, log: FollowerLogFacts) -> bool:
    if log.is_empty:  # retention removed all records, or there was none: nothing can differ from the leader's
        return True
    begins_here = entry.last_epoch < 0 and entry.log_start_offset >= entry.append_offset  # the leader deleted ours too
    return begins_here or entry.last_epoch == log.last_epoch


def _place_in_empty_log(batches: LeaderBatches, log: FollowerLogFacts) -> RecordPlace | AppendRefusal:
    end = log.log_end_offset
    below = sum(header.last_offset < end for header in batches.headers)
    _, rest = batches.split_at(below)
    if not rest.headers:
        return RecordPlace(None, is_at_end=batches.next_offset == end)
    restart_at = rest.first_offset if rest.first_offset < end else None  # DeleteRecords cut inside a batch
    return RecordPlace(rest, restart_at)


def _place_after_known(batches: LeaderBatches, log: FollowerLogFacts) -> RecordPlace | AppendRefusal:
    end = log.log_end_offset
    count = sum(header.last_offset < end for header in batches.headers)
    known, rest = batches.split_at(count)
    if not known.headers:
        return _MISMATCH
    last_offset = known.next_offset - 1
    if last_offset >= log.log_start_offset and log.epoch_of(last_offset) != known.last_epoch:
        return diverged(log)
    if not rest.headers:
        return RecordPlace(None, is_at_end=known.next_offset == end)
    if rest.first_offset < end or log.last_epoch != known.last_epoch:
        return _MISMATCH  # not on a boundary of this log's batches: the leader sends again from the log end
    return RecordPlace(rest)
