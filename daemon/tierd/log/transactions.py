"""OpenTransactions: which transactions are open at an offset, from the batches up to it (log-format 4.4 and 4.5)."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tierd.log.batch_header import BatchHeader
from tierd.log.producer_state import ProducerStateEntry
from tierd.log.record import ControlRecordType


@dataclass(frozen=True, slots=True)
class CompletedTransaction:
    """A transaction that its marker ended; ``last_offset`` is the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True)
class OpenTransactions:
    """First offset of every open transaction, by producer id. Batches are applied in the order of the log."""

    first_offsets: dict[int, int] = field(default_factory=dict)

    @classmethod
    def from_snapshot(cls, entries: Iterable[ProducerStateEntry]) -> "OpenTransactions":
        """The state that a producer snapshot describes."""
        return cls({e.producer_id: e.current_txn_first_offset for e in entries if e.current_txn_first_offset >= 0})

    def apply(self, header: BatchHeader, control_type: ControlRecordType | None) -> CompletedTransaction | None:
        """Take note of one batch; return the transaction that it ended, if it ended one.

        Epochs are not compared: what is in the log was accepted by a leader, and a replica applies it as it is.
        """
        if not header.is_transactional:
            return None
        if not header.is_control:
            self.first_offsets.setdefault(header.producer_id, header.base_offset)
            return None
        if control_type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return None
        first_offset = self.first_offsets.pop(header.producer_id, None)
        if first_offset is None:
            return None
        return CompletedTransaction(
            header.producer_id, first_offset, header.last_offset, control_type is ControlRecordType.ABORT
        )

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest open transaction began; None when none is open."""
        return min(self.first_offsets.values(), default=None)
