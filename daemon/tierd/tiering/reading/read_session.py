"""One sequential read through the local log and the tier."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tierd.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    SegmentChangedError,
)
from tierd.log import AbortedTransaction, CheckedBatches, LocalLog, find_cut_end, walk_checked
from tierd.model import IsolationLevel, RemoteLogSegmentId, RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager
from tierd.tasks import wait_all
from tierd.tiering.reading.aborted_lookup import AbortedLookup
from tierd.tiering.reading.read_ahead import ReadAhead, ReadAheadLimits, ReadAheadWindow
from tierd.tiering.reading.reading_bounds import (
    ReadingBounds,
    is_replaced,
    local_log_of,
    on_current,
    reading_bounds,
    remote_end,
)
from tierd.tiering.reading.remote_indexes import RemoteIndexes
from tierd.tiering.reading.remote_reader import RemoteSegmentReader
from tierd.tiering.reading.tiered_log import Tier, TieredLog
from tierd.tiering.recorder import TieringRecorder

_REPLANS = 5
_NO_BATCHES: Final = walk_checked(b"", name="no segment")


@dataclass(frozen=True, slots=True)
class Piece:
    """Complete batches of one segment, and the offset behind them."""

    batches: CheckedBatches
    next_offset: int
    log: TieredLog  # the log as it was when the batches were read
    tier: Tier
    segment: RemoteLogSegmentId | None = None  # None: a local segment


class _Rest(NamedTuple):
    """Batches of a remote piece that the caller did not use, ascending; the open reader stands behind them."""

    segment: RemoteLogSegmentId
    from_offset: int  # no record lies between this offset and the first of the batches
    batches: CheckedBatches


class _ReadOut(NamedTuple):
    """A segment whose last byte was read. Compaction may have left its range empty behind its last batch."""

    segment: RemoteLogSegmentId
    from_offset: int


@dataclass(frozen=True, slots=True)
class ReadSources:
    """Sources of a session: the present state of tier and local log, the remote bytes, the indexes, the recorder."""

    snapshot: Callable[[], Awaitable[TieredLog]]
    remote: RemoteStorageManager
    indexes: RemoteIndexes
    recorder: TieringRecorder


class ReadSession:
    """A forward read from a first offset on, for one caller at a time. The caller has to ``close`` it."""

    def __init__(
        self, sources: ReadSources, isolation: IsolationLevel, limits: ReadAheadLimits, *, to_offset: int | None = None
    ) -> None:
        """Read from ``sources``; do not read ahead from ``to_offset`` on."""
        self._sources = sources
        self._isolation = isolation
        self._to_offset = to_offset
        self._log: TieredLog | None = None
        self._local: LocalLog | None = None
        self._aborts: AbortedLookup  # of the log as it was seen last
        self._ahead = ReadAhead(
            sources.remote,
            limits,
            on_open=lambda: sources.recorder.fetch_requested(self._topic),
            on_bytes=lambda size: sources.recorder.bytes_fetched(self._topic, size),
        )
        self._pieces = 0
        self._rest: _Rest | None = None
        self._read_out: _ReadOut | None = None
        self.end_offset = 0
        self.empty_to = 0
        """Exclusive end of the offsets that compaction left empty at the last ``next_piece``."""

    async def begin(self, offset: int | None, log: TieredLog | None = None) -> int:
        """Take a snapshot of the log, or ``log``; return the offset to begin at: ``offset``, or for None the log start.

        A session that was used before keeps its open readers if they stand at the right place.

        Raises:
            OffsetOutOfRangeError: the log does not reach from or to ``offset``.
        """
        await self._ahead.drop_failed()
        log = await self._begin_on(log)
        start = log.log_start_offset if offset is None else offset
        log.require_readable(start)
        return start

    async def close(self) -> None:
        """End reading ahead; a cancellation is raised then. A session that is used again begins a new range."""
        await wait_all(self.abandon())

    def abandon(self) -> "list[asyncio.Task[bytes]]":
        """Cancel the reads ahead, as ``close`` does, and return them: the caller waits for their end."""
        self._rest = None
        return self._ahead.abandon()

    def tier_of(self, offset: int) -> Tier:
        """Return the tier that ``offset`` is read from."""
        return self._require_log().tier_of(offset)

    async def next_piece(self, offset: int, *, max_bytes: int) -> Piece | None:
        """Return the batches from ``offset`` on; None at the end, and at an offset that is awaited (``TieredLog``).

        A snapshot whose files are gone, or were cut back, is taken again.
        """
        if self._pieces:
            self._ahead.went_on()
        self._pieces += 1
        for _ in range(_REPLANS):
            try:
                return await self._piece(self._require_log(), offset, max_bytes)
            except SegmentChangedError:
                await self._begin_on()
        raise SegmentChangedError(
            f"{self._require_log().partition}: the log changed {_REPLANS} times under one read", remedy="read again"
        )

    def require_none_awaited(self, offset: int, to_offset: int | None) -> None:
        """Make sure that a read that has ended at ``offset`` lacks no record that the local log lost in a cut.

        Raises:
            OffsetOutOfRangeError: a committed record below ``to_offset`` is neither in the local log nor in the tier.
        """
        log = self._require_log()
        awaited = log.awaited(offset)
        if awaited is not None and (to_offset is None or awaited < to_offset):
            raise log.missing(awaited)

    def require_read(self, offset: int, to_offset: int) -> None:
        """Make sure that a read that has ended at ``offset`` has left out nothing below ``to_offset``.

        Raises:
            OffsetOutOfRangeError: the log ends before ``to_offset``, although it reached it when the read was planned.
        """
        log = self._require_log()
        read_to = max(offset, self.empty_to)
        if read_to < to_offset and log.tier_of(read_to) is Tier.LOCAL and log.scan is not None:
            read_to = max(read_to, log.scan.segments[-1].base_offset)  # compaction may empty all but the active segment
        if read_to < to_offset:
            raise OffsetOutOfRangeError(
                f"{log.partition}: the log ends at offset {read_to}, not at {to_offset} as the plan of this read",
                remedy="its replica has left this host, or was cut back; read again when the log is there",
            )

    def give_back(self, piece: Piece, used: int) -> None:
        """Take back the batches of the last ``piece`` behind the first ``used``; the read behind those has them."""
        if piece.segment is not None and used < len(piece.batches):
            begins = piece.batches.last_offsets[used - 1] + 1 if used else piece.batches.base_offsets[0]
            self._rest = _Rest(piece.segment, begins, piece.batches[used:])

    def goes_on(self, piece: Piece) -> bool:
        """Return true if the segment of a remote ``piece`` has more batches behind it."""
        log = self._require_log()
        segment = log.remote_segment(piece.next_offset) if log.tier_of(piece.next_offset) is Tier.REMOTE else None
        if segment is None or segment.segment != piece.segment or self._is_read_out(segment, piece.next_offset):
            return False
        return piece.next_offset < self.end_offset

    async def aborted(self, log: TieredLog, from_offset: int, upper: int) -> tuple[AbortedTransaction, ...] | None:
        """Return the aborted transactions that touch ``[from_offset, upper)``, for a reader of committed records.

        None when segments were replaced since the batches were read from ``log``. The caller has to read the batches
        again, because the new segments do not name transactions of aborted batches that compaction removed.
        """
        if self._isolation is IsolationLevel.READ_UNCOMMITTED:
            return ()
        if log is not self._log:
            return None
        try:
            return await self._aborts.touching(from_offset, upper)
        except RemoteResourceNotFoundError:
            if not is_replaced(log, await self._sources.snapshot()):
                raise
        except SegmentChangedError:
            pass
        await self.close()
        await self._begin_on()
        return None

    async def _begin_on(self, log: TieredLog | None = None) -> TieredLog:
        snapshot = self._sources.snapshot
        found, bounds = await on_current(log or await snapshot(), snapshot, self._bounded)
        self._log = log = found
        self._local = local_log_of(log, bounds)
        self.end_offset = bounds.end_offset
        self._aborts = AbortedLookup(log, self._local, self._sources.indexes)
        return log

    async def _bounded(self, log: TieredLog) -> tuple[TieredLog, ReadingBounds]:
        return log, await reading_bounds(log, self._isolation, self._sources.indexes)

    async def _piece(self, log: TieredLog, offset: int, max_bytes: int) -> Piece | None:
        self.empty_to = offset
        while self.empty_to < self._wanted_end:
            if log.tier_of(self.empty_to) is Tier.LOCAL:
                return await self._local_piece(log, self.empty_to, max_bytes)
            if log.is_awaited(self.empty_to):
                return None
            piece = await self._remote_piece(log, self.empty_to)
            if piece.batches:
                return piece
            self.empty_to = piece.next_offset  # compaction left no batch at or after the offset in that segment
        return None

    async def _local_piece(self, log: TieredLog, offset: int, max_bytes: int) -> Piece | None:
        assert self._local is not None, "local reads have a local log"
        try:
            data = await asyncio.to_thread(self._local.read, offset, max_bytes=max_bytes)
        except OffsetOutOfRangeError as error:
            raise SegmentChangedError(str(error)) from error  # the offset was in the scan
        if not data:
            await _require_uncut(log)
            return None
        name = f"{log.partition} from {offset}"
        found = await asyncio.to_thread(walk_checked, data, name=name)
        batches = found.between(offset, self.end_offset)
        return Piece(batches, batches.last_offsets[-1] + 1, log, Tier.LOCAL) if batches else None

    async def _remote_piece(self, log: TieredLog, offset: int) -> Piece:
        metadata = log.remote_segment(offset)
        if metadata is None:
            raise log.missing(offset)
        segment_end = remote_end(log, metadata, offset)
        end = min(segment_end, self.end_offset)  # committed reads may end inside the segment
        if self._is_read_out(metadata, offset):
            return Piece(_NO_BATCHES, end, log, Tier.REMOTE)
        rest = await self._take_rest(metadata, offset, log)
        try:
            wanted_from = rest.last_offsets[-1] + 1 if rest else offset
            reader = await self._reader_at(ReadAheadWindow(metadata, segment_end), offset, wanted_from=wanted_from)
            return await self._batches_from(log, reader, rest, offset, end)
        except RemoteResourceNotFoundError as error:
            if is_replaced(log, await self._sources.snapshot()):
                raise SegmentChangedError(f"{metadata.segment} went, or was replaced, while it was read") from error
            self._sources.recorder.fetch_failed(self._topic)
            raise  # the metadata lists the segment: this is no offset out of range
        except CorruptRecordError as error:
            self._sources.recorder.fetch_failed(self._topic)
            raise RemoteIntegrityError(str(error), remedy=f"run tierd verify --deep {log.partition}") from error
        except Exception:
            self._sources.recorder.fetch_failed(self._topic)
            raise

    async def _batches_from(
        self, log: TieredLog, reader: RemoteSegmentReader, rest: CheckedBatches | None, offset: int, end: int
    ) -> Piece:
        """Return the batches of ``rest``, or else the next batches of ``reader``, that lie in ``[offset, end)``."""
        segment = reader.metadata.segment
        while found := rest or await self._next_batches(log, reader):
            rest = None
            if reader.is_at_end:
                self._read_out = _ReadOut(segment, found.last_offsets[-1] + 1)
            batches = found.between(offset, end)
            if batches:
                return Piece(batches, batches.last_offsets[-1] + 1, log, Tier.REMOTE, segment)
            if found.base_offsets[-1] >= end:
                break
        return Piece(_NO_BATCHES, end, log, Tier.REMOTE)

    def _is_read_out(self, metadata: RemoteLogSegmentMetadata, offset: int) -> bool:
        """Return true if the segment has no batch at ``offset`` or behind it."""
        done = self._read_out
        return not metadata.size_bytes or (
            done is not None and done.segment == metadata.segment and done.from_offset <= offset
        )

    async def _take_rest(self, segment: RemoteLogSegmentMetadata, offset: int, log: TieredLog) -> CheckedBatches | None:
        """Return the batches that were given back if they hold ``offset``; else close the reader behind them."""
        rest, self._rest = self._rest, None
        if rest is None:
            return None
        if segment.segment == rest.segment and rest.from_offset <= offset <= rest.batches.last_offsets[-1]:
            self._ahead.fill(lambda behind: self._following(log, behind))
            return rest.batches
        await self._ahead.close()
        return None

    async def _next_batches(self, log: TieredLog, reader: RemoteSegmentReader) -> CheckedBatches | None:
        if not reader.ahead_bytes:
            reader.begin()
        self._ahead.fill(lambda offset: self._following(log, offset))
        batches = await reader.next_batches()
        if batches and self._sources.indexes.known is not None:
            self._sources.indexes.known.add(reader.metadata.segment, batches)
        self._ahead.fill(lambda offset: self._following(log, offset))
        return batches

    def _following(self, log: TieredLog, offset: int) -> ReadAheadWindow | None:
        """Return the segment to read behind another one; None when it is not certain or needs an index lookup."""
        while offset < self._wanted_end and log.tier_of(offset) is Tier.REMOTE:
            metadata = log.remote_segment(offset)
            if metadata is None or metadata.start_offset != offset:
                return None
            window = ReadAheadWindow(metadata, remote_end(log, metadata, offset))
            if metadata.size_bytes:
                return window
            offset = window.end_offset
        return None

    async def _reader_at(self, window: ReadAheadWindow, offset: int, *, wanted_from: int) -> RemoteSegmentReader:
        """Return the open reader if it is not behind ``wanted_from``, else a new one at the floor of ``offset``."""
        metadata = window.metadata
        if (found := await self._ahead.current(offset, metadata, wanted_from=wanted_from)) is not None:
            return found
        position = 0
        if offset > metadata.start_offset:
            position = await self._sources.indexes.lookup_offset(metadata, offset)
        return self._ahead.begin(window, position)

    @property
    def _wanted_end(self) -> int:
        """Return the exclusive end of the offsets that the caller wants and the log has. The range may have a hole."""
        return self.end_offset if self._to_offset is None else min(self.end_offset, self._to_offset)

    def _require_log(self) -> TieredLog:
        assert self._log is not None, "a session is begun before it is read"
        return self._log

    @property
    def _topic(self) -> str:
        return self._require_log().partition.topic


async def _require_uncut(log: TieredLog) -> None:
    """Make sure that the files of the local log reach as far as ``log`` says, although they have no batch to read.

    Raises:
        SegmentChangedError: they were cut back since.
    """
    assert log.scan is not None, "local reads have a scan"
    cut_at = await asyncio.to_thread(find_cut_end, log.scan, high_watermark=log.local_end_offset)
    if cut_at is not None:
        raise SegmentChangedError(f"{log.partition}: the files of the local log end at {cut_at}", remedy="read again")
