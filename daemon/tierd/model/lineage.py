"""Lineage: the leader epoch that wrote each offset (remote-tiering 8, log-format 3.4; Kafka: LeaderEpochFileCache).

Immutable: every operation returns another lineage, so that a plan can be made from one while the log goes on.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, NamedTuple, Self


class EpochEntry(NamedTuple):
    """The first offset of a leader epoch."""

    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """The exclusive end of ``epoch``: the first offset above its records; (-1, -1) when that is not known."""

    epoch: int
    end_offset: int


UNDEFINED_END = EpochEndOffset(-1, -1)

_EPOCHS_END: Final = 2**31


@dataclass(frozen=True, slots=True)
class Lineage:
    """Epoch entries, strictly increasing in both fields."""

    entries: tuple[EpochEntry, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[tuple[int, int]]) -> Self:
        """Assign every (epoch, start offset) in turn, as Kafka does when it reads a checkpoint.

        Raises:
            ValueError: a negative epoch or offset.
        """
        assigned: list[EpochEntry] = []
        for epoch, start_offset in entries:
            _assign(assigned, epoch, start_offset)
        return cls(tuple(assigned))

    def __bool__(self) -> bool:
        return bool(self.entries)

    @property
    def earliest(self) -> EpochEntry | None:
        """Return the first entry."""
        return self.entries[0] if self.entries else None

    @property
    def latest(self) -> EpochEntry | None:
        """Return the last entry: the epoch that is being written."""
        return self.entries[-1] if self.entries else None

    def assign(self, *, epoch: int, start_offset: int) -> Self:
        """Begin ``epoch`` at ``start_offset``, dropping the entries that contradict it.

        Raises:
            ValueError: a negative epoch or offset.
        """
        assigned = list(self.entries)
        return type(self)(tuple(assigned)) if _assign(assigned, epoch, start_offset) else self

    def epoch_for(self, offset: int) -> int | None:
        """Return the epoch that wrote ``offset``; None before the first entry."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[index - 1].epoch if index else None

    def start_offset_of(self, epoch: int) -> int | None:
        """Return the first offset of ``epoch``; None when the lineage has no such epoch."""
        return next((entry.start_offset for entry in self.entries if entry.epoch == epoch), None)

    def next_entry(self, epoch: int) -> EpochEntry | None:
        """Return the entry with the smallest epoch above ``epoch``."""
        return next((entry for entry in self.entries if entry.epoch > epoch), None)

    def end_offset_for(self, epoch: int, *, log_end_offset: int) -> EpochEndOffset:
        """Return the end of ``epoch``, exclusive, with the epoch that the end is of: the nearest known one up to it.

        ``UNDEFINED_END`` where the lineage does not show the end.
        """
        latest = self.latest
        if latest is None or epoch < 0:
            return UNDEFINED_END
        if epoch == latest.epoch:
            return EpochEndOffset(epoch, log_end_offset)
        following = self.next_entry(epoch)
        if following is None:
            return UNDEFINED_END
        floor = next((entry.epoch for entry in reversed(self.entries) if entry.epoch <= epoch), epoch)
        return EpochEndOffset(floor, following.start_offset)

    def truncated_from_start(self, offset: int) -> Self:
        """Forget the offsets below ``offset``; the entry that covers it survives with its start moved up."""
        covered = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        if not covered:
            return self
        return type(self)((EpochEntry(self.entries[covered - 1].epoch, offset), *self.entries[covered:]))

    def truncated_from_end(self, offset: int) -> Self:
        """Drop every entry that starts at or after ``offset``; a negative offset drops nothing."""
        if offset < 0:
            return self
        return type(self)(tuple(entry for entry in self.entries if entry.start_offset < offset))

    def entries_in(self, start: int, end: int) -> Self:
        """Return the slice of ``start`` (inclusive; negative: from the beginning) to ``end`` (exclusive)."""
        sliced = self.truncated_from_start(start) if start >= 0 else self
        return sliced.truncated_from_end(end)

    def with_data(self) -> Self:
        """Return the lineage without epochs that wrote nothing: those whose successor starts at the same offset."""
        pairs = zip_longest(self.entries, self.entries[1:])
        kept = (e for e, successor in pairs if not (successor and successor.start_offset == e.start_offset))
        return type(self)(tuple(kept))


def segment_epochs_problem(entries: Sequence[tuple[int, int]], *, start_offset: int, end_offset: int) -> str | None:
    """Return why ``entries`` cannot be the leader epochs of a segment; None when they can.

    All rooms that write, read or audit segments use this check. Epochs and their first offsets ascend, and
    every epoch begins inside the segment. The first one may begin above the segment's first offset: the log start lay
    inside the segment when it was copied (DeleteRecords), and a broker forgets the epochs below its log start.

    Args:
        entries: epoch and its first offset in the segment, in order.
        start_offset: of the segment.
        end_offset: of the segment, inclusive.
    """
    if not entries:
        return "a segment covers at least one leader epoch"
    last_epoch, last_start = -1, start_offset
    for epoch, start in entries:
        if not last_epoch < epoch < _EPOCHS_END or not last_start <= start <= end_offset:
            listed = ", ".join(f"{each} from {first}" for each, first in entries)
            return f"leader epochs {listed} are not those of a segment with offsets {start_offset}-{end_offset}"
        last_epoch, last_start = epoch, start
    return None


def _assign(entries: list[EpochEntry], epoch: int, start_offset: int) -> bool:
    """Assign one epoch; return True if anything changed. Many calls take linear time: an entry is dropped once."""
    if epoch < 0 or start_offset < 0:
        raise ValueError(f"epoch {epoch} at offset {start_offset}: neither may be negative")
    if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
        return False
    while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
        entries.pop()
    entries.append(EpochEntry(epoch, start_offset))
    return True
