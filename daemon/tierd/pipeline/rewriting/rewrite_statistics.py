"""RewriteStatistics: counts of what a rewrite has read, kept and removed."""

from dataclasses import dataclass, fields

import numpy as np

from tierd.pipeline.rewriting.survivors import Reason


@dataclass(slots=True, kw_only=True)
class RewriteStatistics:
    """Counts of one group, or of several added up. A record of ``records_read`` is counted in one other field, too.

    Attributes:
        bytes_read: bytes of the inputs, as they lie in the segments.
        bytes_written: bytes of the output.
        batches_copied: batches that are copied byte for byte.
        batches_emptied: batches of which the header alone is left.
        batches_unread: batches that unpack to more than tierd opens: copied, or removed where the rules say so. The
            record counts of their headers are used, and removed records count as erased.
        records_read: records of all kinds. Batches of aborted data and of markers are counted by their headers.
        records_superseded: a later record has the same key.
        records_keyless: records without a key, which are invalid in a compacted topic.
        records_tombstone: tombstones whose delete horizon is past.
        records_aborted: data of aborted transactions.
        records_marker: markers of transactions without any data left, whose delete horizon is past.
        records_expired: older than the retention.
        records_erased: of a key that was to be erased.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    batches_read: int = 0
    batches_copied: int = 0
    batches_rewritten: int = 0
    batches_emptied: int = 0
    batches_removed: int = 0
    batches_unread: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_superseded: int = 0
    records_keyless: int = 0
    records_tombstone: int = 0
    records_aborted: int = 0
    records_marker: int = 0
    records_expired: int = 0
    records_erased: int = 0

    def count(self, reasons: np.ndarray) -> None:
        """Count records by ``reasons``, uint8[n], a ``Reason`` each."""
        self.records_read += reasons.size
        _, erased, keyless, superseded, tombstone, expired = np.bincount(reasons, minlength=len(Reason)).tolist()
        self.records_erased += erased
        self.records_keyless += keyless
        self.records_superseded += superseded
        self.records_tombstone += tombstone
        self.records_expired += expired

    @property
    def is_unchanged(self) -> bool:
        """Return True if the output has the very batches of the inputs: a single segment then need not be replaced."""
        return self.batches_copied == self.batches_read

    def add(self, other: "RewriteStatistics") -> None:
        """Add the counts of ``other``."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
