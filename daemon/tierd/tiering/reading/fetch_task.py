"""Reads of one partition by offset, local log and tier as one log (remote-tiering 14)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import NamedTuple

from tierd.errors import CorruptRecordError
from tierd.log import AbortedTransaction, CheckedBatches, Record, committed_batches, data_batches
from tierd.model import IsolationLevel, TimestampOffset
from tierd.remote import RemoteStorageManager
from tierd.tiering.reading.aborted_lookup import AbortedLookup
from tierd.tiering.reading.fetch_gate import FetchGate
from tierd.tiering.reading.fetch_result import FetchResult, read_once
from tierd.tiering.reading.kept_readers import KeptReaders, ReaderPlace
from tierd.tiering.reading.list_offsets import list_offset
from tierd.tiering.reading.read_ahead import ReadAheadLimits
from tierd.tiering.reading.read_session import ReadSession, ReadSources
from tierd.tiering.reading.reading_bounds import local_log_of, reading_bounds
from tierd.tiering.reading.remote_indexes import RemoteIndexes
from tierd.tiering.reading.remote_reader import SMALLEST_WINDOW_BYTES
from tierd.tiering.reading.tiered_log import Tier, TieredLog
from tierd.tiering.recorder import TieringRecorder

_DECODED_BYTES = 1 << 20  # size in the log of the batches that are decoded together
_RECORDS_BYTES = 8 << 20  # of records decoded at once: bounds the memory, beside the batch of the records
_RECORD_BYTES = 200  # of a record without key and value, about
_FIRST_BYTES = 256 << 10  # a sequential reader waits for so many bytes before its first record
_PIECE_BYTES = 4 << 20
_KEPT_SHARE = 4  # each reader that is kept between two reads has this part of ``prefetch_bytes``


@dataclass(frozen=True, slots=True)
class BatchGroup:
    """Successive complete batches of a sequential read.

    Attributes:
        batches: ascending.
        aborted: the aborted transactions that overlap them, for a reader of committed records.
        from_offset: first wanted offset, inclusive.
        to_offset: end of the wanted offsets, exclusive.
    """

    batches: CheckedBatches
    aborted: Sequence[AbortedTransaction]
    from_offset: int
    to_offset: int


class FetchTask:
    """A reader of one partition. Any number of reads may run at once; they share the indexes that they fetched."""

    def __init__(
        self,
        snapshot: Callable[[], Awaitable[TieredLog]],
        *,
        remote: RemoteStorageManager,
        recorder: TieringRecorder,
        prefetch_bytes: int,
        piece_bytes: int = _PIECE_BYTES,
        indexes: RemoteIndexes | None = None,
        gate: FetchGate | None = None,
        kept: KeptReaders | None = None,
    ) -> None:
        """Prepare to read.

        Args:
            snapshot: returns the state of tier and local log; called when a read begins and when segments change.
            remote: the store of the remote bytes.
            recorder: receives the events of remote reads.
            prefetch_bytes: bytes that a sequential reader has under way ahead of itself, across segments.
            piece_bytes: size of one range; the size of stored chunks, or a multiple.
            indexes: shared with other partitions; None for separate indexes.
            gate: bounds and counts the remote reads of ``read`` and ``list_offset``; None for no bound.
            kept: keeps the session behind a ``read``, so that the next read has its bytes under way; None keeps none.
        """
        self._sources = ReadSources(snapshot, remote, indexes or RemoteIndexes(remote.fetch_index), recorder)
        self._prefetch_bytes = prefetch_bytes
        self._piece_bytes = min(piece_bytes, max(prefetch_bytes, SMALLEST_WINDOW_BYTES))
        self._gate = gate
        self._kept = kept

    async def read(
        self, offset: int, *, max_bytes: int, isolation: IsolationLevel, at_least_one: bool = True
    ) -> FetchResult:
        """Return batches from the one that holds ``offset`` or follows it.

        There is no batch at the end of the log, and at a committed offset that the local log lost when it was cut back
        and that the tier does not have (``TieredLog.is_awaited``).

        Args:
            offset: first offset wanted.
            max_bytes: bound on the bytes; the first batch may exceed it when ``at_least_one``.
            isolation: committed reads end at the last stable offset and name aborted transactions.
            at_least_one: return the first batch, whatever its size.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start, above the end, or neither local nor in the tier.
            RetriableRemoteStorageError: too many remote reads wait already.
            RemoteStorageNotReadyError: the metadata of the partition is not loaded.
            RemoteResourceNotFoundError: the metadata lists a segment that the store does not have.
            RemoteStorageError: the store did not answer.
        """
        log = await self._sources.snapshot()
        session = self._kept.take(ReaderPlace(log.partition, offset, isolation)) if self._kept else None
        session = session or ReadSession(self._sources, isolation, self._limits(max_bytes))
        goes_on_at: int | None = None
        try:
            await session.begin(offset, log)
            result = await self._admitted(session, offset, max_bytes, at_least_one=at_least_one)
            if (result.data or result.throttled_ms) and result.next_offset < session.end_offset:
                goes_on_at = result.next_offset
                result = replace(result, goes_on=session.tier_of(goes_on_at) is Tier.REMOTE)
            return result
        finally:
            if self._kept is None or goes_on_at is None or session.tier_of(goes_on_at) is Tier.LOCAL:
                await session.close()
            else:
                await self._kept.keep(ReaderPlace(log.partition, goes_on_at, isolation), session)

    def _limits(self, max_bytes: int) -> ReadAheadLimits:
        """Return the limits of one read and of the reads that go on behind it."""
        window_bytes = max_bytes + SMALLEST_WINDOW_BYTES
        if self._kept is None:
            return ReadAheadLimits(first_bytes=window_bytes, piece_bytes=window_bytes)
        return ReadAheadLimits(
            first_bytes=window_bytes, piece_bytes=self._piece_bytes, ahead_bytes=self._prefetch_bytes // _KEPT_SHARE
        )

    async def _admitted(self, session: ReadSession, offset: int, max_bytes: int, *, at_least_one: bool) -> FetchResult:
        """Read once the gate admits a remote read."""
        if self._gate is None or session.tier_of(offset) is Tier.LOCAL or offset >= session.end_offset:
            return await read_once(session, offset, max_bytes, at_least_one=at_least_one)
        if throttled_ms := self._gate.throttle_ms():
            self._sources.recorder.fetch_throttled(throttled_ms)
            return FetchResult.nothing(Tier.REMOTE, offset, throttled_ms=throttled_ms)
        size = 0
        async with self._gate.place(f"read from offset {offset}"):
            try:
                result = await read_once(session, offset, max_bytes, at_least_one=at_least_one)
                size = len(result.data)
            finally:
                self._gate.record(size)
        return result

    async def list_offset(
        self, timestamp_ms: int, *, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> TimestampOffset | None:
        """Find the first record that is no older than a timestamp, or the place that an ``OffsetSpec`` names.

        Returns:
            None without such a record or place.

        Raises:
            ValueError: a negative number that is no ``OffsetSpec``.
            RetriableRemoteStorageError: too many remote reads wait already.
            TierError: as ``list_offset`` of the module ``list_offsets``.
        """
        if self._gate is None or timestamp_ms < 0:
            return await list_offset(self._sources, timestamp_ms, isolation=isolation)
        async with self._gate.place(f"search for timestamp {timestamp_ms}"):
            return await list_offset(self._sources, timestamp_ms, isolation=isolation)

    async def stable_end(self, log: TieredLog) -> int:
        """Return the exclusive end of committed reads of ``log``, which a snapshot returned.

        Raises:
            LogError: the local log cannot be read.
            RemoteStorageError: the transactions that are open at the end of the tier are not known.
        """
        return (await reading_bounds(log, IsolationLevel.READ_COMMITTED, self._sources.indexes)).end_offset

    async def aborted(self, log: TieredLog, from_offset: int, upper: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that touch ``[from_offset, upper)`` of ``log``, which a snapshot returned.

        For a caller that reads the batches of the local log itself.

        Raises:
            RemoteResourceNotFoundError: the objects of a segment that may know some are gone.
            SegmentChangedError: the local log changed.
        """
        indexes = self._sources.indexes
        bounds = await reading_bounds(log, IsolationLevel.READ_COMMITTED, indexes)
        return await AbortedLookup(log, local_log_of(log, bounds), indexes).touching(from_offset, upper)

    async def records(
        self, from_offset: int | None, to_offset: int | None, isolation: IsolationLevel
    ) -> AsyncGenerator[Record, None]:
        """Yield records in order of offset, as a consumer sees them: no markers, and no records beyond the end.

        Close the generator (``contextlib.aclosing``) when leaving it early, so that reading ahead ends too.

        Args:
            from_offset: first offset wanted; None means the log start.
            to_offset: exclusive end; None means the end of the log at this moment.
            isolation: committed reads yield no records of aborted or open transactions.

        Raises:
            OffsetOutOfRangeError: as ``read``; also in the middle of the read, where offsets are missing, and behind
                all records that are there, where a local log that was cut back has lost wanted ones.
            BatchTooLargeError: a batch unpacks to more bytes than tierd opens; the records before it were yielded.
            CorruptRecordError: a local batch is damaged, or records cannot be decoded.
            RemoteIntegrityError: remote bytes are damaged.
        """
        async with aclosing(self.batches(from_offset, to_offset, isolation)) as groups:
            async for group in groups:
                records = _decoded(group, isolation)
                while (step := await asyncio.to_thread(_next_records, records)).records or step.error:
                    for record in step.records:
                        yield record
                    if step.error is not None:
                        raise step.error

    async def batches(
        self,
        from_offset: int | None,
        to_offset: int | None,
        isolation: IsolationLevel,
        *,
        must_reach_end: bool = False,
    ) -> AsyncGenerator[BatchGroup, None]:
        """Yield the batches of ``records``, markers and aborted batches included. Arguments and errors are equal.

        With ``must_reach_end``, a log that ends before ``to_offset`` is an OffsetOutOfRangeError as well, after all
        that it has: for a caller that planned the range, and records that it is read.
        """
        limits = ReadAheadLimits(
            first_bytes=min(_FIRST_BYTES, self._piece_bytes),
            piece_bytes=self._piece_bytes,
            ahead_bytes=self._prefetch_bytes,
            is_eager=to_offset is None,
        )
        session = ReadSession(self._sources, isolation, limits, to_offset=to_offset)
        try:
            offset = await session.begin(from_offset)
            end = session.end_offset if to_offset is None else min(to_offset, session.end_offset)
            while offset < end:
                piece = await session.next_piece(offset, max_bytes=_DECODED_BYTES)
                if piece is None:
                    break
                for batches in _groups(piece.batches):
                    upper = batches.last_offsets[-1] + 1
                    aborted = await session.aborted(piece.log, batches.base_offsets[0], upper)
                    if aborted is None:
                        break
                    yield BatchGroup(batches, aborted, offset, end)
                    offset = upper
            if must_reach_end and to_offset is not None:
                session.require_read(offset, to_offset)
            session.require_none_awaited(offset, to_offset)
        finally:
            await session.close()


def _groups(batches: CheckedBatches) -> Iterator[CheckedBatches]:
    """Split batches into runs of about ``_DECODED_BYTES``, so that few records are in memory at once."""
    while batches:
        group = batches.within(_DECODED_BYTES) or batches[:1]
        yield group
        batches = batches[len(group) :]


def _decoded(group: BatchGroup, isolation: IsolationLevel) -> Iterator[Record]:
    """Yield the records of a group; a batch is decompressed when its first record is asked for."""
    is_committed = isolation is IsolationLevel.READ_COMMITTED
    wanted = committed_batches(group.batches, group.aborted) if is_committed else data_batches(group.batches)
    for batch in wanted:
        for record in batch.records():
            if group.from_offset <= record.offset < group.to_offset:
                yield record


class _Step(NamedTuple):
    """Decoded records, and the error behind them."""

    records: list[Record]
    error: CorruptRecordError | None = None


def _next_records(records: Iterator[Record]) -> _Step:
    """Take records of about ``_RECORDS_BYTES``: a few kilobytes of compressed batches may hold any number of bytes."""
    taken: list[Record] = []
    size = 0
    try:
        for record in records:
            taken.append(record)
            size += _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
            if size >= _RECORDS_BYTES:
                break
    except CorruptRecordError as error:
        return _Step(taken, error)
    return _Step(taken)
