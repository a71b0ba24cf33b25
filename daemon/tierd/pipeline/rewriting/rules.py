"""RewriteRules: the rules by which a pass over a partition removes records, the same for all groups."""

from collections.abc import Mapping
from dataclasses import dataclass

from tierd.log import AbortedTransaction, ProducerStateEntry

_MAX_LONG = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteRules:
    """Rules about records and batches of one partition in one pass.

    Attributes:
        now_ms: time of the pass; delete horizons up to this time are past.
        delete_retention_ms: time from now to the delete horizon of a batch that gets one in this pass.
        compacts: as the log cleaner: superseded and keyless records are removed, tombstones and markers at their delete
            horizon, aborted data at once. Otherwise only erased and expired records are removed.
        aborted: every aborted transaction of the log, whatever segment has its marker.
        producers: state at the end of the log by producer id; it protects a producer's last batch.
        round_end_offset: end of the round, exclusive; the batch that ends there stays, though perhaps empty.
        expire_before_ms: records with an older timestamp are removed; a record without a timestamp does not age.
        erased_keys: every record with one of these keys is removed, tombstones included.
        unread_from: base offset of the first batch of the round that unpacks to more than tierd opens; None without
            any. Later records that may hide older ones stay (``unread.py``).
        removes_unread: True removes such a batch whole; otherwise it stays, or stops its group where keys are to be
            erased.
        mapped_end_offset: from here on the latest records of the keys are unknown, and compaction removes no record.
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
        """Return the delete horizon for batches that get one in this pass."""
        return min(self.now_ms + self.delete_retention_ms, _MAX_LONG)
