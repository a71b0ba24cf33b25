"""RewriteRules: what a pass over a partition takes away, the same for all of its groups."""

from collections.abc import Mapping
from dataclasses import dataclass

from tierd.log import AbortedTransaction, ProducerStateEntry

_MAX_LONG = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRules:
    """Rules about records and batches of one partition in one run.

    Attributes:
        now_ms: time of the pass; delete horizons before it, or at it, are past.
        delete_retention_ms: how long tombstones and markers stay once they have a delete horizon.
        compacts: as the log cleaner: superseded and keyless records go, tombstones and markers in their time, aborted
            data at once. Otherwise only what is erased or expired goes, and everything else stays as it is.
        aborted: every transaction that was aborted in the tier, whatever segment has its marker.
        producers: state at the end of the tier by producer id; it protects a producer's last batch.
        round_end_offset: end of what this round cleans, exclusive; the batch that ends there stays, if only empty.
        expire_before_ms: records with an older timestamp go; one without a timestamp does not age.
        erased_keys: every record with one of these keys goes, tombstones included.
        unread_from: base offset of the first batch of the round that unpacks to more than tierd opens; None without
            any. What lies behind it and hides older records stays (``unread.py``).
        removes_unread: such a batch goes, whole; otherwise it stays, or stops its group where keys are to be erased.
        mapped_end_offset: from here on the latest records of the keys are not known, and compaction takes no record.
    """

    now_ms: int
    delete_retention_ms: int
    compacts: bool
    aborted: tuple[AbortedTransaction, ...]
    producers: Mapping[int, ProducerStateEntry]
    round_end_offset: int
    expire_before_ms: int | None = None
    erased_keys: frozenset[bytes] = frozenset()
    unread_from: int | None = None
    removes_unread: bool = False
    mapped_end_offset: int = _MAX_LONG

    @property
    def delete_horizon_ms(self) -> int:
        """Return the delete horizon of a batch whose tombstones or marker begin to wait in this pass."""
        return min(self.now_ms + self.delete_retention_ms, _MAX_LONG)
