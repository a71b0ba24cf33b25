"""NewestEpochs: how far the newest leader epochs are in the tier, beside the claim in the partition's row.

A follower finds the end of the tier along its own lineage by the last few epochs. Read from the row, that costs one row
after every change, however many segments the partition has. The row says at which of its revisions the epochs were
written: an earlier tierd keeps the field as it finds it, and changes segments, so that only an equal revision counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol, Self

EPOCHS_KEPT: Final = 4
"""Epochs in a row: that of the last segment, and earlier ones for a log that lags or is of another branch."""


class TierEpochs(Protocol):
    """Leader epochs of the tier; a comparison with a log's lineage shows how far the log is in the tier."""

    @property
    def is_complete(self) -> bool:
        """Return True if the tier has no older epoch than the known ones."""

    @property
    def log_start_offset(self) -> int | None:
        """Return the first offset that may be read, inclusive; None while it was never set."""

    def first_offsets(self) -> Mapping[int, int]:
        """Return the first offset of each epoch that a lookup can find a segment of, in no order."""

    def copied_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the last offset of ``epoch`` that counts as copied, inclusive; None when none does."""


class CopiedEpoch(NamedTuple):
    """One leader epoch in the tier; offsets are inclusive, and None where there is none.

    Attributes:
        epoch: its number.
        first_offset: from here on a lookup may find a segment; None also where the log has abandoned the epoch.
        last_offset: of the epoch in the last segment that a lookup can find.
        highest: largest offset ever finished in the epoch, whatever was deleted since.
    """

    epoch: int
    first_offset: int | None
    last_offset: int | None
    highest: int | None

    def copied_offset(self, *, log_start_offset: int | None, strict_kafka_compat: bool) -> int | None:
        """Return the last offset that counts as copied; None when none does.

        What has left the tier from its front counts, for it lies below the log start. What ended at its back does not:
        the local log was cut back there, and has other records of these offsets, or none. As Kafka has it
        (``strict_kafka_compat``), everything that was ever finished counts.
        """
        if strict_kafka_compat or self.highest is None:
            return self.highest
        if self.last_offset is not None:
            return min(self.highest, self.last_offset)
        return self.highest if self.highest < (log_start_offset or 0) else None


@dataclass(frozen=True, slots=True)
class NewestEpochs:
    """The newest epochs of a partition at one revision of its row.

    Attributes:
        revision: of the row that the epochs were written with.
        epochs: ascending, at most ``EPOCHS_KEPT``.
        is_complete: the partition has no others.
    """

    revision: int
    epochs: tuple[CopiedEpoch, ...]
    is_complete: bool

    def carried(self, *, stored: int, revision: int) -> Self | None:
        """Return the same for a row that was only claimed anew; None where they are not of revision ``stored``."""
        return replace(self, revision=revision) if self.revision == stored else None


@dataclass(frozen=True, slots=True)
class CopiedEpochs:
    """``TierEpochs`` of a partition that is followed, from its row alone.

    Attributes:
        epochs: known state of each epoch.
        is_complete: the partition has no older epochs.
        log_start_offset: first offset that may be read anywhere, inclusive; None while it was never set.
        strict_kafka_compat: as in ``PartitionLookups``.
    """

    epochs: Mapping[int, CopiedEpoch]
    is_complete: bool
    log_start_offset: int | None
    strict_kafka_compat: bool = False

    def first_offsets(self) -> Mapping[int, int]:
        """Return the first offset of each epoch that a lookup can find a segment of."""
        return {epoch: each.first_offset for epoch, each in self.epochs.items() if each.first_offset is not None}

    def copied_offset_for_epoch(self, epoch: int) -> int | None:
        """Return the last offset of ``epoch`` that counts as copied, inclusive; None when none does."""
        known = self.epochs.get(epoch)
        if known is None:
            return None
        return known.copied_offset(log_start_offset=self.log_start_offset, strict_kafka_compat=self.strict_kafka_compat)
