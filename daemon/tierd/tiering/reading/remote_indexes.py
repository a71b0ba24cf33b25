"""RemoteIndexes: offset and transaction indexes of remote segments, the ones used last kept in memory."""

from collections import OrderedDict
from typing import Generic, TypeVar
from uuid import UUID

from tierd.errors import CorruptIndexError, RemoteIntegrityError, RemoteResourceNotFoundError
from tierd.log import OffsetIndex, TransactionIndex
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager

Value = TypeVar("Value")

_INDEXES_KEPT = 64


class _Recent(Generic[Value]):
    """The values used last, by segment id."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[UUID, Value] = OrderedDict()

    def get(self, key: UUID) -> Value | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: UUID, value: Value) -> Value:
        self._values[key] = value
        if len(self._values) > self._limit:
            self._values.popitem(last=False)
        return value


class RemoteIndexes:
    """What the readers of one partition share."""

    def __init__(self, remote: RemoteStorageManager) -> None:
        self._remote = remote
        self._offset_indexes: _Recent[OffsetIndex] = _Recent(_INDEXES_KEPT)
        self._transaction_indexes: _Recent[TransactionIndex] = _Recent(_INDEXES_KEPT)

    async def offset_index(self, metadata: RemoteLogSegmentMetadata) -> OffsetIndex:
        """The offset index of a remote segment."""
        segment_id = metadata.segment.id
        known = self._offset_indexes.get(segment_id)
        if known is not None:
            return known
        data = await self._remote.fetch_index(metadata, IndexType.OFFSET)
        try:
            index = OffsetIndex.from_bytes(data, metadata.start_offset, f"{metadata.segment} offset index")
        except CorruptIndexError as error:
            raise RemoteIntegrityError(str(error), remedy=error.remedy) from error
        return self._offset_indexes.put(segment_id, index)

    async def transaction_index(self, metadata: RemoteLogSegmentMetadata) -> TransactionIndex:
        """The transaction index of a remote segment; one that is not there is empty."""
        if metadata.txn_index_empty:
            return TransactionIndex()
        segment_id = metadata.segment.id
        known = self._transaction_indexes.get(segment_id)
        if known is not None:
            return known
        try:
            data = await self._remote.fetch_index(metadata, IndexType.TRANSACTION)
        except RemoteResourceNotFoundError:
            data = b""  # "not known to be empty" is all that the metadata said
        try:
            index = TransactionIndex.from_bytes(data, metadata.start_offset, f"{metadata.segment} transaction index")
        except CorruptIndexError as error:
            raise RemoteIntegrityError(str(error), remedy=error.remedy) from error
        return self._transaction_indexes.put(segment_id, index)
