"""Survivors: decides for many records at once which stay, and why others are removed (log-format 9.5)."""

from collections.abc import Collection
from enum import IntEnum
from typing import Protocol

import numpy as np

from tierd.kernels import hash_keys
from tierd.log import BatchHeader
from tierd.pipeline.rewriting.record_rows import RecordRows
from tierd.pipeline.rewriting.rules import RewriteRules

_SECRET = bytes(16)  # keys that collide are compared, so a producer gains nothing by knowing this


class KeySet:
    """Keys with their sizes and hashes, which rule out nearly all records with another key."""

    def __init__(self, keys: Collection[bytes]) -> None:
        """Take the keys; none at all is allowed."""
        self._keys = frozenset(keys)
        ordered = sorted(self._keys)
        sizes = np.array([len(key) for key in ordered], dtype=np.int32)
        starts = np.cumsum(sizes, dtype=np.int32) - sizes
        self._sizes = np.unique(sizes)
        self._hashes = hash_keys(b"".join(ordered), starts, sizes, _SECRET)[1]

    def __bool__(self) -> bool:
        return bool(self._keys)

    def matches(self, rows: RecordRows) -> np.ndarray:
        """Return which records have one of the keys: bool[n]."""
        found = np.zeros(rows.size, dtype=np.bool_)
        candidates = np.flatnonzero(np.isin(rows.key_size, self._sizes))
        if candidates.size:
            starts, sizes = rows.key_start[candidates], rows.key_size[candidates]
            lower = hash_keys(rows.payload, starts, sizes, _SECRET)[1]
            for index in candidates[np.isin(lower, self._hashes)].tolist():
                found[index] = rows.key(index) in self._keys
        return found


class Reason(IntEnum):
    """Reason why a record is removed: the first of these that applies."""

    NONE = 0  # it stays
    ERASED = 1
    KEYLESS = 2
    SUPERSEDED = 3
    TOMBSTONE = 4
    EXPIRED = 5


class LatestRecords(Protocol):
    """Knowledge of the latest record of every key."""

    def keeps(self, rows: RecordRows) -> np.ndarray:
        """Return which records no later one of their key supersedes: bool[n], of no meaning for keyless records."""


class Survivors:
    """Decision about the records of data batches that were not aborted."""

    def __init__(self, rules: RewriteRules, latest: LatestRecords | None) -> None:
        """Prepare for a group.

        Args:
            rules: of the pass.
            latest: knows which records of the group are the latest of their key; None when the rules do not compact.

        Raises:
            ValueError: the rules compact, and the latest records are not given.
        """
        if rules.compacts and latest is None:
            raise ValueError("a compaction needs the offsets that are the latest of their key")
        self._latest = latest if rules.compacts else None
        self._erased = KeySet(rules.erased_keys)
        self._expire_before_ms = rules.expire_before_ms
        self._now_ms = rules.now_ms
        self._unread_from = rules.unread_from
        self._mapped_end_offset = rules.mapped_end_offset

    def reasons(self, rows: RecordRows) -> np.ndarray:
        """Return why records are removed, by reasons that do not depend on the batch: a ``Reason`` each, uint8[n]."""
        reasons = np.zeros(rows.size, dtype=np.uint8)  # a reason overwrites those that come after it in ``Reason``
        if self._expire_before_ms is not None:
            is_old = (rows.timestamp_ms < self._expire_before_ms) & (rows.timestamp_ms >= 0)
            if self._unread_from is not None:
                is_old &= rows.offset < self._unread_from
            reasons[is_old] = Reason.EXPIRED
        if self._latest is not None:
            np.putmask(reasons, ~self._latest.keeps(rows), Reason.SUPERSEDED)
            np.putmask(reasons, rows.key_size < 0, Reason.KEYLESS)
            np.putmask(reasons, rows.offset >= self._mapped_end_offset, Reason.NONE)
        if self._erased:
            reasons[self._erased.matches(rows)] = Reason.ERASED
        return reasons

    def reasons_in(self, batch: BatchHeader, reasons: np.ndarray, value_size: np.ndarray) -> np.ndarray:
        """Return why the records of one batch are removed, with the reasons that depend on the batch.

        Args:
            batch: magic 2 or legacy.
            reasons: of the batch's records, from ``reasons``; the array is not changed.
            value_size: of the batch's records, int32[n].
        """
        horizon_ms = batch.delete_horizon_ms
        if batch.last_offset >= self._mapped_end_offset:
            return reasons  # older values of the batch's keys may still be there, which its tombstones hide
        if self._latest is None or horizon_ms is None or horizon_ms > self._now_ms:
            return reasons
        if self._unread_from is not None and batch.base_offset >= self._unread_from:
            return reasons
        stays = (reasons == Reason.NONE) | (reasons == Reason.EXPIRED)
        return np.where(stays & (value_size < 0), np.uint8(Reason.TOMBSTONE), reasons)
