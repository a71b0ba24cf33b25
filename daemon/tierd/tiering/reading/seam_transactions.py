"""Transactions that are open where the local log begins: their records are in the tier, their markers in the local log.

::

    tier         ... data of producer 7 ... ] seam
    local log                               [ ABORT of producer 7 | ...

A broker that is killed after its retention deleted the segments before the seam recovers the log without the producers
of these. The transaction index that it makes then lacks the transactions that were open at the seam, since no record of
them is in its log. The producer snapshot in the tier names them, and the local log has their markers.
"""

import asyncio
from collections.abc import Mapping, Sequence

from tierd.errors import RemoteIntegrityError, RemoteResourceNotFoundError, RetriableRemoteStorageError, TierErrorCode
from tierd.log import AbortedTransaction, EndMarkerAt, LocalLog, unexplained_transactions
from tierd.model import RemoteLogSegmentMetadata
from tierd.tiering.reading.remote_indexes import RemoteIndexes
from tierd.tiering.reading.tiered_log import TieredLog


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
    before = None if seam is None else log.remote_segment(seam - 1)
    if seam is None or before is None or before.end_offset != seam - 1:
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
