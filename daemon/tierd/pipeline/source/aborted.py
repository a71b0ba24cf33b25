"""Aborted transactions that a split has to know; their markers may lie in later segments, or still on the host."""

from collections.abc import Iterator, Mapping, Sequence
from uuid import UUID

from tierd.errors import CorruptIndexError, RemoteIntegrityError
from tierd.log import (
    AbortedTransaction,
    OpenTransactions,
    TransactionIndex,
    parse_producer_snapshot,
    unexplained_transactions,
)
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.pipeline.access import OpenTier
from tierd.pipeline.pipeline_errors import DataLossError
from tierd.pipeline.source.local_tail import LocalTail
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
        local_start, local_end = (None, 0) if tail is None else (tail.start_offset, tail.high_watermark)
        hole = branch.hole_from(start_offset, local_start=local_start, local_end=local_end)
        for readable in branch.readable_ranges(start_offset, branch.end_offset):
            if readable.metadata.txn_index_empty:
                continue
            if readable.metadata.segment.id not in self._known:
                self._load([readable.metadata])
            index = self._known[readable.metadata.segment.id]
            part, is_all = index.collect(start_offset, end_offset, end_offset=readable.end_offset)
            found.update(dict.fromkeys(part))
            if is_all and (hole is None or readable.start_offset < hole):
                return tuple(found)
        if tail is not None:
            found.update(dict.fromkeys(tail.aborted(start_offset, end_offset)))
            if start_offset < tail.start_offset:
                found.update(dict.fromkeys(self._over_the_seam(tail, end_offset, tuple(found))))
        if hole is not None:
            self._require_no_end_in(hole, end_offset, tuple(found))
        return tuple(found)

    def _require_no_end_in(self, hole: int, end_offset: int, known: Sequence[AbortedTransaction]) -> None:
        """Refuse rows of a transaction whose marker may be in no place, as ``AbortedLookup`` of the daemon's reader."""
        before = self._snapshot.branch.segment_before(hole)
        if before is None:
            return
        undecided = unexplained_transactions(self._open_at_the_end(before), known, upper=end_offset)
        if undecided:
            raise DataLossError(
                f"{before.segment.topic_id_partition}: the transaction that began at offset {min(undecided.values())} "
                f"was committed or aborted at offset {hole} or later, and these offsets are not in the tier yet",
                remedy="load the data frame again once they are; tierd status says what the copy waits for",
            )

    def _open_at_the_end(self, segment: RemoteLogSegmentMetadata) -> Mapping[int, int]:
        data = self._tier.read_index(segment, IndexType.PRODUCER_SNAPSHOT)
        producers = parse_producer_snapshot(data, f"{segment.segment} producer snapshot")
        return OpenTransactions.from_snapshot(producers).first_offsets

    def _over_the_seam(
        self, tail: LocalTail, end_offset: int, known: Sequence[AbortedTransaction]
    ) -> Iterator[AbortedTransaction]:
        """Yield the aborted transactions that were open where the local log begins, and that its broker has forgotten.

        As ``aborted_over_the_seam`` of the daemon's reader.
        """
        seam = tail.start_offset
        before = self._snapshot.branch.segment_before(seam)
        if before is None:
            return
        wanted = unexplained_transactions(self._open_at_the_end(before), known, upper=end_offset)
        markers = tail.end_markers(list(wanted), seam) if wanted else {}
        for producer_id, first_offset in wanted.items():
            if producer_id not in markers:
                name = before.segment.topic_id_partition
                raise DataLossError(
                    f"{name}: a transaction that began at offset {first_offset} is neither committed nor aborted yet",
                    remedy="load the data frame again once the transaction coordinator has ended the transaction",
                )
            if markers[producer_id].is_abort:
                yield markers[producer_id].aborted(producer_id, first_offset)

    def _load(self, segments: Sequence[RemoteLogSegmentMetadata]) -> None:
        indexes = self._tier.read_indexes(segments, IndexType.TRANSACTION)
        for metadata, data in zip(segments, indexes, strict=True):
            name = f"{metadata.segment} transaction index"
            try:
                index = TransactionIndex.from_bytes(data, metadata.start_offset, name)
            except CorruptIndexError as error:
                raise RemoteIntegrityError(str(error), remedy=error.remedy) from error
            self._known[metadata.segment.id] = index
