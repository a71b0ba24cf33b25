"""Transactions of restored batches: where they are all decided, and which of them were aborted (DESIGN 13, trap 2)."""

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from tierd.errors import CorruptIndexError
from tierd.log import (
    BatchHeader,
    CompletedTransaction,
    OpenTransactions,
    TransactionIndex,
    TransactionIndexCheck,
    iter_headers,
    open_source,
    read_end_marker,
)
from tierd.restore.log_dir.kept_batches import KeptBatches


@dataclass(slots=True)
class TransactionFacts:
    """Transactions of consecutive batches, which ``follow`` takes in the order of their offsets.

    Attributes:
        aborted: for each producer id, first and last offset of its aborted transactions, ascending; the last offset is
            that of the marker.
        wrong_indexes: logs whose transaction index lacks a transaction, or tells of one that is not there.
    """

    aborted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    wrong_indexes: set[Path] = field(default_factory=set)
    _open: OpenTransactions = field(default_factory=OpenTransactions)
    _first_offsets: "array[int]" = field(default_factory=lambda: array("q"))  # of the decided ones, by their markers
    _markers: "array[int]" = field(default_factory=lambda: array("q"))  # ascending

    def follow(self, batches: KeptBatches) -> None:
        """Take the next batches. Blocking.

        Raises:
            CorruptRecordError: a marker cannot be decoded.
            EndMarkerError: a marker that neither aborts nor commits.
            SegmentChangedError: the file changed since its check.
            LogDirOfflineError: the file cannot be read.
        """
        path = batches.log.path
        check = _index_check(path, batches.log.base_offset) if batches.is_whole else None
        if not batches.log.checked.has_transactions:
            if check is None or check.index.entries:
                self.wrong_indexes.add(path)
            return
        is_wrong = check is None
        with open_source(path) as source:
            for header in iter_headers(source, position=batches.begin, end=batches.end, may_be_torn=False):
                if not _decides(header):
                    continue
                marker = read_end_marker(source, header)
                kind = None if marker is None else marker.control_type
                completed = self._open.apply(header, kind)
                if completed is not None:
                    self._note(completed)
                if check is not None and check.follow(header, kind, completed):
                    is_wrong = True
        if is_wrong or (check is not None and check.finish()):
            self.wrong_indexes.add(path)

    def stable_end(self, end_offset: int) -> int:
        """Return the highest end up to ``end_offset`` at which no transaction is open.

        It may lie below the last stable offset of the whole log: a cut there also cuts off the markers behind it, and
        opens their transactions again.
        """
        unstable = self._open.first_unstable_offset
        end = end_offset if unstable is None else min(unstable, end_offset)
        for first_offset, marker in zip(reversed(self._first_offsets), reversed(self._markers), strict=True):
            if marker < end:
                break
            end = min(end, first_offset)
        return end

    def is_aborted(self, header: BatchHeader) -> bool:
        """Return True if the batch is data of an aborted transaction."""
        spans = self.aborted.get(header.producer_id) if header.is_transactional else None
        if not spans:
            return False
        at = bisect_left(spans, header.base_offset, key=itemgetter(1))
        return at < len(spans) and spans[at][0] <= header.base_offset

    def _note(self, completed: CompletedTransaction) -> None:
        self._first_offsets.append(completed.first_offset)
        self._markers.append(completed.last_offset)
        if completed.is_aborted:
            spans = self.aborted.setdefault(completed.producer_id, [])
            spans.append((completed.first_offset, completed.last_offset))


def _decides(header: BatchHeader) -> bool:
    """Return False for a batch outside of transactions, and for one that compaction has emptied."""
    return header.is_transactional and bool(header.record_count)


def _index_check(log: Path, base_offset: int) -> TransactionIndexCheck | None:
    """Load the fetched transaction index; None if it cannot be understood."""
    path = log.with_suffix(".txnindex")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return TransactionIndexCheck(TransactionIndex())
    try:
        index = TransactionIndex.from_bytes(content, base_offset, str(path))
    except CorruptIndexError:
        return None
    return TransactionIndexCheck(index) if index.size_bytes == len(content) else None
