"""The map stage: which keys a log has and at which offsets, and which offsets have certain keys."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tierd.kernels import STEP_RECORDS, hash_keys
from tierd.log import RecordBatch
from tierd.pipeline.rewriting.input_log import iter_piecewise
from tierd.pipeline.rewriting.key_set import KeySet
from tierd.pipeline.rewriting.rows import rows_of
from tierd.pipeline.rewriting.rules import RewriteRules
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
    for batch in iter_piecewise(pieces, name=name):
        if trace is not None:
            trace.note(batch, batch.control_type())
        if batch.is_control or aborted.is_aborted(batch):
            continue
        waiting.append(_keys_of(batch, secret))
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
    for batch in iter_piecewise(pieces, name=name):
        if batch.is_control:
            continue
        rows = rows_of(batch)
        found = rows.offset[wanted.matches(rows)]
        if found.size:
            yield found


def _keys_of(batch: RecordBatch, secret: bytes) -> KeyColumns:
    rows = rows_of(batch)
    keyed = rows.key_size >= 0
    starts, sizes, offsets = rows.key_start, rows.key_size, rows.offset
    if not keyed.all():
        starts, sizes, offsets = starts[keyed], sizes[keyed], offsets[keyed]
    return KeyColumns(*hash_keys(rows.payload, starts, sizes, secret), offsets)


def _joined(columns: list[KeyColumns]) -> KeyColumns:
    return KeyColumns(
        np.concatenate([one.hash_hi for one in columns]),
        np.concatenate([one.hash_lo for one in columns]),
        np.concatenate([one.offset for one in columns]),
    )
