"""RemoteIndexes: the small artefacts of remote segments, decoded; the artefacts used last are kept in memory."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar
from uuid import UUID

from tierd.errors import CorruptIndexError, RemoteIndexAbsentError, RemoteIntegrityError
from tierd.log import (
    EndMarkerAt,
    OffsetIndex,
    OpenTransactions,
    TimeIndex,
    TransactionIndex,
    parse_producer_snapshot,
)
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.remote import SizedLru
from tierd.tiering.reading.known_batches import KnownBatches

Index = TypeVar("Index")

FetchIndex = Callable[[RemoteLogSegmentMetadata, IndexType], Awaitable[bytes]]
"""``RemoteIndexCache.read``, or where there is no cache ``RemoteStorageManager.fetch_index``."""

_KEPT_BYTES = 32 << 20
_KEPT_MARKERS = 4096
_SMALLEST_BYTES = 1 << 10  # what an entry takes besides its content


_Kept = dict[UUID, OffsetIndex] | dict[UUID, TransactionIndex] | dict[UUID, Mapping[int, int]]


class EndMarkers(OrderedDict[tuple[UUID, int], EndMarkerAt]):
    """Markers that were found, by segment id and producer id; the oldest ones beyond a capacity are forgotten."""

    def __setitem__(self, key: tuple[UUID, int], marker: EndMarkerAt) -> None:
        """Keep a marker."""
        super().__setitem__(key, marker)
        if len(self) > _KEPT_MARKERS:
            self.popitem(last=False)


class RemoteIndexes:
    """Indexes that all readers share. Time indexes are large, and one search needs one of them: they are not kept."""

    def __init__(self, fetch: FetchIndex, *, kept_bytes: int = _KEPT_BYTES, known: KnownBatches | None = None) -> None:
        """Fetch indexes by ``fetch``; readers add the places of the batches that they read to ``known``, if there."""
        self._fetch = fetch
        self.known = known
        self._order: SizedLru[tuple[UUID, IndexType]] = SizedLru(kept_bytes)
        self._offset_indexes: dict[UUID, OffsetIndex] = {}
        self._transaction_indexes: dict[UUID, TransactionIndex] = {}
        self._open_transactions: dict[UUID, Mapping[int, int]] = {}
        self.end_markers = EndMarkers()
        """Markers of transactions that are open at the end of a segment, by segment id and producer id."""
        self._kept: Mapping[IndexType, _Kept] = {
            IndexType.OFFSET: self._offset_indexes,
            IndexType.TRANSACTION: self._transaction_indexes,
            IndexType.PRODUCER_SNAPSHOT: self._open_transactions,
        }

    async def offset_index(self, metadata: RemoteLogSegmentMetadata) -> OffsetIndex:
        """Return the offset index of a remote segment."""
        segment_id = metadata.segment.id
        if self._order.use((segment_id, IndexType.OFFSET)):
            return self._offset_indexes[segment_id]
        data = await self._fetch(metadata, IndexType.OFFSET)
        index = await _decoded(OffsetIndex.from_bytes, data, metadata.start_offset, metadata, IndexType.OFFSET)
        self._offset_indexes[segment_id] = index
        self._keep(segment_id, IndexType.OFFSET, len(data))
        return index

    async def transaction_index(self, metadata: RemoteLogSegmentMetadata) -> TransactionIndex:
        """Return the transaction index of a remote segment; empty for a segment that never had one.

        Raises:
            RemoteResourceNotFoundError: the segment's objects are gone; nothing is known of its transactions then.
        """
        if metadata.txn_index_empty:
            return TransactionIndex()
        segment_id = metadata.segment.id
        if self._order.use((segment_id, IndexType.TRANSACTION)):
            return self._transaction_indexes[segment_id]
        try:
            data = await self._fetch(metadata, IndexType.TRANSACTION)
        except RemoteIndexAbsentError:
            data = b""  # "not known to be empty" is all that the metadata said
        index = await _decoded(
            TransactionIndex.from_bytes, data, metadata.start_offset, metadata, IndexType.TRANSACTION
        )
        self._transaction_indexes[segment_id] = index
        self._keep(segment_id, IndexType.TRANSACTION, 4 * len(data))
        return index

    async def stable_end(self, metadata: RemoteLogSegmentMetadata) -> int:
        """Return the last stable offset at the end of a segment: below it every transaction is decided. Exclusive.

        Raises:
            RemoteResourceNotFoundError: the segment's objects are gone, or its producer snapshot is.
        """
        end_offset = metadata.end_offset + 1
        return min((*(await self.open_transactions(metadata)).values(), end_offset))

    async def open_transactions(self, metadata: RemoteLogSegmentMetadata) -> Mapping[int, int]:
        """Return the first offset of each transaction that is open at the end of a segment, by producer id.

        Raises:
            RemoteResourceNotFoundError: the segment's objects are gone, or its producer snapshot is.
        """
        segment_id = metadata.segment.id
        if self._order.use((segment_id, IndexType.PRODUCER_SNAPSHOT)):
            return self._open_transactions[segment_id]
        data = await self._fetch(metadata, IndexType.PRODUCER_SNAPSHOT)
        found = await _decoded(_open_transactions, data, metadata.end_offset + 1, metadata, IndexType.PRODUCER_SNAPSHOT)
        self._open_transactions[segment_id] = found
        self._keep(segment_id, IndexType.PRODUCER_SNAPSHOT, 100 * len(found))
        return found

    async def lookup_offset(self, metadata: RemoteLogSegmentMetadata, offset: int) -> int:
        """Return the position where to begin to look for ``offset``: 0 below the first entry (remote-tiering 16)."""
        return (await self.offset_index(metadata)).lookup(offset).position

    async def lookup_timestamp(self, metadata: RemoteLogSegmentMetadata, timestamp_ms: int, start_offset: int) -> int:
        """Return the position where to begin to look for ``timestamp_ms`` at or behind ``start_offset``."""
        data = await self._fetch(metadata, IndexType.TIMESTAMP)
        index = await _decoded(TimeIndex.from_bytes, data, metadata.start_offset, metadata, IndexType.TIMESTAMP)
        # What lies at or below the entry's offset is no younger than the entry, which is too old.
        return await self.lookup_offset(metadata, max(index.lookup(timestamp_ms).offset, start_offset))

    def _keep(self, segment_id: UUID, index_type: IndexType, size_bytes: int) -> None:
        self._order.add((segment_id, index_type), size_bytes + _SMALLEST_BYTES)
        for evicted_id, evicted_type in self._order.evict():
            del self._kept[evicted_type][evicted_id]


async def _decoded(
    decode: Callable[[bytes, int, str], Index],
    data: bytes,
    offset: int,
    metadata: RemoteLogSegmentMetadata,
    index_type: IndexType,
) -> Index:
    """Decode in a thread: the index of a segment of 1 GiB takes a while.

    Raises:
        RemoteIntegrityError: ``data`` is no such index.
    """
    name = f"{metadata.segment} {index_type.value} index"
    try:
        return await asyncio.to_thread(decode, data, offset, name)
    except CorruptIndexError as error:
        raise RemoteIntegrityError(str(error), remedy=error.remedy) from error


def _open_transactions(data: bytes, end_offset: int, name: str) -> Mapping[int, int]:
    found = OpenTransactions.from_snapshot(parse_producer_snapshot(data, name)).first_offsets
    return {producer_id: first for producer_id, first in found.items() if first < end_offset}
