"""DeletionRequests: distinguishes a deletion on request from a log start that the broker took over from a leader."""

from typing import Final

from tierd.log import BatchHeader
from tierd.tiering.local.broker_state import BrokerOffsets

_RECHECK_S: Final = 60.0  # Kafka: log.flush.start.offset.checkpoint.interval.ms
_MAGIC_WITH_BASE: Final = 2  # older batches have neither their first offset nor their leader epoch


class DeletionRequests:
    """One leadership's judgement of a log start that lies inside a local segment.

    A follower takes over its leader's log start, which that leader's retention put at a base of *its* segments: here
    the same offset lies inside one, and looks like a DeleteRecords request (Kafka: ReplicaFetcherThread,
    LeaderOffsetIncremented). A mistake would expire the whole tier below, so a log start counts as a request only
    where nothing else explains it (decision 0021):

    * The leadership is of epoch 0, or no broker but this one ever had the partition: nothing was ever taken over.
    * The offset lies within a batch. Segments of every replica begin with a batch, so no retention leads there.
    * The record before the offset was written under this leadership. A log start that was taken over lies no higher
      than where the leadership began.
    * The log start rose above what the broker wrote to its checkpoint under this leadership.

    A log start without any of these stays in doubt, and the tier keeps its records.
    """

    def __init__(self, leader_epoch: int) -> None:
        self._leader_epoch = leader_epoch
        self._is_settled = leader_epoch == 0
        self._first: object = None  # which checkpoint was there when the leadership was new
        self._has_observed = False
        self._taken_over = -1

    def took_over_nothing(self) -> None:
        """Take note that no broker but this one ever had the partition."""
        self._is_settled = True
        self._taken_over = -1

    def observe(self, offsets: BrokerOffsets) -> None:
        """Note the offsets that the broker wrote; every pass calls this before it asks."""
        if self._is_settled:
            return
        if offsets.log_start_offset is not None:
            self._taken_over = max(self._taken_over, offsets.log_start_offset)
        self._is_settled = offsets.starts_written is None or (
            self._has_observed and offsets.starts_written != self._first
        )
        if not self._has_observed:
            self._has_observed, self._first = True, offsets.starts_written

    def has_risen(self, inside: int) -> bool:
        """Return whether the log start came to lie at ``inside`` under this leadership, as the checkpoints have it."""
        return self._is_settled and inside > self._taken_over

    def is_proven_by(self, batch: BatchHeader | None, *, inside: int, latest_epoch: int | None) -> bool:
        """Return whether the batches around ``inside`` leave a request as the only explanation.

        Args:
            batch: the first one that holds ``inside - 1`` or follows it, in the segment that ``inside`` lies in.
            inside: the log start.
            latest_epoch: the latest epoch of the local lineage; None without one. An epoch above the leadership's is of
                another leader, whose retention may reach what this leadership wrote.
        """
        if batch is None or batch.magic < _MAGIC_WITH_BASE or batch.base_offset >= inside:
            return False
        leads = latest_epoch is None or latest_epoch <= self._leader_epoch
        return inside <= batch.last_offset or (leads and batch.partition_leader_epoch == self._leader_epoch)

    def recheck_s(self) -> float | None:
        """Return the seconds until the checkpoint was surely written anew; None once that was seen."""
        return None if self._is_settled else _RECHECK_S
