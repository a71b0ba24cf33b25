"""Aborted transactions that touch some offsets, looked up in tier and local log (remote-tiering 14.4).

A transaction may be open where the local log begins: its records are in the tier, its marker in the local log.

::

    tier         ... data of producer 7 ... ] seam
    local log                               [ ABORT of producer 7 | ...

A broker that is killed after its retention deleted the segments before the seam recovers the log without the producers
of these. The transaction index that it makes then lacks the transactions that were open at the seam, since no record of
them is in its log. The producer snapshot in the tier names them, and the local log has their markers.

A marker may also lie in a hole, in neither of the two: the broker has deleted a segment that tierd holds and has not
copied yet. Until it is copied, the transaction counts as undecided::

    tier         ... data of producer 7 ... ] hole
    held                                    [ ABORT of producer 7 ... ]
    local log                                                         [ ...
"""

import asyncio
from collections.abc import Mapping, Sequence

from tierd.errors import RemoteIntegrityError, RemoteResourceNotFoundError, RetriableRemoteStorageError, TierErrorCode
from tierd.log import AbortedTransaction, EndMarkerAt, LocalLog, unexplained_transactions
from tierd.metadata import ReadableRange
from tierd.model import RemoteLogSegmentMetadata
from tierd.tiering.reading.remote_indexes import RemoteIndexes
from tierd.tiering.reading.tiered_log import Tier, TieredLog


class AbortedLookup:
    """Lookup in the transaction indexes of one partition, as it was at one moment."""

    def __init__(self, log: TieredLog, local: LocalLog | None, indexes: RemoteIndexes) -> None:
        self._log = log
        self._local = local
        self._indexes = indexes
        self._probe: tuple[int, ReadableRange | None] | None = None  # the last answer of _next_indexed

    async def touching(self, from_offset: int, upper: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that touch ``[from_offset, upper)``, each once.

        Raises:
            RemoteResourceNotFoundError: the objects of a segment that may know some are gone.
            SegmentChangedError: the local log changed.
            RetriableRemoteStorageError: as ``aborted_over_the_seam``; or a transaction that has records in the range
                may be decided by a marker in a hole.
        """
        found: dict[AbortedTransaction, None] = {}
        hole: int | None = None
        if self._log.tier_of(from_offset) is Tier.REMOTE or not self._is_decided_locally(upper):
            hole = self._log.hole_from(from_offset)
            segment = self._next_indexed(from_offset)
            while segment is not None:
                index = await self._indexes.transaction_index(segment.metadata)
                part, complete = index.collect(from_offset, upper, end_offset=segment.end_offset)
                found.update(dict.fromkeys(part))
                if complete and (hole is None or segment.start_offset < hole):
                    return tuple(found)
                segment = self._next_indexed(segment.end_offset)
        if self._local is not None:
            part = await asyncio.to_thread(self._local.aborted_transactions, from_offset, upper)
            found.update(dict.fromkeys(part))
            if from_offset < (self._log.local_start_offset or 0):
                part = await aborted_over_the_seam(
                    self._log, self._local, self._indexes, upper=upper, known=tuple(found)
                )
                found.update(dict.fromkeys(part))
        if hole is not None:
            await self._require_no_end_in(hole, upper, tuple(found))
        return tuple(found)

    async def _require_no_end_in(self, hole: int, upper: int, known: Sequence[AbortedTransaction]) -> None:
        before = self._log.branch.segment_before(hole)
        if before is None:
            return
        undecided = unexplained_transactions(await _open_at_the_end(before, self._indexes), known, upper=upper)
        if undecided:
            raise RetriableRemoteStorageError(
                f"{self._log.partition}: the transaction that began at offset {min(undecided.values())} was committed "
                f"or aborted at offset {hole} or later, and these offsets are not in the tier yet",
                remedy="read again; tierd status says what the copy waits for",
                code=TierErrorCode.READER_BUSY,
            )

    def _is_decided_locally(self, upper: int) -> bool:
        """Return True if no marker that decides offsets below ``upper`` is in the tier alone, as for a late replica."""
        return self._local is not None and upper <= self._local.last_stable_offset

    def _next_indexed(self, offset: int) -> ReadableRange | None:
        """Return ``next_indexed_segment`` of the log, cached: a log without aborts is not walked to its end again."""
        if self._probe is not None:
            asked, answer = self._probe
            if asked <= offset and (answer is None or offset <= answer.start_offset):
                return answer
        answer = self._log.next_indexed_segment(offset)
        self._probe = (offset, answer)
        return answer


async def aborted_over_the_seam(
    log: TieredLog, local: LocalLog, indexes: RemoteIndexes, *, upper: int, known: Sequence[AbortedTransaction]
) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions that are open at the seam and have records below ``upper``.

    Args:
        log: tier and local log.
        local: the committed part of the local log.
        indexes: of the tier; they keep the markers that were found.
        upper: exclusive end of a read that begins in the tier.
        known: aborted transactions that the transaction indexes have told.

    Raises:
        RetriableRemoteStorageError: a transaction has no marker yet, although the broker does not hold its records back
            any more.
        RemoteStorageError: the store does not answer.
        LogError: the local log cannot be read.
    """
    seam = log.local_start_offset
    before = None if seam is None else log.branch.segment_before(seam)
    if seam is None or before is None:
        return ()
    wanted = unexplained_transactions(await _open_at_the_end(before, indexes), known, upper=upper)
    markers = indexes.end_markers
    unseen = [producer_id for producer_id in wanted if (before.segment.id, producer_id) not in markers]
    if unseen:
        found = await asyncio.to_thread(local.end_markers, unseen, seam)
        markers.update({(before.segment.id, producer_id): marker for producer_id, marker in found.items()})
    ends = {producer_id: markers.get((before.segment.id, producer_id)) for producer_id in wanted}
    return tuple(
        marker.aborted(producer_id, first_offset)
        for producer_id, first_offset in sorted(wanted.items())
        if (marker := _decided(log, first_offset, ends[producer_id])).is_abort
    )


def _decided(log: TieredLog, first_offset: int, marker: EndMarkerAt | None) -> EndMarkerAt:
    if marker is None:
        raise RetriableRemoteStorageError(
            f"{log.partition}: a transaction that began at offset {first_offset} is neither committed nor aborted yet",
            remedy="read again: the transaction coordinator ends the transaction after its timeout at the latest",
            code=TierErrorCode.READER_BUSY,
        )
    return marker


async def _open_at_the_end(before: RemoteLogSegmentMetadata, indexes: RemoteIndexes) -> Mapping[int, int]:
    """Return the first offset of each open transaction by producer id; none where the snapshot is lost."""
    try:
        return await indexes.open_transactions(before)
    except (RemoteResourceNotFoundError, RemoteIntegrityError):
        return {}
