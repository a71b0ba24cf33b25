"""DeletedRecords: finds the offset that a DeleteRecords request raised the broker's log start to.

DeletionRequests: distinguishes such a request from a log start that the broker took over from a leader. Decisions only.
"""

import asyncio
from typing import Final

import structlog

from tierd.errors import CorruptRecordError
from tierd.log import BatchHeader, batch_at
from tierd.metadata import PartitionView
from tierd.tiering.copy_plan import deleted_records_before
from tierd.tiering.local.broker_state import BrokerOffsets
from tierd.tiering.local.partition_log import PartitionLog

log = structlog.get_logger()

_RECHECK_S: Final = 60.0  # Kafka: log.flush.start.offset.checkpoint.interval.ms
_MAGIC_WITH_BASE: Final = 2  # older batches have neither their first offset nor their leader epoch


class DeletedRecords:
    """Watch of one leadership over the log start of its broker."""

    def __init__(self, local: PartitionLog, *, leader_epoch: int, broker_id: int, is_sole_replica: bool) -> None:
        """Read nothing yet. ``is_sole_replica``: the cluster named this broker as the only one with a replica."""
        self._local = local
        self._broker_id = broker_id
        self._is_sole_replica = is_sole_replica
        self._requests = DeletionRequests(leader_epoch)
        self._unproven: int | None = None  # judged by its batches, which do not change
        self._retained: int | None = None  # a bound of segments that were copied

    def loaded(self, view: PartitionView) -> None:
        """Note the brokers that had the tier before the leadership began; a later load changes nothing.

        Segments alone are no proof: a leader may have copied nothing, and its segments may be compacted away.
        """
        only_broker_id = None if view.row is None else view.row.only_broker_id
        brokers = {only_broker_id, *(each.broker_id for each in view.list())}
        if self._is_sole_replica and brokers == {self._broker_id}:
            self._requests.took_over_nothing()
        self._is_sole_replica = False

    async def find(self, view: PartitionView, offsets: BrokerOffsets, *, log_start_offset: int) -> int | None:
        """Return an offset above ``log_start_offset`` that records were deleted before on request; None without one.

        Raises:
            TierError: the log cannot be read now.
        """
        self._requests.observe(offsets)
        if self._candidate(offsets, log_start_offset) is None:
            return None
        await self._local.rescan()  # the checkpoint may be younger than the listing, which may lack a base
        inside = self._candidate(offsets, log_start_offset)
        if inside is None:
            return None
        if _is_bound(view, inside):
            self._retained = inside
            self._warn(inside)
            return None
        return inside if await self._is_request(inside) else None

    def recheck_s(self) -> float | None:
        """Return the seconds until the broker has surely said more; None when it has said enough."""
        return self._requests.recheck_s()

    def _candidate(self, offsets: BrokerOffsets, log_start_offset: int) -> int | None:
        """Return a log start that lies inside a segment and above the tier's, and was not judged before; else None."""
        inside = deleted_records_before(
            checkpointed=offsets.log_start_offset,
            segments=self._local.scan.segments,
            high_watermark=offsets.high_watermark,
        )
        if inside is None or inside <= log_start_offset or inside == self._retained:
            return None
        return inside if inside != self._unproven or self._requests.has_risen(inside) else None

    async def _is_request(self, inside: int) -> bool:
        if self._requests.has_risen(inside):
            return True
        latest = self._local.scan.lineage.latest
        batch = await asyncio.to_thread(self._batch_before, inside)
        if self._requests.is_proven_by(batch, inside=inside, latest_epoch=latest.epoch if latest else None):
            return True
        self._unproven = inside
        self._warn(inside)
        return False

    def _warn(self, inside: int) -> None:
        log.warning(
            "log_start_in_doubt",
            partition=str(self._local.partition),
            log_start_offset=inside,
            remedy="the tier keeps the records below; if a DeleteRecords request deleted them, repeat it with an "
            "offset that is higher by one, a minute from now",
        )

    def _batch_before(self, inside: int) -> BatchHeader | None:
        segments = [each for each in self._local.scan.segments if each.base_offset < inside]
        try:
            return batch_at(segments[-1], inside - 1) if segments else None
        except CorruptRecordError:
            return None  # proves nothing; the copy of the segment reports the damage


def _is_bound(view: PartitionView, offset: int) -> bool:
    """Return whether a segment in the tier begins or ends at ``offset``.

    A log with such a base was copied, and its retention may have led there. This log has the offset inside a segment,
    because its replica was moved from another log dir, or followed another broker (decision 0021).
    """
    segments = (*view.list(), *view.tombstones.values())
    return any(offset in (each.start_offset, each.end_offset + 1) for each in segments)


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
        if self._is_settled or not offsets.is_log_start_known:
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
