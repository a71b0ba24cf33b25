"""BatchRewriter: takes a group's batches one by one, and writes what stays of each (log-format 9.4 to 9.6)."""

from collections.abc import Collection

import numpy as np

from tierd.log import AbortedTransaction, ControlRecordType, RecordBatch
from tierd.pipeline.rewriting.fate import Fate, discards_records, fate_of, needs_horizon
from tierd.pipeline.rewriting.new_batch import NewBatch
from tierd.pipeline.rewriting.offset_set import OffsetSet
from tierd.pipeline.rewriting.output_log import OutputLog
from tierd.pipeline.rewriting.rows import RecordRows, rows_of
from tierd.pipeline.rewriting.rules import RewriteRules
from tierd.pipeline.rewriting.statistics import RewriteStatistics
from tierd.pipeline.rewriting.stretch import Stretch
from tierd.pipeline.rewriting.survivors import Survivors
from tierd.pipeline.rewriting.transactions import AbortedTransactions, TransactionPass

_UNKNOWN = np.zeros(0, dtype=np.uint8)


class BatchRewriter:
    """One pass over one group.

    Attributes:
        statistics: so far.
        aborted: the aborted transactions whose marker is in the output and still matters, ascending.
    """

    def __init__(
        self, rules: RewriteRules, latest: OffsetSet | None, output: OutputLog, *, open_producers: Collection[int]
    ) -> None:
        """Begin where the group does; the arguments are those of ``rewrite_group``.

        Raises:
            ValueError: the rules compact, and ``latest`` is None.
        """
        self.statistics = RewriteStatistics()
        self.aborted: list[AbortedTransaction] = []
        self._rules = rules
        self._output = output
        self._survivors = Survivors(rules, latest)
        self._transactions = TransactionPass(AbortedTransactions.of(rules.aborted), open_producers)

    def take(self, stretch: Stretch) -> None:
        """Take the next batches.

        Raises:
            InvalidRecordError: the records of one cannot be decoded.
            OffsetOverflowError: as ``OutputLog.append``.
            OSError: as ``OutputLog.append``.
        """
        rows = stretch.rows
        reasons = _UNKNOWN if rows is None else self._survivors.reasons(rows)
        for batch, first, end in stretch.parts:
            self.statistics.batches_read += 1
            self.statistics.bytes_read += batch.size_bytes
            if batch.is_control:
                self._take_control(batch)
            elif self._transactions.on_data(batch) and self._rules.compacts:
                self.statistics.records_read += batch.record_count
                self.statistics.records_aborted += batch.record_count
                self._discard(batch)
            elif rows is None:
                opened = rows_of(batch)
                self._take_data(batch, opened, self._survivors.reasons(opened))
            else:
                self._take_data(batch, rows.part(first, end), reasons[first:end])

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
        fate = fate_of(batch, self._rules, kept_count=count, record_count=count, sets_horizon=sets_horizon)
        self._end(batch, fate, None, None, self._horizon_ms(is_set=sets_horizon))

    def _take_data(self, batch: RecordBatch, rows: RecordRows, reasons: np.ndarray) -> None:
        reasons = self._survivors.reasons_in(batch, reasons, rows.value_size)
        self.statistics.count(reasons)
        keep = np.logical_not(reasons)  # Reason.NONE is 0
        keeps_tombstone = self._rules.compacts and bool(rows.value_size[keep].min(initial=0) < 0)
        sets_horizon = needs_horizon(batch, keeps_tombstone=keeps_tombstone, is_discardable=False)
        kept_count = int(np.count_nonzero(keep))
        fate = fate_of(batch, self._rules, kept_count=kept_count, record_count=rows.size, sets_horizon=sets_horizon)
        self._end(batch, fate, rows, keep, self._horizon_ms(is_set=sets_horizon))

    def _discard(self, batch: RecordBatch) -> None:
        """End a batch whose records all go, undecoded."""
        count = batch.record_count
        fate = fate_of(batch, self._rules, kept_count=0, record_count=count, sets_horizon=False)
        self._end(batch, fate, None, None, None)

    def _horizon_ms(self, *, is_set: bool) -> int | None:
        return self._rules.delete_horizon_ms if is_set else None

    def _end(
        self,
        batch: RecordBatch,
        fate: Fate,
        rows: RecordRows | None,
        keep: np.ndarray | None,
        horizon_ms: int | None,
    ) -> None:
        """Write what stays: the records of ``keep``, or all of them; ``rows`` are None of an unopened batch."""
        match fate:
            case Fate.COPIED:
                self._append(fate, NewBatch.copied(batch, rows))
            case Fate.REWRITTEN:
                rows = rows_of(batch) if rows is None else rows
                keep = np.ones(rows.size, dtype=np.bool_) if keep is None else keep
                self._append(fate, NewBatch.of_kept(batch, rows, keep, horizon_ms))
            case Fate.EMPTIED:
                self._append(fate, NewBatch.emptied(batch, rows))
            case Fate.REMOVED:
                self.statistics.batches_removed += 1

    def _append(self, fate: Fate, new: NewBatch) -> None:
        self._output.append(new)
        counted = self.statistics
        counted.bytes_written += len(new.data)
        counted.records_kept += new.record_count
        counted.batches_copied += fate is Fate.COPIED
        counted.batches_rewritten += fate is Fate.REWRITTEN
        counted.batches_emptied += fate is Fate.EMPTIED
