"""The resources that the readers of all partitions share: places, quota, indexes, and the chunks on disk."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.clock import Clock
from tierd.config import FetchSettings
from tierd.errors import RemoteStorageError, TierError, TierErrorCode
from tierd.log import AbortedTransaction
from tierd.model import IsolationLevel, TimestampOffset
from tierd.remote import CacheStatistics, ChunkCache, RemoteStorageManager
from tierd.tasks import end_tasks, retrieve
from tierd.tiering.capacity import UNLIMITED, RateQuota
from tierd.tiering.reading.cached_reads import CachedLogs, CachedReads, CachedResult
from tierd.tiering.reading.fetch_gate import FetchGate, GateStatistics
from tierd.tiering.reading.fetch_result import FetchResult
from tierd.tiering.reading.fetch_task import FetchTask
from tierd.tiering.reading.index_cache import RemoteIndexCache
from tierd.tiering.reading.kept_readers import KeptReaders, ReaderPlace
from tierd.tiering.reading.late_reads import LatePlace, LateReads
from tierd.tiering.reading.offset_places import search_timed_out
from tierd.tiering.reading.remote_indexes import RemoteIndexes
from tierd.tiering.reading.tiered_log import Tier, TieredLog
from tierd.tiering.recorder import TieringRecorder

_KEPT_READERS = 16  # each has at most a quarter of fetch.prefetch under way, and one range that is not used up
_LATE_READS = 32
_NEXT_KEPT_S = 5.0


@dataclass(frozen=True, slots=True)
class FetchStatistics:
    """The counters of a ``FetchService``; None for a cache that the service does not have."""

    gate: GateStatistics
    chunks: CacheStatistics | None
    indexes: CacheStatistics | None


class FetchService:
    """The reader of the tier for all partitions, with deadlines. ``open_fetch_service`` opens it.

    Attributes:
        index_cache: the index cache on disk, which has to learn of deleted segments; None without a cache.
        chunk_cache: the chunk cache on disk, which has to learn of deleted segments; None without a cache.
    """

    def __init__(
        self,
        remote: RemoteStorageManager,
        *,
        settings: FetchSettings,
        piece_bytes: int,
        chunks: ChunkCache | None,
        indexes: RemoteIndexCache | None,
        cached: CachedReads | None = None,
        recorder: TieringRecorder,
        clock: Clock,
    ) -> None:
        self._remote = remote
        self._cached = cached
        self._settings = settings
        self._piece_bytes = piece_bytes
        self.chunk_cache: Final = chunks
        self.index_cache: Final = indexes
        self._indexes = RemoteIndexes(
            indexes.read if indexes else remote.fetch_index, known=None if cached is None else cached.known
        )
        self._recorder = recorder
        self._gate = FetchGate(
            concurrency=settings.concurrency,
            max_pending=settings.max_pending,
            quota=RateQuota(
                settings.max_bytes_per_second or UNLIMITED,
                windows=settings.quota_windows,
                window_s=settings.quota_window_s,
            ),
            clock=clock,
        )
        self._kept = KeptReaders(capacity=_KEPT_READERS, clock=clock)
        self._late = LateReads(capacity=_LATE_READS, clock=clock)
        self._next = LateReads(capacity=_LATE_READS, clock=clock, kept_s=_NEXT_KEPT_S)
        self._running: set[asyncio.Task[FetchResult]] = set()

    def statistics(self) -> FetchStatistics:
        """Return the counters of the service, for metrics."""
        return FetchStatistics(
            self._gate.statistics(),
            self.chunk_cache.statistics() if self.chunk_cache else None,
            self.index_cache.statistics() if self.index_cache else None,
        )

    def task(self, snapshot: Callable[[], Awaitable[TieredLog]]) -> FetchTask:
        """Return a reader of one partition. ``snapshot`` returns the present state of its local log and its tier."""
        return FetchTask(
            snapshot,
            remote=self._remote,
            recorder=self._recorder,
            prefetch_bytes=self._settings.prefetch_bytes,
            piece_bytes=self._piece_bytes,
            indexes=self._indexes,
            gate=self._gate,
            kept=self._kept,
        )

    async def read(
        self,
        task: FetchTask,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        at_least_one: bool = True,
        max_wait_s: float | None = None,
    ) -> FetchResult:
        """Wait for ``task.read`` at most ``max_wait_s`` (``fetch.max_wait`` when None); then return an empty result.

        A read that takes longer goes on, and a later call with the same arguments gets its result (KIP-1018). A
        cancellation of the caller ends the read; chunks that are being downloaded are kept.

        The read behind a result begins at once, within ``fetch.prefetch`` for all readers together: while the caller
        uses the result, the next one becomes ready.
        """
        place = LatePlace(task, offset, max_bytes, isolation, at_least_one)
        reading = self._late.take(place) or self._begun_before(place) or self._begun(place)
        wait_s = self._settings.max_wait_s if max_wait_s is None else max_wait_s
        try:
            if not reading.done():
                await asyncio.wait({reading}, timeout=wait_s)
        except asyncio.CancelledError:
            reading.cancel()
            raise
        if reading.cancelled():
            raise RemoteStorageError(
                "remote reads have ended",
                remedy="nothing to do: the process is ending",
                code=TierErrorCode.READER_CLOSED,
            )
        if not reading.done():
            self._late.keep(place, reading)
            return FetchResult.nothing(Tier.REMOTE, offset, is_pending=True)
        result = reading.result()
        if len(result.data) > max_bytes and not at_least_one:
            return FetchResult.nothing(Tier.REMOTE, offset)
        self._begin_next(place, result)
        return result

    async def read_cached(
        self,
        task: FetchTask,
        log: TieredLog,
        offset: int,
        *,
        end_offset: int,
        max_bytes: int,
        isolation: IsolationLevel,
        at_least_one: bool,
        max_wait_s: float,
    ) -> CachedResult | None:
        """Return the batches that ``read`` returns, as places in files of the chunk cache.

        A read that has begun goes on instead: it has the batches, or bytes behind them, in memory.

        Args:
            task: the reader of the partition.
            log: present state of the partition, which has ``offset`` in the tier.
            offset: first offset wanted.
            end_offset: exclusive end of the reads of this isolation level in ``log``.
            max_bytes: as ``read`` has it.
            isolation: as ``read`` has it.
            at_least_one: as ``read`` has it.
            max_wait_s: deadline for disk and store.

        Returns:
            None where ``read`` has to return the batches, or a reason why there are none.

        Raises:
            As ``FetchTask.aborted``.
        """
        if self._cached is None or self._gate.throttle_ms():
            return None
        if self._has_begun(LatePlace(task, offset, max_bytes, isolation, at_least_one), log):
            return None
        found = self._cached.find(log, offset, end_offset=end_offset, max_bytes=max_bytes, at_least_one=at_least_one)
        if found is None:
            return None
        aborted: tuple[AbortedTransaction, ...] = ()
        try:
            async with asyncio.timeout(max_wait_s):
                pieces = await self._cached.open(found)
                if pieces and isolation is IsolationLevel.READ_COMMITTED:
                    aborted = await task.aborted(log, found.batches.base_offset, found.batches.next_offset)
        except TimeoutError:
            return None
        if not pieces:
            return None
        self._gate.record(found.batches.size_bytes)
        self._recorder.fetch_requested(log.partition.topic)
        self._recorder.bytes_fetched(log.partition.topic, found.batches.size_bytes)
        return CachedResult(tuple(pieces), found.batches.next_offset, aborted)

    def _has_begun(self, place: LatePlace, log: TieredLog) -> bool:
        """Return True if a read of that place runs, or a session of an earlier read stands there."""
        following = place._replace(at_least_one=True)
        reader = ReaderPlace(log.partition, place.offset, place.isolation)
        return place in self._late or following in self._next or reader in self._kept

    def _begun_before(self, place: LatePlace) -> "asyncio.Task[FetchResult] | None":
        """Return the read of that place that began when the result before it was returned, unless it has failed."""
        reading = self._next.take(place._replace(at_least_one=True))
        has_failed = reading is not None and reading.done() and (reading.cancelled() or reading.exception() is not None)
        return None if has_failed else reading

    def _begin_next(self, place: LatePlace, result: FetchResult) -> None:
        free_bytes = self._settings.prefetch_bytes - self._next.max_bytes
        if result.goes_on and place.max_bytes <= free_bytes and self._gate.has_room and not self._gate.throttle_ms():
            following = place._replace(offset=result.next_offset, at_least_one=True)
            self._next.keep(following, self._begun(following))

    def _begun(self, place: LatePlace) -> "asyncio.Task[FetchResult]":
        reading = asyncio.create_task(
            place.task.read(
                place.offset,
                max_bytes=place.max_bytes,
                isolation=place.isolation,
                at_least_one=place.at_least_one,
            ),
            name=f"remote read from {place.offset}",
        )
        self._running.add(reading)
        reading.add_done_callback(self._ended)
        return reading

    async def list_offset(
        self, task: FetchTask, timestamp_ms: int, *, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> TimestampOffset | TierError | None:
        """Return the answer of ``task.list_offset`` within ``fetch.timestamp_timeout``, or the error of the search."""
        limit_s = self._settings.timestamp_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await task.list_offset(timestamp_ms, isolation=isolation)
        except TimeoutError:
            return search_timed_out(timestamp_ms, limit_s=limit_s)
        except TierError as error:
            return error

    async def close(self) -> None:
        """End the reads, and refuse later reads. The caches stay open: ``open_fetch_service`` closes them.

        A cancellation is raised when all has ended.
        """
        self._gate.close()
        async with AsyncExitStack() as stack:  # whose other callbacks run after one that was cancelled
            stack.push_async_callback(self._kept.close)
            stack.push_async_callback(self._next.close)
            stack.push_async_callback(self._late.close)
            await end_tasks(self._running)

    def _ended(self, reading: "asyncio.Task[FetchResult]") -> None:
        self._running.discard(reading)
        retrieve(reading)


@asynccontextmanager
async def open_fetch_service(
    remote: RemoteStorageManager,
    *,
    settings: FetchSettings,
    piece_bytes: int,
    index_directory: Path | None,
    chunks: ChunkCache | None,
    cached_logs: CachedLogs | None = None,
    recorder: TieringRecorder,
    clock: Clock,
) -> AsyncIterator[FetchService]:
    """Open the index cache and a service over ``remote``; close them afterwards.

    Args:
        remote: the store of bytes and indexes; it reads through ``chunks``, if that cache exists.
        settings: the settings of remote reads.
        piece_bytes: size of one range of a sequential reader; the size of stored chunks.
        index_directory: the directory of the index cache. None, or ``fetch.index_cache_bytes`` 0, means no index cache.
        chunks: the chunk cache, for its statistics only.
        cached_logs: finds the files of that cache for ``read_cached``; None: every read takes bytes into memory.
        recorder: receives the events of remote reads.
        clock: the clock of quotas and delays.
    """
    indexes = None
    if index_directory is not None and settings.index_cache_bytes:
        indexes = await RemoteIndexCache.open(
            index_directory, remote=remote, capacity_bytes=settings.index_cache_bytes, clock=clock
        )
    service = FetchService(
        remote,
        settings=settings,
        piece_bytes=piece_bytes,
        chunks=chunks,
        indexes=indexes,
        cached=None if cached_logs is None else CachedReads(cached_logs),
        recorder=recorder,
        clock=clock,
    )
    async with AsyncExitStack() as stack:
        if indexes is not None:
            stack.push_async_callback(indexes.close)
        stack.push_async_callback(service.close)
        yield service
