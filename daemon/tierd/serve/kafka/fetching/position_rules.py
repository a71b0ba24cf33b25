"""Rules for the place that a client wants to read from: its epochs, and the bounds of the log. Decisions only, no I/O.

A daemon may know less of a log than its leader: the watermark on disk is some seconds old, and a host without a replica
knows the tier only. A client that was sent OFFSET_OUT_OF_RANGE abandons its position and begins at one end of the log:
it would read everything twice, or skip records. So this error is answered below the log start only. Above the end that
this daemon knows, the answer is OFFSET_NOT_AVAILABLE, after which a client asks again: even where no newer end can
exist, since a restore or an unclean election may be what moved the end, and the client finds that out by epochs.
"""

from enum import Enum

from kio.schema.errors import ErrorCode

from tierd.model import EpochEndOffset, IsolationLevel
from tierd.serve.kafka.fetching.fetch_demand import PartitionFetch
from tierd.serve.kafka.served.served_log import LogBounds


class Readiness(Enum):
    """Place of an offset in a log.

    Attributes:
        BEFORE_START: the records are deleted.
        READABLE: below the end for the isolation level of the client.
        AT_END: no record yet that the client may read.
        BEYOND_END: above everything that this daemon knows.
    """

    BEFORE_START = "before_start"
    READABLE = "readable"
    AT_END = "at_end"
    BEYOND_END = "beyond_end"


def readiness(offset: int, bounds: LogBounds, isolation: IsolationLevel) -> Readiness:
    """Return the place of ``offset``."""
    if offset < bounds.log_start_offset:
        return Readiness.BEFORE_START
    if offset < bounds.end_offset(isolation):
        return Readiness.READABLE
    return Readiness.AT_END if offset <= max(bounds.high_watermark, bounds.log_start_offset) else Readiness.BEYOND_END


def fencing(wanted: PartitionFetch, leader_epoch: int) -> ErrorCode:
    """Return the error for a client that knows another leader epoch than this daemon (KIP-320)."""
    if wanted.current_leader_epoch < 0 or leader_epoch < 0 or wanted.current_leader_epoch == leader_epoch:
        return ErrorCode.none
    is_older = wanted.current_leader_epoch < leader_epoch
    return ErrorCode.fenced_leader_epoch if is_older else ErrorCode.unknown_leader_epoch


def divergence(wanted: PartitionFetch, found: EpochEndOffset, latest_epoch: int) -> EpochEndOffset | ErrorCode | None:
    """Return where the client's log leaves ours (KIP-595); None if it does not, as far as this daemon knows.

    An error stands for an epoch that this daemon does not know yet: it cannot say where such a log diverges.

    Args:
        wanted: names the epoch of the record before its offset.
        found: the largest epoch of the log at or below that epoch, and its end.
        latest_epoch: of the log. Its end moves on, so that an offset above it diverges from nothing. -1 for a log
            without epochs, which cannot be compared.
    """
    if latest_epoch < 0:
        return None
    if wanted.last_fetched_epoch > latest_epoch:
        return ErrorCode.unknown_leader_epoch
    if found.epoch < 0:
        return None
    if found.epoch < wanted.last_fetched_epoch or (found.epoch < latest_epoch and found.end_offset < wanted.offset):
        return found
    return None
