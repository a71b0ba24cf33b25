"""BatchRewriter: takes a group's batches in order, and writes what stays of each (log-format 9.4 to 9.6)."""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Protocol

import numpy as np

from tierd.errors import BatchTooLargeError
from tierd.log import AbortedTransaction, ControlRecordType, RecordBatch
from tierd.pipeline.rewriting.batch_disposition import BatchDisposition, discards_records, disposition_of, needs_horizon
from tierd.pipeline.rewriting.checked_run import CheckedRun
from tierd.pipeline.rewriting.key_hashing import KeyHashing
from tierd.pipeline.rewriting.new_batch import NewBatch
from tierd.pipeline.rewriting.plain_batches import NewBatches, plain_batches, rewrite_plain
from tierd.pipeline.rewriting.record_rows import Opened, RecordRows, open_batch
from tierd.pipeline.rewriting.rewrite_statistics import RewriteStatistics
from tierd.pipeline.rewriting.rules import RewriteRules
from tierd.pipeline.rewriting.survivors import LatestRecords, Reason, Survivors
from tierd.pipeline.rewriting.transaction_pass import AbortedTransactions, TransactionPass
from tierd.pipeline.rewriting.unread import UnreadBatches, rules_behind, unread_disposition


class BatchOutput(Protocol):
    """Destination of the batches that stay."""

    def append(self, batch: NewBatch) -> None:
        """Append a batch."""

    def append_all(self, batches: NewBatches) -> None:
        """Append batches."""


class BatchRewriter:
    """One pass over one group.

    Attributes:
        statistics: counts so far.
        aborted: the aborted transactions whose marker is in the output and still matters, ascending.
        erased: number of removed records by erased key.
    """

    def __init__(
        self,
        rules: RewriteRules,
        latest: LatestRecords | None,
        output: BatchOutput,
        *,
        open_producers: Collection[int],
        unread: UnreadBatches | None = None,
        hashing: KeyHashing | None = None,
    ) -> None:
        """Begin at the start of the group.

        Args:
            rules: as ``rewrite_group``.
            latest: as ``rewrite_group``.
            output: of the group.
            open_producers: as ``rewrite_group``.
            unread: for a pass over the whole log in order, group after group: the batches so far that could not be
                opened, to which the rewriter adds the next ones. None where the rules have ``unread_from``.
            hashing: gathers the hashes of the keys in the output, if given.

        Raises:
            ValueError: the rules compact, and ``latest`` is None.
        """
        self.statistics = RewriteStatistics()
        self.aborted: list[AbortedTransaction] = []
        self.erased: Counter[bytes] = Counter()
        self._rules = rules if unread is None else rules_behind(unread, rules)
        self._latest = latest
        self._unread = unread
        self._output = output
        self._hashing = hashing
        self._survivors = Survivors(self._rules, latest)
        self._transactions = TransactionPass(AbortedTransactions.of(rules.aborted), open_producers)

    @property
    def open_producers(self) -> frozenset[int]:
        """Return the producers whose transaction is open where the next group begins."""
        return self._transactions.open_producers

    def take(self, found: CheckedRun | RecordBatch) -> None:
        """Take the next batches.

        Raises:
            BatchTooLargeError: a batch cannot be opened, and the rules do not cover it.
            InvalidRecordError: the records of a batch cannot be decoded.
            OffsetOverflowError: as ``OutputLog.append``.
            OSError: as ``OutputLog.append``.
        """
        if not isinstance(found, CheckedRun):
            self._take_batch(found, None, None)
            return
        reasons = self._survivors.reasons(found.rows)
        keep = np.logical_not(reasons)  # Reason.NONE is 0
        is_plain = plain_batches(found, keep, self._rules)
        for first, end in _runs(is_plain):
            if is_plain[first]:
                rows = slice(*found.first_rows[[first, end]].tolist())
                self._take_plain(found.part(first, end), reasons[rows], keep[rows])
                continue
            for index in range(first, end):
                one = found.part(index, index + 1)
                opened = Opened(one.rows, one.records(0))
                self._take_batch(one.batch(0), opened, reasons[slice(*found.first_rows[index : index + 2].tolist())])

    def _take_plain(self, run: CheckedRun, reasons: np.ndarray, keep: np.ndarray) -> None:
        """Take neighbouring batches, all of which ``plain_batches`` has chosen."""
        self.statistics.batches_read += len(run)
        self.statistics.bytes_read += int(run.bounds[-1] - run.bounds[0])
        self._count(run.rows, reasons)
        new = rewrite_plain(run, keep)
        left = 0
        if new is not None:
            left = len(new.ends)
            self._output.append_all(new)
            if self._hashing is not None:
                self._hashing.add(run.rows, keep)
            self.statistics.bytes_written += len(new.data)
            self.statistics.records_kept += int(new.record_counts.sum())
            self.statistics.batches_copied += new.copied_count
            self.statistics.batches_rewritten += left - new.copied_count
        self.statistics.batches_removed += len(run) - left

    def _take_batch(self, batch: RecordBatch, opened: Opened | None, reasons: np.ndarray | None) -> None:
        """Take one batch; ``opened`` and ``reasons`` are None for a batch that is not opened yet."""
        self.statistics.batches_read += 1
        self.statistics.bytes_read += batch.size_bytes
        if batch.is_control:
            self._take_control(batch)
        elif self._transactions.on_data(batch) and self._rules.compacts:
            self.statistics.records_read += batch.record_count
            self.statistics.records_aborted += batch.record_count
            self._discard(batch)
        else:
            try:
                opened = open_batch(batch) if opened is None else opened
            except BatchTooLargeError:
                self._note_unread(batch)
                disposition = unread_disposition(batch, self._rules)
                if disposition is None:
                    raise
                self._take_unread(batch, disposition)
                return
            self._take_data(batch, opened, self._survivors.reasons(opened.rows) if reasons is None else reasons)

    def _note_unread(self, batch: RecordBatch) -> None:
        """Apply the rules for batches behind an unopened one from here on, if this pass notes unopened batches."""
        if self._unread is not None:
            self._unread.note(batch)
            self._rules = rules_behind(self._unread, self._rules)
            self._survivors = Survivors(self._rules, self._latest)

    def _take_unread(self, batch: RecordBatch, disposition: BatchDisposition) -> None:
        """Take a batch that cannot be opened."""
        count = max(batch.record_count, 1)
        self.statistics.batches_unread += 1
        self.statistics.records_read += count
        if disposition is BatchDisposition.COPIED:
            if self._hashing is not None:
                self._hashing.refuse()
            self._append(disposition, NewBatch.unread(batch))
            return
        self.statistics.records_erased += count
        self._end(batch, disposition, None, None, None)

    def _take_control(self, batch: RecordBatch) -> None:
        control_type, count = batch.control_type(), batch.record_count
        is_discardable = self._transactions.on_control(batch, control_type) and self._rules.compacts
        self.statistics.records_read += count
        if discards_records(batch, is_discardable=is_discardable, now_ms=self._rules.now_ms):
            self.statistics.records_marker += count
            self._discard(batch)
            return
        if control_type is ControlRecordType.ABORT and not is_discardable:
            entry = self._transactions.entry_of(batch)
            self.aborted += [entry] if entry is not None else []
        sets_horizon = needs_horizon(batch, keeps_tombstone=False, is_discardable=is_discardable)
        disposition = disposition_of(
            batch, self._rules, kept_count=count, record_count=count, sets_horizon=sets_horizon
        )
        self._end(batch, disposition, None, None, self._horizon_ms(is_set=sets_horizon))

    def _take_data(self, batch: RecordBatch, opened: Opened, reasons: np.ndarray) -> None:
        rows = opened.rows
        reasons = self._survivors.reasons_in(batch, reasons, rows.value_size)
        self._count(rows, reasons)
        keep = np.logical_not(reasons)  # Reason.NONE is 0
        keeps_tombstone = self._rules.compacts and bool(rows.value_size[keep].min(initial=0) < 0)
        sets_horizon = needs_horizon(batch, keeps_tombstone=keeps_tombstone, is_discardable=False)
        kept_count = int(np.count_nonzero(keep))
        disposition = disposition_of(
            batch, self._rules, kept_count=kept_count, record_count=rows.size, sets_horizon=sets_horizon
        )
        self._end(batch, disposition, opened, keep, self._horizon_ms(is_set=sets_horizon))

    def _count(self, rows: RecordRows, reasons: np.ndarray) -> None:
        self.statistics.count(reasons)
        self.erased.update(rows.key(index) for index in np.flatnonzero(reasons == Reason.ERASED).tolist())

    def _discard(self, batch: RecordBatch) -> None:
        """End a batch whose records are all removed, undecoded."""
        count = batch.record_count
        disposition = disposition_of(batch, self._rules, kept_count=0, record_count=count, sets_horizon=False)
        self._end(batch, disposition, None, None, None)

    def _horizon_ms(self, *, is_set: bool) -> int | None:
        return self._rules.delete_horizon_ms if is_set else None

    def _end(
        self,
        batch: RecordBatch,
        disposition: BatchDisposition,
        opened: Opened | None,
        keep: np.ndarray | None,
        horizon_ms: int | None,
    ) -> None:
        """Write what stays: the records of ``keep``, or all of them; ``opened`` is None for an unopened batch."""
        if self._hashing is not None and disposition is not BatchDisposition.REMOVED:
            _hash(self._hashing, batch, disposition, opened, keep)
        match disposition:
            case BatchDisposition.COPIED:
                self._append(disposition, NewBatch.copied(batch, None if opened is None else opened.rows))
            case BatchDisposition.REWRITTEN:
                opened = open_batch(batch) if opened is None else opened
                keep = np.ones(opened.rows.size, dtype=np.bool_) if keep is None else keep
                self._append(disposition, NewBatch.of_kept(batch, opened, keep, horizon_ms))
            case BatchDisposition.EMPTIED:
                self._append(disposition, NewBatch.emptied(batch, None if opened is None else opened.rows))
            case BatchDisposition.REMOVED:
                self.statistics.batches_removed += 1

    def _append(self, disposition: BatchDisposition, new: NewBatch) -> None:
        self._output.append(new)
        counted = self.statistics
        counted.bytes_written += len(new.data)
        counted.records_kept += new.record_count
        counted.batches_copied += disposition is BatchDisposition.COPIED
        counted.batches_rewritten += disposition is BatchDisposition.REWRITTEN
        counted.batches_emptied += disposition is BatchDisposition.EMPTIED


def _hash(
    hashing: KeyHashing,
    batch: RecordBatch,
    disposition: BatchDisposition,
    opened: Opened | None,
    keep: np.ndarray | None,
) -> None:
    """Have the keys hashed that a batch has in the output."""
    if batch.is_control or batch.is_transactional:
        hashing.refuse()
    elif disposition is not BatchDisposition.EMPTIED:
        if opened is None or keep is None:  # its records are not known here
            hashing.refuse()
        else:
            hashing.add(opened.rows, keep)


def _runs(flags: np.ndarray) -> Iterator[tuple[int, int]]:
    """Return the begin and the exclusive end of each run of equal neighbours."""
    changes = (np.flatnonzero(flags[1:] != flags[:-1]) + 1).tolist()
    return zip([0, *changes], [*changes, flags.size], strict=True)
