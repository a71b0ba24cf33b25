"""Aborted transactions that a split has to know; their markers may lie in later segments, or still on the host."""

from collections.abc import Sequence
from uuid import UUID

from tierd.errors import CorruptIndexError, RemoteIntegrityError
from tierd.log import AbortedTransaction, TransactionIndex
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.pipeline.access import OpenTier
from tierd.pipeline.source.partition_snapshot import PartitionSnapshot
from tierd.pipeline.source.splits import Split


class AbortedSearch:
    """Search in the transaction indexes of one partition, each of which is read once."""

    def __init__(self, tier: OpenTier, snapshot: PartitionSnapshot) -> None:
        self._tier = tier
        self._snapshot = snapshot
        self._known: dict[UUID, TransactionIndex] = {}

    def prepare(self, splits: Sequence[Split]) -> None:
        """Read the indexes that the splits of the partition surely need, several at a time.

        Raises:
            RemoteIntegrityError: an index is damaged.
            RemoteStorageError: the store failed.
        """
        if splits:
            start, end = splits[0].start_offset, splits[-1].end_offset
            sources = [readable.metadata for readable in self._snapshot.readable_ranges(start, end)]
            self._load([metadata for metadata in sources if not metadata.txn_index_empty])

    def touching(self, start_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that touch ``[start_offset, end_offset)``, each once (remote-tiering 14.4).

        Raises:
            DataLossError: a local index is gone meanwhile.
            RemoteIntegrityError: an index is damaged.
            RemoteStorageError: the store failed.
        """
        found: dict[AbortedTransaction, None] = {}
        branch, tail = self._snapshot.branch, self._snapshot.tail
        for readable in branch.readable_ranges(start_offset, branch.end_offset):
            if readable.metadata.txn_index_empty:
                continue
            if readable.metadata.segment.id not in self._known:
                self._load([readable.metadata])
            index = self._known[readable.metadata.segment.id]
            part, is_all = index.collect(start_offset, end_offset, end_offset=readable.end_offset)
            found.update(dict.fromkeys(part))
            if is_all:
                return tuple(found)
        if tail is not None:
            found.update(dict.fromkeys(tail.aborted(start_offset, end_offset)))
        return tuple(found)

    def _load(self, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
        indexes = self._tier.read_indexes(segments, IndexType.TRANSACTION)
        for metadata, data in zip(segments, indexes, strict=True):
            name = f"{metadata.segment} transaction index"
            try:
                index = TransactionIndex.from_bytes(data, metadata.start_offset, name)
            except CorruptIndexError as error:
                raise RemoteIntegrityError(str(error), remedy=error.remedy) from error
            self._known[metadata.segment.id] = index
