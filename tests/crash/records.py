"""Batches of simulated clients: of several producers, some of them in transactions."""

import random
from dataclasses import dataclass, field

from tests.crash.oracle import Batch, ProducerView, decode
from tierd.log.records.batch_builder import NO_PRODUCER, Producer, encode_batch, encode_end_marker
from tierd.log.records.batch_restamp import set_last_offset, set_leader_epoch
from tierd.log.records.compression import Compression
from tierd.log.records.new_record import NewRecord
from tierd.log.records.record import ControlRecordType

_NOISE = random.Random(7).randbytes(4096)


@dataclass(slots=True)
class SimulatedProducer:
    """A client with a producer id that resumes at the state of the log."""

    id: int
    epoch: int = 0
    next_sequence: int = 0
    in_transaction: bool = False
    sent: list[bytes] = field(default_factory=list)

    def resume(self, view: ProducerView | None) -> None:
        """Continue after a power cut without sending lost batches again; the next sequence follows the stored ones."""
        self.sent.clear()
        if view is None:
            self.epoch, self.next_sequence, self.in_transaction = self.epoch + 1, 0, False
            return
        self.epoch, self.next_sequence = view.epoch, view.next_sequence
        self.in_transaction = view.txn_first_offset >= 0


class Client:
    """Maker of batches from a seeded choice."""

    def __init__(self, choice: random.Random) -> None:
        self._choice = choice

    def records(self, now_ms: int) -> list[NewRecord]:
        """Return one to four records; most of their times ascend with ``now_ms``."""
        choice = self._choice
        return [
            NewRecord(
                self._bytes(8) if choice.random() < 0.8 else None,
                self._bytes(choice.choice((0, 20, 150, 600))) if choice.random() < 0.9 else None,
                -1 if choice.random() < 0.02 else now_ms - choice.choice((0, 0, 0, 0, 5, 5000)),
            )
            for _ in range(choice.randint(1, 4))
        ]

    def _bytes(self, size: int) -> bytes:
        start = self._choice.randrange(len(_NOISE) - size)
        return _NOISE[start : start + size]

    def data(self, now_ms: int, producer: SimulatedProducer | None) -> bytes:
        """Build a batch as a client sends it, from offset 0; advance the producer's sequence."""
        records = self.records(now_ms)
        compression = Compression.SNAPPY if self._choice.random() < 0.1 else Compression.NONE
        if producer is None:
            return encode_batch(records, base_offset=0, producer=NO_PRODUCER, compression=compression)
        batch = encode_batch(
            records,
            base_offset=0,
            producer=Producer(producer.id, producer.epoch, producer.next_sequence),
            is_transactional=producer.in_transaction,
            compression=compression,
        )
        producer.next_sequence += len(records)
        producer.sent.append(batch)
        return batch

    def marker(self, now_ms: int, producer: SimulatedProducer) -> bytes:
        """Build the marker that the coordinator appends at a transaction's end."""
        producer.in_transaction = False
        return encode_end_marker(
            kind=self._choice.choice((ControlRecordType.ABORT, ControlRecordType.COMMIT)),
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            coordinator_epoch=1,
            timestamp_ms=now_ms,
        )


def stored(batch: bytes, *, base_offset: int, leader_epoch: int) -> Batch:
    """Return the batch as a leader stores it."""
    copy = bytearray(batch)
    set_leader_epoch(copy, leader_epoch)
    last_offset_delta = int.from_bytes(batch[23:27], "big")
    set_last_offset(copy, base_offset + last_offset_delta)
    return decode(bytes(copy))
