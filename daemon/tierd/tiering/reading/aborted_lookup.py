"""Aborted transactions that touch some offsets, looked up in tier and local log (remote-tiering 14.4)."""

import asyncio

from tierd.log import AbortedTransaction, LocalLog
from tierd.metadata import ReadableRange
from tierd.tiering.reading.remote_indexes import RemoteIndexes
from tierd.tiering.reading.seam_transactions import aborted_over_the_seam
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
            RetriableRemoteStorageError: as ``aborted_over_the_seam``.
        """
        found: dict[AbortedTransaction, None] = {}
        if self._log.tier_of(from_offset) is Tier.REMOTE or not self._is_decided_locally(upper):
            segment = self._next_indexed(from_offset)
            while segment is not None:
                index = await self._indexes.transaction_index(segment.metadata)
                part, complete = index.collect(from_offset, upper, end_offset=segment.end_offset)
                found.update(dict.fromkeys(part))
                if complete:
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
        return tuple(found)

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
