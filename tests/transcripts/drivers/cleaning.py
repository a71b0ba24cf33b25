"""Driver of the rewriting of segments: records and batches that a compaction keeps.

::

    batch a:1 b:2 a:             a batch with three records of the keys a, b, a; the last record is a tombstone of a
    batch a:1 producer=7         the same in a transaction of the producer
    commit producer=7            the marker that ends the transaction; abort as well
    clean [delete-retention=1d] [retention=7d] [erase=a,b]     compact all of the log, and show the result
    wait 1d
"""

from collections.abc import Iterator

import numpy as np

from tests.log.batches import batch
from tests.transcripts.transcript import Command
from tests.transcripts.units import NOW_MS, UNLIMITED, parse_duration, show_duration
from tierd.kernels import latest_per_key
from tierd.log import AbortedTransaction, ControlRecordType, RecordBatch, iter_batches
from tierd.log.producers.transactions import OpenTransactions
from tierd.log.records.batch_builder import encode_end_marker
from tierd.pipeline.rewriting import (
    BatchRewriter,
    InputLog,
    NewBatch,
    NewBatches,
    OffsetSet,
    RewriteRules,
    RewriteStatistics,
    scan_keys,
)

_NAME = "orders-0"
_SECRET = bytes(16)
_REASONS = ("superseded", "keyless", "tombstone", "aborted", "marker", "expired", "erased")


class _Output:
    """Batches that a pass leaves, as the bytes of a log."""

    def __init__(self) -> None:
        self.log = bytearray()

    def append(self, batch: NewBatch) -> None:
        self.log += batch.data

    def append_all(self, batches: NewBatches) -> None:
        self.log += batches.data


class Cleaning:
    """Log of a compacted topic."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self._log = b""
        self._end_offset = 0
        self._open = OpenTransactions()
        self._aborted: list[AbortedTransaction] = []
        self._now_ms = NOW_MS

    def run(self, command: Command) -> Iterator[str]:
        """Do what a command says; ``clean`` yields the remaining batches."""
        match command.name:
            case "batch":
                self._append(self._batch(command))
            case "commit" | "abort":
                kind = ControlRecordType[command.name.upper()]
                self._append(self._marker(kind, int(command.option("producer"))), kind)
            case "clean":
                yield from self._clean(command)
            case "wait":
                self._now_ms += parse_duration(command.word())
            case _:
                raise command.unknown()

    def _batch(self, command: Command) -> bytes:
        rows = []
        for word in command.words():
            key, _, value = word.partition(":")
            rows.append((self._now_ms, key.encode(), value.encode() or None))
        producer = command.option("producer", "")
        if not producer:
            return batch(self._end_offset, rows)
        return batch(
            self._end_offset, rows, producer_id=int(producer), producer_epoch=0, base_sequence=0, transactional=True
        )

    def _marker(self, kind: ControlRecordType, producer_id: int) -> bytes:
        return encode_end_marker(
            kind=kind,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=self._now_ms,
            base_offset=self._end_offset,
            leader_epoch=0,
        )

    def _append(self, data: bytes, kind: ControlRecordType | None = None) -> None:
        (appended,) = iter_batches(data, name=_NAME)
        ended = self._open.apply(appended, kind)
        self._log += data
        self._end_offset = appended.last_offset + 1
        if ended is not None and ended.is_aborted:
            stable = self._open.first_unstable_offset
            last_stable_offset = self._end_offset if stable is None else stable
            self._aborted.append(
                AbortedTransaction(ended.producer_id, ended.first_offset, ended.last_offset, last_stable_offset)
            )

    def _clean(self, command: Command) -> Iterator[str]:
        rules = self._rules(command)
        output = _Output()
        rewriter = BatchRewriter(rules, self._latest(rules), output, open_producers=())
        source = InputLog(name=_NAME, start_offset=0, end_offset=self._end_offset - 1, pieces=[self._log])
        for found in source.runs():
            rewriter.take(found)
        self._log = bytes(output.log)
        for kept in iter_batches(self._log, name=_NAME):
            yield from self._shown(kept)
        yield from _gone(rewriter.statistics)

    def _rules(self, command: Command) -> RewriteRules:
        retention = command.option("retention", UNLIMITED)
        erased = command.option("erase", "")
        return RewriteRules(
            now_ms=self._now_ms,
            delete_retention_ms=parse_duration(command.option("delete-retention", "1d")),
            compacts=True,
            aborted=tuple(self._aborted),
            producers={},
            round_end_offset=self._end_offset,
            expire_before_ms=None if retention == UNLIMITED else self._now_ms - parse_duration(retention),
            erased_keys=frozenset(key.encode() for key in erased.split(",") if key),
        )

    def _latest(self, rules: RewriteRules) -> OffsetSet:
        columns = [np.zeros((3, 0), dtype=np.int64)]
        scanned = scan_keys([self._log], rules, name=_NAME, secret=_SECRET)
        columns += [np.stack((found.hash_hi, found.hash_lo, found.offset)) for found in scanned]
        return OffsetSet.of(0, self._end_offset, latest_per_key(*np.hstack(columns))[2])

    def _shown(self, kept: RecordBatch) -> Iterator[str]:
        horizon_ms = kept.delete_horizon_ms
        until = "" if horizon_ms is None else f", may go in {show_duration(max(0, horizon_ms - self._now_ms))}"
        if not kept.record_count:
            yield f"{kept.last_offset} empty batch"
        elif kept.is_control:
            yield f"{kept.last_offset} marker of producer {kept.producer_id}{until}"
        else:
            for record in kept.records():
                key = (record.key or b"").decode()
                yield (
                    f"{record.offset} {key} deleted{until}"
                    if record.value is None
                    else (f"{record.offset} {key}:{record.value.decode()}")
                )


def _gone(statistics: RewriteStatistics) -> Iterator[str]:
    counts = ((reason, getattr(statistics, f"records_{reason}")) for reason in _REASONS)
    gone = [f"{reason} {count}" for reason, count in counts if count]
    if gone:
        yield f"gone: {', '.join(gone)}"
