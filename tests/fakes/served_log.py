"""FakeServedLog: a ``ServedLog`` over batches in memory or in one file, with the failures and delays of a test."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import OffsetOutOfRangeError
from tierd.log import (
    AbortedTransaction,
    Compression,
    ControlRecordType,
    NewRecord,
    Producer,
    Record,
    RecordBatch,
    encode_batch,
    encode_end_marker,
    iter_batches,
)
from tierd.model import EpochEndOffset, IsolationLevel, Lineage, TimestampOffset
from tierd.serve.kafka.served.served_log import FileSlice, LogBounds, LogRead
from tierd.tiering import OffsetSpec

NOW_MS = 1_700_000_000_000


@dataclass
class _Transaction:
    producer_id: int
    first_offset: int
    marker_offset: int | None = None
    is_aborted: bool = False


class FakeServedLog:
    """One log. What is appended is readable at once, unless ``high_watermark`` is set.

    Attributes:
        log_start_offset: may be moved up by a test.
        high_watermark: None for the end of the log.
        is_end_known: as in ``LogBounds``.
        local_start_offset: start of the local log; None for the log start.
        segment_starts: offsets at which reads end, for a segment ends there.
        highest_remote_offset: inclusive; -1 where nothing is in the tier.
        throttled_ms: reads return nothing but this, unless it is 0.
        is_pending: reads return nothing, as long as this is True.
        failures: for the name of a method the errors of its next calls.
        holds: for the name of a method an event that its calls wait for.
        calls: number of calls by the name of the method.
        at_once: largest number of calls that were under way at the same time.
        reads: (offset, max_bytes) of every read, in order.
        waits_s: ``max_wait_s`` of every read, in order.
    """

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.high_watermark: int | None = None
        self.is_end_known = True
        self.local_start_offset: int | None = None
        self.segment_starts: set[int] = set()
        self.highest_remote_offset = -1
        self.throttled_ms = 0
        self.is_pending = False
        self.failures: dict[str, list[Exception]] = {}
        self.holds: dict[str, asyncio.Event] = {}
        self.calls: Counter[str] = Counter()
        self.at_once = 0
        self.reads: list[tuple[int, int]] = []
        self.waits_s: list[float] = []
        self.lineage = Lineage()
        self._batches: list[RecordBatch] = []
        self._transactions: list[_Transaction] = []
        self._listeners: list[Callable[[], None]] = []
        self._under_way = 0
        self._file: Path | None = None

    # ------------------------------------------------------------------------------------------ how a test fills it

    @property
    def log_end_offset(self) -> int:
        """Return the exclusive end of what was appended."""
        return self._batches[-1].last_offset + 1 if self._batches else self.log_start_offset

    @property
    def batches(self) -> Sequence[RecordBatch]:
        """Return everything that was appended."""
        return self._batches

    def append(
        self,
        values: Sequence[bytes | None] = (b"value",),
        *,
        key: bytes | None = None,
        timestamp_ms: int = NOW_MS,
        epoch: int = 0,
        transaction_of: int | None = None,
        compression: Compression = Compression.NONE,
    ) -> RecordBatch:
        """Append a batch; ``transaction_of`` is the producer id of a batch that is transactional."""
        base_offset = self.log_end_offset
        producer = Producer() if transaction_of is None else Producer(transaction_of, 0, 0)
        batch = encode_batch(
            [NewRecord(key, value, timestamp_ms) for value in values],
            base_offset=base_offset,
            leader_epoch=epoch,
            compression=compression,
            producer=producer,
            is_transactional=transaction_of is not None,
        )
        return self.append_encoded(batch)

    def end_transaction(
        self, producer_id: int, *, commit: bool, epoch: int = 0, timestamp_ms: int = NOW_MS
    ) -> RecordBatch:
        """Append the marker that ends the open transaction of a producer."""
        marker = encode_end_marker(
            kind=ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=timestamp_ms,
            base_offset=self.log_end_offset,
            leader_epoch=epoch,
        )
        return self.append_encoded(marker)

    def append_encoded(self, content: bytes) -> RecordBatch:
        """Append the bytes of one batch as they are."""
        (batch,) = iter_batches(content, name="fake log")
        latest = self.lineage.latest
        if batch.partition_leader_epoch >= 0 and (latest is None or latest.epoch < batch.partition_leader_epoch):
            self.lineage = self.lineage.assign(epoch=batch.partition_leader_epoch, start_offset=batch.base_offset)
        self._batches.append(batch)
        if batch.is_transactional:
            self._follow_transaction(batch)
        if self._file is not None:
            with self._file.open("ab") as file:
                file.write(content)
        self.changed()
        return batch

    def keep_in(self, file: Path) -> None:
        """Keep the batches in a file from now on, so that reads return slices of it."""
        file.write_bytes(b"".join(bytes(each.data) for each in self._batches))
        self._file = file

    def fail(self, method: str, *errors: Exception) -> None:
        """Let the next calls of a method fail."""
        self.failures.setdefault(method, []).extend(errors)

    def hold(self, method: str) -> asyncio.Event:
        """Let the calls of a method wait until the returned event is set."""
        return self.holds.setdefault(method, asyncio.Event())

    def changed(self) -> None:
        """Call every listener."""
        for on_change in tuple(self._listeners):
            on_change()

    @property
    def listener_count(self) -> int:
        """Return the number of listeners that have not left."""
        return len(self._listeners)

    # ------------------------------------------------------------------------------------------ the promise

    async def bounds(self) -> LogBounds:
        await self._called("bounds")
        return self._bounds()

    async def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        at_least_one: bool,
        max_wait_s: float,
        bounds: LogBounds | None = None,
    ) -> LogRead:
        self.waits_s.append(max_wait_s)
        self.reads.append((offset, max_bytes))
        await self._called("read")
        bounds = self._bounds()
        if self.throttled_ms or self.is_pending:
            return LogRead((), bounds, throttled_ms=self.throttled_ms, is_pending=self.is_pending)
        if not bounds.log_start_offset <= offset <= bounds.high_watermark:
            raise OffsetOutOfRangeError(
                f"{offset} is not between {bounds.log_start_offset} and {bounds.high_watermark}"
            )
        chosen = self._chosen(offset, bounds.end_offset(isolation), max_bytes=max_bytes, at_least_one=at_least_one)
        if not chosen:
            return LogRead((), bounds)
        is_committed = isolation is IsolationLevel.READ_COMMITTED
        aborted = self._aborted(offset, chosen[-1].last_offset + 1) if is_committed else ()
        next_offset = chosen[-1].last_offset + 1
        has_more = next_offset < bounds.end_offset(isolation)
        return LogRead(self._pieces(chosen), bounds, aborted, has_more=has_more)

    async def list_offset(self, timestamp_ms: int, *, isolation: IsolationLevel) -> TimestampOffset | None:
        await self._called("list_offset")
        end = self._bounds().end_offset(isolation)
        if timestamp_ms < 0:
            return self._place(OffsetSpec(timestamp_ms), end)
        return next((each for each in self._times(end) if each.timestamp_ms >= timestamp_ms), None)

    async def epoch_end(self, leader_epoch: int) -> EpochEndOffset:
        await self._called("epoch_end")
        return self.lineage.end_offset_for(leader_epoch, log_end_offset=self.log_end_offset)

    def listen(self, on_change: Callable[[], None]) -> Callable[[], None]:
        self.calls["listen"] += 1
        self._listeners.append(on_change)
        return lambda: self._listeners.remove(on_change)

    # ------------------------------------------------------------------------------------------ how it works

    async def _called(self, method: str) -> None:
        self.calls[method] += 1
        self._under_way += 1
        self.at_once = max(self.at_once, self._under_way)
        try:
            await asyncio.sleep(0)
            if method in self.holds:
                await self.holds[method].wait()
            if self.failures.get(method):
                raise self.failures[method].pop(0)
        finally:
            self._under_way -= 1

    def _bounds(self) -> LogBounds:
        high_watermark = self.log_end_offset if self.high_watermark is None else self.high_watermark
        latest = self.lineage.latest
        return LogBounds(
            log_start_offset=self.log_start_offset,
            high_watermark=high_watermark,
            last_stable_offset=self._last_stable_offset(high_watermark),
            leader_epoch=-1 if latest is None else latest.epoch,
            is_end_known=self.is_end_known,
            local_start_offset=None if self._file is None else self.local_start_offset or self.log_start_offset,
        )

    def _last_stable_offset(self, high_watermark: int) -> int:
        undecided = (
            each.first_offset
            for each in self._transactions
            if each.marker_offset is None or each.marker_offset >= high_watermark
        )
        return min(undecided, default=high_watermark)

    def _follow_transaction(self, batch: RecordBatch) -> None:
        transaction = self._open_transaction(batch.producer_id)
        if not batch.is_control:
            if transaction is None:
                self._transactions.append(_Transaction(batch.producer_id, batch.base_offset))
        elif transaction is not None:
            transaction.marker_offset = batch.base_offset
            transaction.is_aborted = batch.control_type() is ControlRecordType.ABORT

    def _open_transaction(self, producer_id: int) -> _Transaction | None:
        mine = (t for t in self._transactions if t.producer_id == producer_id and t.marker_offset is None)
        return next(mine, None)

    def _chosen(self, offset: int, end: int, *, max_bytes: int, at_least_one: bool) -> list[RecordBatch]:
        chosen, size_bytes = list[RecordBatch](), 0
        for batch in self._batches:
            if batch.last_offset < offset:
                continue
            fits = size_bytes + batch.size_bytes <= max_bytes
            if batch.last_offset >= end or not (fits or (at_least_one and not chosen)):
                break
            if chosen and batch.base_offset in self.segment_starts:
                break
            chosen.append(batch)
            size_bytes += batch.size_bytes
        return chosen

    def _pieces(self, chosen: Sequence[RecordBatch]) -> tuple[bytes | FileSlice, ...]:
        if self._file is None:
            return tuple(bytes(each.data) for each in chosen)
        position = sum(each.size_bytes for each in self._batches if each.last_offset < chosen[0].base_offset)
        size_bytes = sum(each.size_bytes for each in chosen)
        return (FileSlice(self._file, self._file.stat().st_ino, position, size_bytes),)

    def _aborted(self, offset: int, end: int) -> tuple[AbortedTransaction, ...]:
        return tuple(
            AbortedTransaction(each.producer_id, each.first_offset, each.marker_offset, each.marker_offset + 1)
            for each in sorted(self._transactions, key=lambda each: each.marker_offset or 0)
            if each.is_aborted and each.marker_offset is not None
            if each.marker_offset >= offset and each.first_offset < end
        )

    def _records(self, end: int) -> list[tuple[RecordBatch, Record]]:
        return [
            (batch, record)
            for batch in self._batches
            if not batch.is_control
            for record in batch.records()
            if self.log_start_offset <= record.offset < end
        ]

    def _times(self, end: int) -> list[TimestampOffset]:
        return [
            TimestampOffset(record.timestamp_ms, record.offset, batch.partition_leader_epoch)
            for batch, record in self._records(end)
        ]

    def _place(self, spec: OffsetSpec, end: int) -> TimestampOffset | None:
        local_start = self.log_start_offset if self.local_start_offset is None else self.local_start_offset
        match spec:
            case OffsetSpec.LATEST:
                latest = self.lineage.latest
                return TimestampOffset(-1, end, latest.epoch if latest else None)
            case OffsetSpec.EARLIEST:
                return self._at(self.log_start_offset)
            case OffsetSpec.EARLIEST_LOCAL:
                return self._at(local_start)
            case OffsetSpec.MAX_TIMESTAMP:
                return max(self._times(end), key=lambda each: (each.timestamp_ms, -each.offset), default=None)
            case OffsetSpec.LATEST_TIERED:
                return self._at(self.highest_remote_offset) if self.highest_remote_offset >= 0 else None
            case OffsetSpec.EARLIEST_PENDING_UPLOAD:
                return self._at(max(self.highest_remote_offset + 1, self.log_start_offset))

    def _at(self, offset: int) -> TimestampOffset:
        return TimestampOffset(-1, offset, self.lineage.epoch_for(offset))
