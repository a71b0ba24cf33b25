"""EndpointLog: one partition as the endpoint serves it, from the files of the broker and from the tier."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from tierd.app.endpoint.local_slices import LocalSlices, SliceQuery
from tierd.clock import Clock
from tierd.errors import OffsetOutOfRangeError, RemoteResourceNotFoundError, SegmentChangedError, TierError
from tierd.log import AbortedTransaction, find_log_end_offset
from tierd.model import EpochEndOffset, IsolationLevel, TimestampOffset
from tierd.serve import FileSlice, LogBounds, LogRead
from tierd.tiering import FetchService, FetchTask, Tier, TieredLog

T = TypeVar("T")

_PAUSES_S: Final = (0.0, 0.02, 0.1, 0.2)
"""Waits behind the attempts of a read under which the log changes: a broker replaces segments in moments."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """One partition at one moment, as its source knows it.

    Attributes:
        log: local log and tier. The same object while nothing has changed.
        is_end_known: as in ``LogBounds``.
    """

    log: TieredLog
    is_end_known: bool


class LogSource(Protocol):
    """Source of the present state of one partition."""

    async def state(self, *, is_doubted: bool = False) -> SourceState:
        """Return the present state; with ``is_doubted`` nothing of it is older than the call.

        Raises:
            TierError: it is not known now.
        """

    def listen(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` whenever the state may have changed, until the returned function is called."""


@dataclass(frozen=True, slots=True)
class _Bounded:
    """A log with its bounds."""

    log: TieredLog
    bounds: LogBounds


class EndpointLog:
    """One partition. It keeps positions in the local files, and nothing of a client."""

    def __init__(self, source: LogSource, fetches: FetchService, *, clock: Clock) -> None:
        """Serve the partition of ``source``; remote reads go through ``fetches``."""
        self._source = source
        self._fetches = fetches
        self._task: FetchTask = fetches.task(self._snapshot)
        self._slices = LocalSlices(clock=clock)
        self._bounded: _Bounded | None = None

    async def bounds(self) -> LogBounds:
        """Return the bounds of the log now."""
        return (await self._repeated(self._now)).bounds

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
        """Return records from ``offset`` on."""
        return await self._repeated(
            partial(self._read, _Wanted(offset, max_bytes, isolation, at_least_one, max_wait_s, bounds))
        )

    async def list_offset(self, timestamp_ms: int, *, isolation: IsolationLevel) -> TimestampOffset | None:
        """Return the first record that is no older than a timestamp, or the place that an ``OffsetSpec`` names."""
        return await self._repeated(partial(self._list_offset, timestamp_ms, isolation))

    async def epoch_end(self, leader_epoch: int) -> EpochEndOffset:
        """Return the largest epoch at or below ``leader_epoch`` and its exclusive end.

        The latest epoch ends with the log, not with the high watermark, which may be an old one: a client that has
        read behind it would take its own position for a cut.
        """
        return await self._repeated(partial(self._epoch_end, leader_epoch))

    def listen(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` whenever bounds may have moved, until the returned function is called."""
        return self._source.listen(on_change)

    # ------------------------------------------------------------------------------------------------------ state

    async def _snapshot(self) -> TieredLog:
        return (await self._source.state()).log

    async def _now(self, is_doubted: bool) -> _Bounded:
        state = await self._source.state(is_doubted=is_doubted)
        bounded = self._bounded
        if bounded is None or bounded.log is not state.log or bounded.bounds.is_end_known != state.is_end_known:
            stable_end = await self._task.stable_end(state.log)
            bounded = self._bounded = _Bounded(state.log, _bounds(state, stable_end))
        return bounded

    async def _repeated(self, act: Callable[[bool], Awaitable[T]]) -> T:
        """Act on the state as it is known, and again on the present one where that may avoid the error.

        An older state may explain the error: a roll, a compaction or a deletion came between.
        """
        is_doubted = False
        for pause_s in _PAUSES_S:
            try:
                return await act(is_doubted)
            except (OffsetOutOfRangeError, RemoteResourceNotFoundError):
                if is_doubted:
                    raise
            except SegmentChangedError:
                if is_doubted:
                    await asyncio.sleep(pause_s)
            is_doubted = True
        return await act(True)

    # ------------------------------------------------------------------------------------------------------ reads

    async def _epoch_end(self, leader_epoch: int, is_doubted: bool) -> EpochEndOffset:
        now = await self._now(is_doubted)
        end, latest = now.bounds.high_watermark, now.log.lineage.latest
        if now.log.scan is not None and latest is not None and leader_epoch == latest.epoch:
            end = max(end, await asyncio.to_thread(find_log_end_offset, now.log.scan))
        return now.log.lineage.end_offset_for(leader_epoch, log_end_offset=end)

    async def _list_offset(
        self, timestamp_ms: int, isolation: IsolationLevel, is_doubted: bool
    ) -> TimestampOffset | None:
        if is_doubted:
            await self._now(is_doubted)
        found = await self._fetches.list_offset(self._task, timestamp_ms, isolation=isolation)
        if isinstance(found, TierError):
            raise found
        return found

    async def _read(self, wanted: "_Wanted", is_doubted: bool) -> LogRead:
        now = self._bounded
        if is_doubted or now is None or now.bounds is not wanted.bounds:
            now = await self._now(is_doubted)
        now.log.require_readable(wanted.offset)
        if wanted.offset >= now.bounds.end_offset(wanted.isolation):
            return LogRead((), now.bounds)
        if now.log.tier_of(wanted.offset) is Tier.REMOTE:
            return await self._read_remote(now, wanted)
        found = await self._read_local(now, wanted, is_doubted)
        if found is not None:
            return found
        if not is_doubted:
            raise SegmentChangedError(f"{now.log.partition}: no batch from {wanted.offset} on", remedy="read again")
        return LogRead((), now.bounds)  # compaction left none up to the end

    async def _read_local(self, now: _Bounded, wanted: "_Wanted", is_doubted: bool) -> LogRead | None:
        log, end_offset = now.log, now.bounds.end_offset(wanted.isolation)
        assert log.scan is not None, "a local offset is in a scan"
        local_end = min(end_offset, log.local_end_offset)  # of a replica that is behind the tier, or was cut back
        query = SliceQuery(log.scan, wanted.offset, local_end, wanted.max_bytes, wanted.at_least_one)
        found = await self._slices.find(query, is_doubted=is_doubted)
        if found is None:
            return None
        if not found.size_bytes:
            return LogRead((), now.bounds)
        aborted: tuple[AbortedTransaction, ...] = ()
        if wanted.isolation is IsolationLevel.READ_COMMITTED:
            aborted = await self._task.aborted(log, found.base_offset, found.upper_offset)
        return LogRead(
            (FileSlice(found.path, found.inode, found.position, found.size_bytes),),
            now.bounds,
            aborted,
            has_more=found.upper_offset < end_offset,
        )

    async def _read_remote(self, now: _Bounded, wanted: "_Wanted") -> LogRead:
        cached = await self._fetches.read_cached(
            self._task,
            now.log,
            wanted.offset,
            end_offset=now.bounds.end_offset(wanted.isolation),
            max_bytes=wanted.max_bytes,
            isolation=wanted.isolation,
            at_least_one=wanted.at_least_one,
            max_wait_s=wanted.max_wait_s,
        )
        if cached is not None:
            slices = tuple(FileSlice(file.path, file.inode, at, size, file) for file, at, size in cached.pieces)
            has_more = cached.next_offset < now.bounds.end_offset(wanted.isolation)
            return LogRead(slices, now.bounds, cached.aborted, has_more=has_more)
        result = await self._fetches.read(
            self._task,
            wanted.offset,
            max_bytes=wanted.max_bytes,
            isolation=wanted.isolation,
            at_least_one=wanted.at_least_one,
            max_wait_s=wanted.max_wait_s,
        )
        return LogRead(
            (result.data,) if result.data else (),
            now.bounds,
            result.aborted,
            throttled_ms=result.throttled_ms,
            is_pending=result.is_pending,
            has_more=bool(result.data) and result.next_offset < now.bounds.end_offset(wanted.isolation),
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Arguments of a read."""

    offset: int
    max_bytes: int
    isolation: IsolationLevel
    at_least_one: bool
    max_wait_s: float
    bounds: LogBounds | None


def _bounds(state: SourceState, stable_end: int) -> LogBounds:
    log = state.log
    latest, local_start = log.lineage.latest, log.local_start_offset
    is_local_to_the_end = local_start is not None and log.local_end_offset >= log.end_offset
    return LogBounds(
        log_start_offset=log.log_start_offset,
        high_watermark=log.end_offset,
        last_stable_offset=stable_end,
        leader_epoch=latest.epoch if latest else -1,
        is_end_known=state.is_end_known,
        local_start_offset=max(local_start or 0, log.log_start_offset) if is_local_to_the_end else None,
    )
