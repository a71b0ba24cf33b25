"""Survivors: which records of a batch stay (log-format 9.5), decided for all of them at once."""

import numpy as np

from tierd.log import BatchHeader
from tierd.pipeline.rewriting.key_set import KeySet
from tierd.pipeline.rewriting.offset_set import OffsetSet
from tierd.pipeline.rewriting.rows import RecordRows
from tierd.pipeline.rewriting.rules import RewriteRules
from tierd.pipeline.rewriting.statistics import RewriteStatistics


class Survivors:
    """Decides about the records of batches of data that were not aborted, and counts what goes by its first reason."""

    def __init__(self, rules: RewriteRules, latest: OffsetSet | None, statistics: RewriteStatistics) -> None:
        """Prepare for a group.

        Args:
            rules: of the pass.
            latest: offsets of the group that are the latest of their key; None when the rules do not compact.
            statistics: is counted into.

        Raises:
            ValueError: the rules compact, and nobody says what is the latest.
        """
        if rules.compacts and latest is None:
            raise ValueError("a compaction needs the offsets that are the latest of their key")
        self._rules = rules
        self._latest = latest if rules.compacts else None
        self._erased = KeySet(rules.erased_keys)
        self._statistics = statistics

    def among(self, batch: BatchHeader, rows: RecordRows) -> np.ndarray:
        """Which records stay: bool[n]."""
        keep = np.ones(len(rows), dtype=np.bool_)
        counted = self._statistics
        if self._erased:
            counted.records_erased += _drop(keep, self._erased.matches(rows))
        if self._latest is not None:
            counted.records_keyless += _drop(keep, rows.key_size < 0)
            counted.records_superseded += _drop(keep, ~self._latest.contains(rows.offset))
            horizon_ms = batch.delete_horizon_ms
            if horizon_ms is not None and horizon_ms <= self._rules.now_ms:
                counted.records_tombstone += _drop(keep, rows.value_size < 0)
        before_ms = self._rules.expire_before_ms
        if before_ms is not None:
            counted.records_expired += _drop(keep, (rows.timestamp_ms < before_ms) & (rows.timestamp_ms >= 0))
        return keep


def _drop(keep: np.ndarray, unwanted: np.ndarray) -> int:
    """Take ``unwanted`` out of ``keep``, and return how many of it were still there; ``unwanted`` is used up."""
    unwanted &= keep
    count = int(np.count_nonzero(unwanted))
    if count:
        keep ^= unwanted
    return count
