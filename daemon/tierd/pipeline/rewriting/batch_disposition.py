"""Disposition of a batch: pure decisions from header, transactions and rules (log-format 9.5 and 9.6)."""

from enum import Enum

import numpy as np

from tierd.log import BatchHeader
from tierd.pipeline.rewriting.rules import RewriteRules


class BatchDisposition(Enum):
    """Disposition of a batch: the part of it that the output has."""

    COPIED = "copied"  # byte for byte
    REWRITTEN = "rewritten"
    EMPTIED = "emptied"  # the header alone
    REMOVED = "removed"


def discards_records(batch: BatchHeader, *, is_discardable: bool, now_ms: int) -> bool:
    """Return True if all records of a batch are removed: aborted data at once, a marker at its delete horizon.

    Args:
        batch: any.
        is_discardable: its records were aborted, or it is a control batch that has no effect any more.
        now_ms: time of the pass.
    """
    if not is_discardable or not batch.is_control:
        return is_discardable
    horizon_ms = batch.delete_horizon_ms
    return horizon_ms is not None and horizon_ms <= now_ms


def is_protected(batch: BatchHeader, rules: RewriteRules) -> bool:
    """Return True if a batch stays even without records: it holds its producer's state, or the end of the round.

    The state of a producer with data is in its last batch of data, the state of another producer in a marker of its
    epoch. A producer that is not in the tier's state has expired and protects no batch.
    """
    if batch.last_offset + 1 == rules.round_end_offset:
        return True
    producer = rules.producers.get(batch.producer_id)
    if producer is None:
        return False
    if producer.last_offset >= 0:
        return batch.last_offset == producer.last_offset
    return batch.is_control and batch.producer_epoch == producer.producer_epoch


def may_be_protected(producer_ids: np.ndarray, last_offsets: np.ndarray, rules: RewriteRules) -> np.ndarray:
    """Return the data batches for which ``is_protected`` may be true: bool[n]; for all others it is false."""
    found: np.ndarray = last_offsets + 1 == rules.round_end_offset
    for producer_id in np.unique(producer_ids).tolist():
        producer = rules.producers.get(producer_id)
        if producer is not None:
            found |= (producer_ids == producer_id) & (last_offsets == producer.last_offset)
    return found


def needs_horizon(batch: BatchHeader, *, keeps_tombstone: bool, is_discardable: bool) -> bool:
    """Return True if this pass sets a delete horizon: for a kept tombstone or a discardable marker without one."""
    waits = keeps_tombstone or (batch.is_control and is_discardable)
    return waits and batch.delete_horizon_ms is None


def disposition_of(
    batch: BatchHeader, rules: RewriteRules, *, kept_count: int, record_count: int, sets_horizon: bool
) -> BatchDisposition:
    """Return the disposition of a batch of which ``kept_count`` of ``record_count`` records are kept.

    Args:
        batch: the batch.
        rules: of the pass.
        kept_count: number of records that stay.
        record_count: number of records, decoded.
        sets_horizon: the batch gets its delete horizon in this pass.
    """
    if not kept_count:
        if not is_protected(batch, rules) and (record_count or rules.compacts):
            return BatchDisposition.REMOVED
        return BatchDisposition.EMPTIED if record_count else BatchDisposition.COPIED  # the batch was empty before
    is_legacy = batch.magic < 2 and rules.compacts
    return (
        BatchDisposition.REWRITTEN
        if kept_count < record_count or sets_horizon or is_legacy
        else BatchDisposition.COPIED
    )
