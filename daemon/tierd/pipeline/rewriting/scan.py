"""The map stage: which keys a log has and at which offsets, and which offsets have certain keys."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from tierd.kernels import STEP_RECORDS, hash_keys
from tierd.pipeline.rewriting.key_set import KeySet
from tierd.pipeline.rewriting.rows import rows_of
from tierd.pipeline.rewriting.rules import RewriteRules
from tierd.pipeline.rewriting.stretch import Stretch, iter_stretches
from tierd.pipeline.rewriting.transactions import AbortedTransactions, TransactionTrace


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Keyed records, ascending in offset.

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
) -> Iterator[KeyColumns]:
    """Hash the keys of all records that may be the latest of theirs: of live data, no control and no aborted ones.

    Args:
        pieces: consecutive bytes of a log, or of a part of it that begins with a batch.
        rules: of the pass; what was aborted counts.
        name: of the log, for errors.
        secret: 16 bytes, the same throughout a run.
        step: how many records to give at least at a time, but for the last ones.
        trace: takes note of every batch, if given, and is complete when everything was taken.

    Raises:
        CorruptRecordError: a batch is damaged.
        ValueError: the secret is not of 16 bytes.
    """
    aborted = AbortedTransactions.of(rules.aborted)
    waiting: list[KeyColumns] = []
    count = 0
    for stretch in iter_stretches(pieces, name=name):
        if trace is not None:
            for batch, _, _ in stretch.parts:
                trace.note(batch, batch.control_type())
        is_hidden = [batch.is_control or aborted.is_aborted(batch) for batch, _, _ in stretch.parts]
        if all(is_hidden):
            continue
        waiting.append(_keys_of(stretch, is_hidden, secret))
        count += len(waiting[-1])
        if count >= step:
            yield _joined(waiting)
            waiting, count = [], 0
    if waiting:
        yield _joined(waiting)


def find_keys(pieces: Iterable[bytes | memoryview], keys: Collection[bytes], *, name: str) -> Iterator[np.ndarray]:
    """The offsets, int64[n] ascending, of every record with one of ``keys``: live ones, superseded ones, aborted ones.

    Args:
        pieces: consecutive bytes of a log, or of a part of it that begins with a batch.
        keys: what is looked for.
        name: of the log, for errors.

    Raises:
        CorruptRecordError: a batch is damaged.
    """
    wanted = KeySet(keys)
    for stretch in iter_stretches(pieces, name=name):
        is_hidden = [batch.is_control for batch, _, _ in stretch.parts]
        if all(is_hidden):
            continue
        rows = stretch.rows or rows_of(stretch.parts[0].batch)
        found = rows.offset[wanted.matches(rows) & ~_rows_in(stretch, is_hidden, rows.size)]
        if found.size:
            yield found


def _keys_of(stretch: Stretch, is_hidden: Sequence[bool], secret: bytes) -> KeyColumns:
    rows = stretch.rows or rows_of(stretch.parts[0].batch)
    wanted = (rows.key_size >= 0) & ~_rows_in(stretch, is_hidden, rows.size)
    starts, sizes, offsets = rows.key_start, rows.key_size, rows.offset
    if not wanted.all():
        starts, sizes, offsets = starts[wanted], sizes[wanted], offsets[wanted]
    return KeyColumns(*hash_keys(rows.payload, starts, sizes, secret), offsets)


def _rows_in(stretch: Stretch, is_chosen: Sequence[bool], row_count: int) -> np.ndarray:
    """Which rows are of the chosen batches, which are not all of them: bool[n]."""
    found = np.zeros(row_count, dtype=np.bool_)
    for part in compress(stretch.parts, is_chosen):
        found[part.first : part.end] = True
    return found


def _joined(columns: list[KeyColumns]) -> KeyColumns:
    return KeyColumns(
        np.concatenate([one.hash_hi for one in columns]),
        np.concatenate([one.hash_lo for one in columns]),
        np.concatenate([one.offset for one in columns]),
    )
