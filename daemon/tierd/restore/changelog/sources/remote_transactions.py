"""RemoteTransactions: aborted transactions and the last stable offset of remote segments (changelog-restore 3.4).

The marker of an aborted transaction may be segments behind its records, and the index entry is where the marker is.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from tierd.errors import RemoteIndexAbsentError
from tierd.log import AbortedTransaction, TransactionIndex, parse_producer_snapshot, stable_end_offset
from tierd.metadata import OwnBranch, ReadableRange
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager
from tierd.tasks import together

_AT_ONCE: Final = 8


class AbortedSearchResult(NamedTuple):
    """Aborted transactions that touch some offsets.

    Attributes:
        is_all: False if a marker behind the segments may end one more.
    """

    found: tuple[AbortedTransaction, ...]
    is_all: bool


class RemoteTransactions:
    """Reader of transaction indexes and producer snapshots, which keeps what it has read: an entry has 34 bytes."""

    def __init__(self, storage: RemoteStorageManager) -> None:
        self._storage = storage
        self._indexes: dict[UUID, TransactionIndex] = {}
        self._stable: dict[UUID, int] = {}
        self._ranges: tuple[ReadableRange, ...] = ()  # invariant: ascending; those that may name transactions
        self._ends: tuple[int, ...] = ()

    def use(self, branch: OwnBranch) -> None:
        """Search the segments of ``branch`` from now on."""
        readable = branch.readable_ranges(0, branch.end_offset)
        self._ranges = tuple(each for each in readable if not each.metadata.txn_index_empty)
        self._ends = tuple(each.end_offset for each in self._ranges)
        kept = {each.segment.id for each in branch.finished}
        self._indexes = {key: index for key, index in self._indexes.items() if key in kept}
        self._stable = {key: offset for key, offset in self._stable.items() if key in kept}

    async def aborted(self, start_offset: int, end_offset: int) -> AbortedSearchResult:
        """Return the aborted transactions that touch ``[start_offset, end_offset)``.

        Raises:
            RemoteStorageError: an index cannot be read.
            CorruptIndexError: an index is damaged.
        """
        found: dict[AbortedTransaction, None] = {}
        first = bisect_right(self._ends, start_offset)
        for at in range(first, len(self._ranges), _AT_ONCE):
            some = self._ranges[at : at + _AT_ONCE]
            for readable, index in zip(some, await self._load(some), strict=True):
                part, is_all = index.collect(start_offset, end_offset, end_offset=readable.end_offset)
                found.update(dict.fromkeys(part))
                if is_all:
                    return AbortedSearchResult(tuple(found), is_all=True)
        return AbortedSearchResult(tuple(found), is_all=False)

    async def stable_end(self, last: RemoteLogSegmentMetadata) -> int:
        """Return the begin of the earliest transaction that is open at the end of ``last``; without one, that end.

        Raises:
            RemoteStorageError: the producer snapshot cannot be read.
            CorruptIndexError: the producer snapshot is damaged.
        """
        if last.segment.id not in self._stable:
            data = await self._storage.fetch_index(last, IndexType.PRODUCER_SNAPSHOT)
            producers = parse_producer_snapshot(data, f"{last.segment} producer snapshot")
            self._stable[last.segment.id] = stable_end_offset(producers, end_offset=last.end_offset + 1)
        return self._stable[last.segment.id]

    async def _load(self, ranges: Sequence[ReadableRange]) -> list[TransactionIndex]:
        return await together(
            {f"transaction index {n}": partial(self._index, each.metadata) for n, each in enumerate(ranges)}
        )

    async def _index(self, metadata: RemoteLogSegmentMetadata) -> TransactionIndex:
        if metadata.segment.id not in self._indexes:
            try:
                data = await self._storage.fetch_index(metadata, IndexType.TRANSACTION)
            except RemoteIndexAbsentError:
                data = b""  # no transaction was aborted in the segment
            name = f"{metadata.segment} transaction index"
            self._indexes[metadata.segment.id] = TransactionIndex.from_bytes(data, metadata.start_offset, name)
        return self._indexes[metadata.segment.id]
