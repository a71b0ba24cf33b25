"""Logs for runs to compact: written by steps, cut into segments, with the producers of the broker at each end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from tierd.errors import RetriableRemoteStorageError
from tierd.log import (
    AbortedTransaction,
    ControlRecordType,
    NewRecord,
    Producer,
    ProducerStateEntry,
    RecordBatch,
    encode_batch,
    encode_end_marker,
    iter_batches,
)

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
Step = tuple[object, ...]


@dataclass(slots=True)
class Piece:
    """Segment of the tier."""

    start: int
    end: int
    log: bytes
    aborted: tuple[AbortedTransaction, ...]
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = len(self.log)

    def batches(self) -> Iterator[RecordBatch]:
        return iter_batches(self.log, name=f"{self.start}")

    def pieces(self, torn_at: int | None = None) -> Iterator[bytes]:
        for at in range(0, len(self.log), 50):
            if torn_at is not None and at >= torn_at:
                raise RetriableRemoteStorageError("the store is busy")
            yield self.log[at : at + 50]


@dataclass(slots=True)
class Written:
    """Log as it was written: its segments, and the producers at the end of each."""

    pieces: list[Piece] = field(default_factory=list)
    producers: list[dict[int, ProducerStateEntry]] = field(default_factory=list)

    @classmethod
    def of(cls, steps: Sequence[Step]) -> Self:
        log, content, aborted = cls(), b"", list[AbortedTransaction]()
        known: dict[int, ProducerStateEntry] = {}
        start = at = 0
        for number, step in enumerate([*steps, ("write", [0], False, 0), ("roll",)]):
            match step:
                case ("write", list(keys), bool(deletes), int(age_h)):
                    batch = _batch(keys, None if deletes else b"%d" % number, at, START_MS - age_h * HOUR_MS)
                case ("transactional", int(producer_id), list(keys), bool(deletes)):
                    batch = _batch(keys, None if deletes else b"%d" % number, at, START_MS, producer_id)
                    before = known.get(producer_id)
                    since = before.current_txn_first_offset if before else -1
                    last = at + len(keys) - 1
                    known[producer_id] = ProducerStateEntry(
                        producer_id, 0, 0, last, len(keys) - 1, START_MS, 0, since if since >= 0 else at
                    )
                case ("end", int(producer_id), bool(commits)):
                    kind = ControlRecordType.COMMIT if commits else ControlRecordType.ABORT
                    batch = encode_end_marker(
                        kind=kind,
                        producer_id=producer_id,
                        producer_epoch=0,
                        coordinator_epoch=0,
                        timestamp_ms=START_MS,
                        base_offset=at,
                    )
                    before = known.get(producer_id, ProducerStateEntry(producer_id, 0, -1, -1, 0, START_MS, 0, -1))
                    if before.current_txn_first_offset >= 0 and not commits:
                        aborted.append(AbortedTransaction(producer_id, before.current_txn_first_offset, at, at))
                    known[producer_id] = replace(before, current_txn_first_offset=-1)
                case _:
                    if content:
                        log.pieces.append(Piece(start, at - 1, content, tuple(aborted)))
                        log.producers.append(dict(known))
                        start, content, aborted = at, b"", []
                    continue
            content += batch
            at = next(iter_batches(batch, name="new")).last_offset + 1
        return log

    def stable(self, count: int) -> int:
        """Return the last stable offset of a tier of so many of its segments."""
        since = [entry.current_txn_first_offset for entry in self.producers[count - 1].values()]
        return min([self.pieces[count - 1].end + 1, *(offset for offset in since if offset >= 0)])


def _batch(keys: list[int], value: bytes | None, at: int, time_ms: int, producer_id: int = -1) -> bytes:
    producer = Producer(producer_id, 0, 0) if producer_id >= 0 else Producer()
    records = [NewRecord(b"%d" % key, value, time_ms) for key in keys]
    return encode_batch(records, base_offset=at, producer=producer, is_transactional=producer_id >= 0)
