"""Scans of a log: the hashes and offsets of its keys, and the offsets of certain keys."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tierd.errors import BatchTooLargeError
from tierd.kernels import STEP_RECORDS, hash_keys
from tierd.log import IS_CONTROL, IS_TRANSACTIONAL, RecordBatch
from tierd.pipeline.rewriting.checked_run import CheckedRun, iter_runs
from tierd.pipeline.rewriting.record_rows import RecordRows, open_batch
from tierd.pipeline.rewriting.rules import RewriteRules
from tierd.pipeline.rewriting.survivors import KeySet
from tierd.pipeline.rewriting.transaction_pass import AbortedTransactions, TransactionTrace
from tierd.pipeline.rewriting.unread import UnreadBatches


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Hashed keys of records, ascending in offset.

    Attributes:
        hash_hi: int64[n], upper half of the keys' hashes.
        hash_lo: int64[n], lower half.
        offset: int64[n].
    """

    hash_hi: np.ndarray
    hash_lo: np.ndarray
    offset: np.ndarray

    def __len__(self) -> int:
        return self.offset.size


def scan_keys(
    pieces: Iterable[bytes | memoryview],
    rules: RewriteRules,
    *,
    name: str,
    secret: bytes,
    step: int = STEP_RECORDS,
    trace: TransactionTrace | None = None,
    unread: UnreadBatches | None = None,
) -> Iterator[KeyColumns]:
    """Yield the hashed keys of all records of live data: no control records, no aborted ones.

    Args:
        pieces: consecutive bytes of a log, or of a part of it that begins with a batch.
        rules: of the pass; only ``aborted`` is used.
        name: of the log, for errors.
        secret: 16 bytes, the same throughout a run.
        step: number of records that are yielded at least at a time, except for the last ones.
        trace: takes note of every batch that matters to it, if given, and is complete at the end of the iteration.
        unread: takes note of every batch of live data that cannot be opened, if given; decisions about other records
            have to consider these batches.

    Raises:
        BatchTooLargeError: a batch cannot be opened, and ``unread`` is None.
        CorruptRecordError: a batch is damaged.
        ValueError: the secret is not of 16 bytes.
    """
    hider = _Hider(AbortedTransactions.of(rules.aborted), TransactionTrace() if trace is None else trace, unread)
    waiting: list[KeyColumns] = []
    count = 0
    for found in iter_runs(pieces, name=name):
        rows = hider.rows(found)
        if rows is None:
            continue
        waiting.append(keys_of(rows, secret))
        count += len(waiting[-1])
        if count >= step:
            yield _joined(waiting)
            waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def find_keys(
    pieces: Iterable[bytes | memoryview],
    keys: Collection[bytes],
    *,
    name: str,
    unread: UnreadBatches | None = None,
) -> Iterator[np.ndarray]:
    """Yield the offsets, int64[n] ascending, of every record with one of ``keys``, be it superseded or aborted.

    Args:
        pieces: consecutive bytes of a log, or of a part of it that begins with a batch.
        keys: the keys that are searched.
        name: of the log, for errors.
        unread: takes note of every batch of data that cannot be opened, if given.

    Raises:
        BatchTooLargeError: a batch cannot be opened, and ``unread`` is None.
        CorruptRecordError: a batch is damaged.
    """
    wanted = KeySet(keys)
    for found in iter_runs(pieces, name=name):
        if isinstance(found, CheckedRun):
            rows = found.rows
            matches = wanted.matches(rows) & ~found.rows_in(found.flagged(IS_CONTROL))
        else:
            opened = None if found.is_control else _rows_of(found, unread)
            if opened is None:
                continue
            rows, matches = opened, wanted.matches(opened)
        if matches.any():
            yield rows.offset[matches]


@dataclass(frozen=True, slots=True)
class _Hider:
    """Filter that lets the records of live data pass, and takes note of transactional and control batches."""

    aborted: AbortedTransactions
    trace: TransactionTrace
    unread: UnreadBatches | None

    def rows(self, found: CheckedRun | RecordBatch) -> RecordRows | None:
        """Return the rows that are no control records and were not aborted; None without any."""
        if not isinstance(found, CheckedRun):
            return None if self._is_hidden(found) else _rows_of(found, self.unread)
        flagged = np.flatnonzero(found.flagged(IS_CONTROL | IS_TRANSACTIONAL)).tolist()
        if not flagged:
            return found.rows
        is_hidden = np.zeros(len(found), dtype=np.bool_)
        is_hidden[flagged] = [self._is_hidden(found.batch(index)) for index in flagged]
        return None if is_hidden.all() else found.rows.where(~found.rows_in(is_hidden))

    def _is_hidden(self, batch: RecordBatch) -> bool:
        self.trace.note(batch, batch.control_type())
        return batch.is_control or self.aborted.is_aborted(batch)


def _rows_of(batch: RecordBatch, unread: UnreadBatches | None) -> RecordRows | None:
    """Return the rows of a batch; None for a batch that cannot be opened, which is noted."""
    try:
        return open_batch(batch).rows
    except BatchTooLargeError:
        if unread is None:
            raise
        unread.note(batch)
        return None


def keys_of(rows: RecordRows, secret: bytes) -> KeyColumns:
    """Hash the keys of the records that have one, under a secret of 16 bytes."""
    has_key = rows.key_size >= 0
    keyed = rows if has_key.all() else rows.where(has_key)
    return KeyColumns(*hash_keys(keyed.payload, keyed.key_start, keyed.key_size, secret), keyed.offset)


def _joined(columns: list[KeyColumns]) -> KeyColumns:
    return KeyColumns(
        np.concatenate([one.hash_hi for one in columns]),
        np.concatenate([one.hash_lo for one in columns]),
        np.concatenate([one.offset for one in columns]),
    )
