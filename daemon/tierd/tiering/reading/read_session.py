"""ReadSession: one reader on its way through both tiers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tierd.errors import (
    CorruptRecordError,
    OffsetOutOfRangeError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    SegmentChangedError,
)
from tierd.log import AbortedTransaction, LocalLog, RecordBatch, iter_batches, last_stable_offset
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierd.remote import RemoteStorageManager
from tierd.tiering.reading.remote_indexes import RemoteIndexes
from tierd.tiering.reading.remote_reader import RemoteSegmentReader
from tierd.tiering.reading.tiered_log import Isolation, Tier, TieredLog
from tierd.tiering.recorder import TieringRecorder

_REPLANS = 5


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole batches of one segment, and where to go on."""

    batches: Sequence[RecordBatch]
    next_offset: int
    tier: Tier


@dataclass(frozen=True, slots=True)
class ReadSources:
    """Where a session reads: the two tiers as they are now, the remote bytes and indexes, and who is told."""

    snapshot: Callable[[], Awaitable[TieredLog]]
    remote: RemoteStorageManager
    indexes: RemoteIndexes
    recorder: TieringRecorder


class ReadSession:
    """Reads forward from where it was begun. ``close`` it; one caller at a time."""

    def __init__(self, sources: ReadSources, isolation: Isolation, *, window_bytes: int, read_ahead: bool) -> None:
        self._sources = sources
        self._isolation = isolation
        self._window_bytes = window_bytes
        self._read_ahead = read_ahead
        self._log: TieredLog | None = None
        self._local: LocalLog | None = None
        self._reader: RemoteSegmentReader | None = None
        self._reader_end = 0  # exclusive: beyond it the open segment is not of our branch
        self._probe: tuple[int, RemoteLogSegmentMetadata | None] | None = None  # the last answer of _next_indexed
        self.end_offset = 0

    async def begin(self, offset: int | None) -> int:
        """Look at the log; return the offset to begin at, the log start when None is asked for.

        Raises:
            OffsetOutOfRangeError: the log does not reach from or to ``offset``.
        """
        log = await self._look()
        start = log.log_start_offset if offset is None else offset
        log.require_readable(start)
        return start

    async def close(self) -> None:
        """End what is read ahead. The session may go on; it begins a new range then."""
        reader, self._reader = self._reader, None
        if reader is not None:
            self._sources.recorder.bytes_fetched(self._topic, reader.fetched_bytes)
            await reader.close()

    async def next_piece(self, offset: int, *, max_bytes: int) -> Piece | None:
        """The batches from ``offset`` on; None at the end. Looks anew when a file or segment has gone meanwhile."""
        for _ in range(_REPLANS):
            log = self._require_log()
            try:
                return await self._piece(log, offset, max_bytes)
            except SegmentChangedError:
                await self._look()
            except RemoteResourceNotFoundError:
                segment = log.remote_segment(offset)
                fresh = await self._look()
                still = fresh.view.segment(segment.segment.id) if segment else None
                if still is None or still.state is not RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                    continue
                raise  # the metadata says that it is there: never an offset out of range
        raise SegmentChangedError(
            f"{self._require_log().partition}: the log changed {_REPLANS} times under one read", remedy="read again"
        )

    async def aborted(self, from_offset: int, upper: int) -> tuple[AbortedTransaction, ...]:
        """Aborted transactions that touch ``[from_offset, upper)``, each once (remote-tiering 14.4)."""
        if self._isolation is Isolation.READ_UNCOMMITTED:
            return ()
        log = self._require_log()
        found: dict[AbortedTransaction, None] = {}
        if log.tier_of(from_offset) is Tier.REMOTE:
            segment = self._next_indexed(log, from_offset)
            while segment is not None:
                index = await self._sources.indexes.transaction_index(segment)
                part, complete = index.collect(from_offset, upper)
                found.update(dict.fromkeys(part))
                if complete:
                    return tuple(found)
                segment = self._next_indexed(log, segment.end_offset + 1)
        if self._local is not None:
            part = await asyncio.to_thread(self._local.aborted_transactions, from_offset, upper)
            found.update(dict.fromkeys(part))
        return tuple(found)

    def _next_indexed(self, log: TieredLog, offset: int) -> RemoteLogSegmentMetadata | None:
        """``TieredLog.next_indexed_segment``; a log without aborts would be walked to its end for every piece."""
        if self._probe is not None:
            asked, answer = self._probe
            if asked <= offset and (answer is None or offset <= answer.start_offset):
                return answer
        answer = log.next_indexed_segment(offset)
        self._probe = (offset, answer)
        return answer

    async def _look(self) -> TieredLog:
        self._log = log = await self._sources.snapshot()
        self._probe = None
        self._local, stable = None, log.end_offset
        if log.scan is not None and log.scan.segments and log.high_watermark is not None:
            if self._isolation is Isolation.READ_COMMITTED:
                decided = await asyncio.to_thread(last_stable_offset, log.scan, high_watermark=log.high_watermark)
                stable = max(decided, log.remote_end_offset)  # only decided data is ever copied
            self._local = LocalLog(log.scan, high_watermark=log.high_watermark, last_stable_offset=stable)
        self.end_offset = stable
        return log

    async def _piece(self, log: TieredLog, offset: int, max_bytes: int) -> Piece | None:
        while offset < self.end_offset:
            if log.tier_of(offset) is Tier.LOCAL:
                return await self._local_piece(log, offset, max_bytes)
            piece = await self._remote_piece(log, offset)
            if piece.batches:
                return piece
            offset = piece.next_offset  # nothing at or after the offset in that segment, as after compaction
        return None

    async def _local_piece(self, log: TieredLog, offset: int, max_bytes: int) -> Piece | None:
        assert self._local is not None, "local reads have a local log"
        try:
            data = await asyncio.to_thread(self._local.read, offset, max_bytes=max_bytes)
        except OffsetOutOfRangeError as error:
            raise SegmentChangedError(str(error)) from error  # we only ask for what the scan had
        name = f"{log.partition} from {offset}"
        found = await asyncio.to_thread(lambda: list(iter_batches(data, name=name)))
        batches = [batch for batch in found if batch.last_offset >= offset and batch.base_offset < self.end_offset]
        return Piece(batches, batches[-1].last_offset + 1, Tier.LOCAL) if batches else None

    async def _remote_piece(self, log: TieredLog, offset: int) -> Piece:
        reader = await self._reader_at(log, offset)
        end = self._reader_end
        try:
            while found := await reader.next_batches():
                batches = [batch for batch in found if batch.last_offset >= offset and batch.base_offset < end]
                if batches:
                    return Piece(batches, batches[-1].last_offset + 1, Tier.REMOTE)
                if found[-1].base_offset >= end:
                    break
        except CorruptRecordError as error:
            self._sources.recorder.fetch_failed(self._topic)
            raise RemoteIntegrityError(str(error), remedy=f"run tierd verify --deep {log.partition}") from error
        except Exception:
            self._sources.recorder.fetch_failed(self._topic)
            raise
        return Piece((), end, Tier.REMOTE)

    async def _reader_at(self, log: TieredLog, offset: int) -> RemoteSegmentReader:
        """The open reader if it stands in the right segment, else a new one at the offset's floor position."""
        metadata = log.remote_segment(offset)
        if metadata is None:
            raise log.missing(offset)
        reader = self._reader
        if reader is not None and reader.metadata.segment == metadata.segment and offset < self._reader_end:
            return reader
        await self.close()
        self._reader_end = log.readable_end(metadata, offset)
        self._sources.recorder.fetch_requested(self._topic)
        position = 0
        if offset > metadata.start_offset:
            index = await self._sources.indexes.offset_index(metadata)
            position = index.lookup(offset).position
        self._reader = RemoteSegmentReader(
            self._sources.remote,
            metadata,
            position=position,
            window_bytes=self._window_bytes,
            read_ahead=self._read_ahead,
        )
        return self._reader

    def _require_log(self) -> TieredLog:
        assert self._log is not None, "a session is begun before it is read"
        return self._log

    @property
    def _topic(self) -> str:
        return self._require_log().partition.topic
