"""ActiveProducer: the state that a log keeps of one producer (log-format 4.4; Kafka: ProducerStateEntry)."""

from dataclasses import dataclass
from typing import NamedTuple, Self

from tierd.log.producers.producer_state import ProducerStateEntry
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.log_config import MAX_INT

BATCHES_KEPT = 5
_NO_SEQUENCE = -1


class AppendedBatch(NamedTuple):
    """A batch that a producer has in the log (Kafka: BatchMetadata)."""

    last_sequence: int
    last_offset: int
    offset_delta: int  # invariant: last offset - first offset
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        """Return the sequence of the batch's first record; below 0 it wraps to the largest int."""
        return (self.last_sequence - self.offset_delta) & MAX_INT

    @property
    def first_offset(self) -> int:
        """Return the offset of the batch's first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ActiveProducer:
    """One producer, with the last batches that it wrote.

    Attributes:
        producer_epoch: -1 when nothing is known of the producer.
        batches: oldest first, at most five; empty after a new epoch, and when only a marker is known.
        current_txn_first_offset: -1 when the producer has no open transaction.
    """

    producer_id: int
    producer_epoch: int = -1
    coordinator_epoch: int = -1
    last_timestamp_ms: int = -1
    current_txn_first_offset: int = -1
    batches: tuple[AppendedBatch, ...] = ()

    @classmethod
    def from_snapshot(cls, entry: ProducerStateEntry) -> Self:
        """Return the producer of a snapshot's entry, with the last of its batches."""
        batch = AppendedBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms)
        return cls(
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            entry.timestamp_ms,
            max(entry.current_txn_first_offset, -1),
            (batch,) if entry.last_offset >= 0 else (),
        )

    def to_snapshot(self) -> ProducerStateEntry:
        """Return the entry that a snapshot has for the producer."""
        last = self.batches[-1] if self.batches else AppendedBatch(_NO_SEQUENCE, -1, 0, -1)
        return ProducerStateEntry(
            self.producer_id,
            self.producer_epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            self.current_txn_first_offset,
        )

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the last record; -1 when no batch is known."""
        return self.batches[-1].last_sequence if self.batches else _NO_SEQUENCE

    @property
    def first_sequence(self) -> int:
        """Return the sequence of the first record of the oldest batch that is known; -1 without one."""
        return self.batches[0].first_sequence if self.batches else _NO_SEQUENCE

    def find_duplicate(self, header: BatchHeader) -> AppendedBatch | None:
        """Return the producer's earlier batch of the same epoch and the same sequences as ``header``, or None."""
        if header.producer_epoch != self.producer_epoch:
            return None
        wanted = (header.base_sequence, header.last_sequence)
        return next((batch for batch in self.batches if (batch.first_sequence, batch.last_sequence) == wanted), None)

    def add_batch(self, producer_epoch: int, batch: AppendedBatch) -> None:
        """Add ``batch`` as the last one; a batch of another epoch replaces all batches before it."""
        if producer_epoch == self.producer_epoch:
            self.batches = (*self.batches[1 - BATCHES_KEPT :], batch)
        else:
            self.producer_epoch, self.batches = producer_epoch, (batch,)
        self.last_timestamp_ms = batch.timestamp_ms

    def end_transaction(self, *, producer_epoch: int, coordinator_epoch: int, timestamp_ms: int) -> None:
        """Take note of an end marker; another epoch makes the producer forget its batches."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch, self.batches = producer_epoch, ()
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp_ms = timestamp_ms
        self.current_txn_first_offset = -1

    def update(self, newer: "ActiveProducer") -> None:
        """Take the state of ``newer``, which has only the batches of one append."""
        kept = self.batches if newer.producer_epoch == self.producer_epoch else ()
        self.producer_epoch = newer.producer_epoch
        self.batches = (kept + newer.batches)[-BATCHES_KEPT:]
        self.coordinator_epoch = newer.coordinator_epoch
        self.last_timestamp_ms = newer.last_timestamp_ms
        self.current_txn_first_offset = newer.current_txn_first_offset
