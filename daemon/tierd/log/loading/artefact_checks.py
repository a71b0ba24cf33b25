"""Checks of indexes and leader epochs against the batches of a segment.

Each check follows the batches in their order and reports its first problem only.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, Protocol

from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from tierd.log.producers.transactions import CompletedTransaction
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.record import ControlRecordType
from tierd.model import Lineage

NEVER: Final = (1 << 63) - 1
"""Position or offset that no batch reaches: a check has nothing left to compare."""

_last_offset = attrgetter("last_offset")


class CheckedBatch(Protocol):
    """Fields of a batch that the checks of indexes compare; ``BatchHeader`` has them."""

    @property
    def base_offset(self) -> int:
        """Return the first offset."""

    @property
    def last_offset(self) -> int:
        """Return the last offset, inclusive."""

    @property
    def max_timestamp_ms(self) -> int:
        """Return the largest timestamp."""

    @property
    def position(self) -> int:
        """Return the byte position in the log."""


@dataclass(slots=True)
class OffsetIndexCheck:
    """Check that every entry leads to a batch and has the last offset of that batch or a later one (log-format 3.1)."""

    index: OffsetIndex
    _at: int = 0
    _pending_offset: int | None = None  # of an entry, whose set of batches is being walked
    _failed: bool = False

    @property
    def due_position(self) -> int:
        """Return the position from which on a batch is compared; one below it may be left out."""
        return NEVER if self._failed or self._at >= len(self.index) else self.index[self._at].position

    @property
    def due_offset(self) -> int:
        """Return the last offset from which on a batch is compared wherever it is; one below it may be left out."""
        return NEVER if self._failed or self._pending_offset is None else self._pending_offset

    def follow(self, header: CheckedBatch) -> str | None:
        """Check the next batch; return the problem, if there is one."""
        if self._failed:
            return None
        if self._at < len(self.index) and self.index[self._at].position <= header.position:
            offset, position = self.index[self._at]
            if position < header.position:
                return self._fail(f"entry {self._at}: no batch begins at {position} (offset {offset})")
            self._pending_offset = offset
            self._at += 1
        if self._pending_offset is not None and header.last_offset >= self._pending_offset:
            if header.last_offset != self._pending_offset:
                return self._fail(f"entry {self._at - 1}: no batch ends with offset {self._pending_offset}")
            self._pending_offset = None
        return None

    def finish(self) -> str | None:
        """Call it behind the last batch."""
        if self._failed or self._at >= len(self.index):
            return None
        offset, position = self.index[self._at]
        return self._fail(f"entry {self._at} says that offset {offset} is at {position}, where no batch begins")

    def _fail(self, problem: str) -> str:
        self._failed = True
        return problem


@dataclass(slots=True)
class TimeIndexCheck:
    """Check that every entry has the largest timestamp of the batch that holds its offset (log-format 3.1)."""

    index: TimeIndex
    _at: int = 0
    _failed: bool = False

    @property
    def due_offset(self) -> int:
        """Return the last offset from which on a batch is compared; one below it may be left out."""
        return NEVER if self._failed or self._at >= len(self.index) else self.index.entries[self._at].offset

    def follow(self, header: CheckedBatch) -> str | None:
        """Check the next batch; return the problem, if there is one."""
        if self._failed:
            return None
        while self._at < len(self.index) and self.index.entries[self._at].offset <= header.last_offset:
            entry = self.index.entries[self._at]
            if entry.offset < header.base_offset or entry.timestamp_ms != header.max_timestamp_ms:
                return self._fail(
                    f"entry {self._at}: offset {entry.offset} does not have timestamp {entry.timestamp_ms}"
                )
            self._at += 1
        return None

    def finish(self) -> str | None:
        """Call it behind the last batch."""
        if self._failed or self._at >= len(self.index):
            return None
        entry = self.index.entries[self._at]
        return self._fail(
            f"entry {self._at} says that offset {entry.offset} has timestamp {entry.timestamp_ms}: not so"
        )

    def _fail(self, problem: str) -> str:
        self._failed = True
        return problem


@dataclass(slots=True)
class TransactionIndexCheck:
    """Check that aborted transactions whose begin is known have an entry, and that each entry has an abort.

    Attributes:
        answered: the entries for which an abort marker was found, by the offset of the marker.
    """

    index: TransactionIndex
    answered: dict[int, AbortedTransaction] = field(default_factory=dict)

    def follow(
        self, header: BatchHeader, kind: ControlRecordType | None, completed: CompletedTransaction | None
    ) -> str | None:
        """Check the next transactional batch, its marker and the transaction that it ended; return the problem."""
        if kind is ControlRecordType.ABORT:
            at = bisect_left(self.index.entries, header.last_offset, key=_last_offset)
            for entry in self.index.entries[at : at + 1]:
                if entry.last_offset == header.last_offset and entry.producer_id == header.producer_id:
                    self.answered[header.last_offset] = entry
        if completed is None or not completed.is_aborted or header.last_offset in self.answered:
            return None
        return (
            f"no entry for the transaction of producer {completed.producer_id} that was aborted at offset "
            f"{completed.last_offset}: its records would be served as committed"
        )

    def finish(self) -> list[str]:
        """Call it behind the last batch; every entry that no batch answers to."""
        return [
            f"an entry for offset {entry.last_offset}, where producer {entry.producer_id} aborted nothing"
            for entry in self.index.entries
            if entry.last_offset not in self.answered
        ]


@dataclass(slots=True)
class EpochCheck:
    """Check that the leader epochs of the batches are those of ``leader-epoch-checkpoint`` (log-format 3.4)."""

    lineage: Lineage
    _failed: bool = False

    def follow(self, header: BatchHeader) -> str | None:
        """Check the next batch; return the problem, if there is one."""
        epoch, earliest = header.partition_leader_epoch, self.lineage.earliest
        if epoch < 0 or self._failed:
            return None
        if earliest and header.base_offset < earliest.start_offset:
            return None  # below the log start, which the broker has forgotten
        known = self.lineage.epoch_for(header.base_offset)
        if known == epoch:
            return None
        self._failed = True
        expected = "no epoch" if known is None else f"epoch {known}"
        return f"leader epoch {epoch} at offset {header.base_offset}, where leader-epoch-checkpoint has {expected}"
