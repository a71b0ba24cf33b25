"""CachedReads: reads whose batches lie at known places in files of the chunk cache, and do not pass through memory.

::

    KnownBatches: where are the batches? ──► checked files of their chunks ──► places in files, sent with sendfile
         └─ not known, or not on disk ──► None: the batches have to be read (``FetchTask.read``), and are known then
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from tierd.log import AbortedTransaction
from tierd.model import ByteRange, RemoteLogSegmentMetadata
from tierd.remote import CachedBytes
from tierd.tiering.reading.known_batches import BatchPlace, KnownBatches
from tierd.tiering.reading.reading_bounds import remote_end
from tierd.tiering.reading.tiered_log import TieredLog

_KNOWN_BYTES: Final = 8 << 20


class CachedLogs(Protocol):
    """Logs of remote segments as far as a cache on disk has them."""

    async def open_cached(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> list[CachedBytes] | None:
        """Return the places of ``byte_range`` in checked files; None where it has to be fetched."""


class CachedPlace(NamedTuple):
    """Place of successive batches in a segment."""

    metadata: RemoteLogSegmentMetadata
    batches: BatchPlace


@dataclass(frozen=True, slots=True)
class CachedResult:
    """Answer to a fetch: whole batches of one segment, in files of the chunk cache.

    Attributes:
        pieces: the bytes, in order; a batch may lie across two of them.
        next_offset: the offset at which the next read begins.
        aborted: as in ``FetchResult``.
    """

    pieces: tuple[CachedBytes, ...]
    next_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()


class CachedReads:
    """Places of batches and the files that they lie in, of all partitions."""

    def __init__(self, logs: CachedLogs, *, known_bytes: int = _KNOWN_BYTES) -> None:
        """Find files by ``logs``, and keep the places of batches in ``known_bytes`` of memory."""
        self._logs = logs
        self.known = KnownBatches(capacity_bytes=known_bytes)

    def find(
        self, log: TieredLog, offset: int, *, end_offset: int, max_bytes: int, at_least_one: bool
    ) -> CachedPlace | None:
        """Return the place of the batches that a read of the tier at ``offset`` returns, if it is known."""
        metadata = log.remote_segment(offset)
        if metadata is None:
            return None
        place = self.known.find(
            metadata.segment,
            offset,
            end_offset=min(remote_end(log, metadata, offset), end_offset),
            end_position=metadata.size_bytes,
            max_bytes=max_bytes,
            at_least_one=at_least_one,
        )
        return None if place is None else CachedPlace(metadata, place)

    async def open(self, found: CachedPlace) -> list[CachedBytes] | None:
        """Return the batches of a place in their files, None if these are not all on disk."""
        batches = found.batches
        return await self._logs.open_cached(found.metadata, ByteRange(batches.start, batches.end - 1))
