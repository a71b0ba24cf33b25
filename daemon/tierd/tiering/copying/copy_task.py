"""CopyTask: brings one partition's finished segments into the tier, oldest first, one pass at a time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import structlog

from tierd.control import Leadership
from tierd.errors import FencedError, MetadataError, RemoteStorageError, TierError
from tierd.lazy_event import LazyEvent
from tierd.metadata import PartitionView
from tierd.model import Lineage, OffsetRange
from tierd.tiering.copy_plan import CopiedThrough, CopyDelay, copy_candidates, ripe_segments, without_range
from tierd.tiering.copying.copy_state import CopyPhase, CopyState
from tierd.tiering.copying.copy_tools import CopyTools
from tierd.tiering.copying.deleted_records import DeletedRecords
from tierd.tiering.copying.due_segments import DueSegments, ages_of, stable_offset
from tierd.tiering.copying.frontier import (
    abandoned_epochs,
    began_anew_at,
    copied_without_hole,
    ends_below,
    find_frontier,
    first_log_start,
    holes,
    is_cut_below_compaction,
)
from tierd.tiering.copying.ordered_copy import OrderedCopy
from tierd.tiering.copying.segment_copy import CustomMetadataTooLongError
from tierd.tiering.copying.stale_segments import StaleSegments
from tierd.tiering.local.broker_state import BrokerOffsets
from tierd.tiering.local.held_segment import HeldSegment
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.removing.sweep import DanglingSweep
from tierd.tiering.supervision import PassWaiters, release

log = structlog.get_logger()

_SEARCHED_IN_LOOP: Final = 1024  # rows; more go to a thread


class CopyTask:
    """Copy task of one leadership of one partition in one directory. Another epoch or directory has another task.

    Attributes:
        name: ``copy <partition> <topic id> @<epoch>``: another incarnation or leadership is another task.
        wake: the event that is set when the directory changed, the high watermark moved, or a pass is asked for.
        local: the log that the task copies from.
        leader_epoch: the leader epoch that the task writes under.
        loaded: the event that is set once the partition is claimed, its metadata loaded and the frontier found.
        tried: the event that is set once loading has ended for the first time, well or not.
    """

    def __init__(
        self,
        local: PartitionLog,
        *,
        leadership: Leadership,
        tools: CopyTools,
        sweep: DanglingSweep,
        closed_because: Callable[[], str | None],
        delay: Callable[[], CopyDelay] = CopyDelay,
        is_compacted: Callable[[], bool] = lambda: False,
        on_tiered: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy nothing yet.

        Args:
            local: the log.
            leadership: the announcement that made this broker the leader.
            tools: the parts that all copy tasks share.
            sweep: removes copies without an end.
            closed_because: returns why no new segment may be begun; None when one may be.
            delay: returns the delay of the topic at this moment.
            is_compacted: tells if the topic's cleanup policy has compaction at this moment.
            on_tiered: is called at the end of each pass that copied a segment or moved the log start.
        """
        leader_epoch = leadership.leader_epoch
        self.local: Final = local
        self._partition = local.partition
        self.leader_epoch: Final = leader_epoch
        self.name: Final = f"copy {local.partition} {local.partition.topic_id} @{leader_epoch}"  # asked for often
        self._metadata = tools.metadata
        self._log_offsets = tools.log_offsets
        self._log_starts = tools.log_starts
        self._recorder = tools.recorder
        self._clock = tools.clock
        self._interval_s = tools.interval_s
        self._sweep = sweep
        self._closed_because = closed_because
        self._delay = delay
        self._is_compacted = is_compacted
        self._deleted = DeletedRecords(
            local,
            leader_epoch=leader_epoch,
            broker_id=tools.broker_id,
            is_sole_replica=leadership.is_sole_replica,
        )
        self._due = DueSegments(local, recorder=tools.recorder)
        self._copy = OrderedCopy(
            local,
            leader_epoch=leader_epoch,
            tools=tools,
            closed_because=closed_because,
            on_step=self._step,
            on_copied=self._copied,
        )
        self._stale = StaleSegments(local, tools.stale)
        self._on_tiered = on_tiered
        self._grown = False  # or the log start has moved
        self._holes: tuple[OffsetRange, ...] | None = None  # below the frontier; None until searched for
        self._reported: CopiedThrough | None = None  # the last report to the log
        self._is_cut_reported = False
        self._judged_by: Lineage | None = None  # the local epochs that those of the tier were compared with last
        self.wake: Final = LazyEvent()
        self._claimed = False
        self._in_doubt = False  # the last pass ended early: a finish whose answer was lost may be in the tier
        self._state = CopyState()
        self._waiters = PassWaiters()
        self.loaded: Final = LazyEvent()
        self.tried: Final = LazyEvent()

    @property
    def state(self) -> CopyState:
        """Return the present state of the task."""
        return self._state

    async def run_once(self) -> float | None:
        """Copy what is due, then sweep; return seconds until there may be more, None when only an event tells.

        Cancelled or failed anywhere, no segment counts as copied that is not finished.

        Raises:
            FencedError: another leader owns the partition; nothing helps but a new leadership.
            TierError: the pass ended early.
        """
        waiters = self._waiters.begin()
        try:
            if self._state.phase is CopyPhase.STOPPED:
                return None
            delay_s = await self._pass()
        except CustomMetadataTooLongError as error:
            # Every segment would fail alike (remote-tiering 10.7).
            self._enter(CopyPhase.STOPPED, f"{error}; {error.remedy}")
            self._recorder.copy_failed(self._partition.topic)
            return None
        except TierError as error:
            self._enter(CopyPhase.WAITING, "the last pass failed", awaits_high_watermark=False)
            if not error.retriable:
                self._recorder.copy_failed(self._partition.topic)
            raise
        finally:
            release(waiters)
            if self._grown:
                self._grown = False
                self._on_tiered()
        self._recorder.task_succeeded("copy")
        return delay_s

    async def _pass(self) -> float | None:
        await self._load()
        self._in_doubt = True
        await self._abandon_epochs()
        await self._end_stale()
        await self._find_holes()
        await self._report_copied()
        waits_s = await self._copy_due()
        swept_s = await self._sweep.run_once()
        recorded_s = await self._log_starts.keep(self._partition)
        self._in_doubt = False
        undecided_s = self._interval_s if self._stale.is_undecided else None
        waits = (waits_s, swept_s, recorded_s, undecided_s, self._deleted.recheck_s())
        delays = [delay for delay in waits if delay is not None]
        return min(delays, default=None)

    async def _load(self) -> None:
        """Claim the partition once, load its metadata, and find the frontier."""
        is_ready = self._metadata.is_ready(self._partition)  # also where another task loaded it again meanwhile
        known = self._state.copied_through is not None and is_ready and not self._in_doubt
        try:
            if not self._claimed:
                await self._metadata.become_leader(self._partition, self.leader_epoch)
                self._claimed = True
            await self._metadata.ensure_ready(self._partition)
        except FencedError:
            raise
        except MetadataError:
            if self._state.copied_through is None:
                # While the contents of the tier are not known, every rolled segment is worth holding.
                await self.local.protect(copied_through=-1)
            raise
        finally:
            self.tried.set()
        if not known:  # after a reload too: what was in doubt may be in the tier
            await self._find_frontier()
        self.loaded.set()

    async def _find_frontier(self) -> None:
        view = self._metadata.view(self._partition)
        self._deleted.loaded(view)
        log_start = view.log_start_offset
        if log_start is None:
            log_start = first_log_start(view, self.local.scan, await self._offsets())
            await self._metadata.advance_log_start_offset(self._partition, log_start)
        await self._take_frontier(log_start_offset=log_start)

    async def _take_frontier(self, *, log_start_offset: int | None) -> None:
        """Take the frontier from rows and local log; the holes below it are found again later."""
        view, scan = self._metadata.view(self._partition), self.local.scan
        copied = await find_frontier(view, scan, is_compacted=self._is_compacted())
        self._state = replace(self._state, copied_through=copied, log_start_offset=log_start_offset)
        self._holes = None
        if self._is_compacted() and is_cut_below_compaction(view, copied):
            self._report_cut(view, copied)

    def _report_cut(self, view: PartitionView, copied: CopiedThrough) -> None:
        if self._is_cut_reported:
            return
        self._is_cut_reported = True
        log.error(
            "log_cut_below_compaction",
            partition=str(self._partition),
            lost_from_offset=copied.offset + 1,
            compacted_to=view.compacted_to,
            remedy="the tier may lack the last records of keys: see docs/pipeline.md, When something goes wrong",
        )

    async def _abandon_epochs(self) -> None:
        """Note the epochs of the tier that the log has abandoned, while its own epochs still tell."""
        local, view = self.local.scan.lineage, self._metadata.view(self._partition)
        if local == self._judged_by:
            return
        # A replica that was made of a compacted log lacks the epochs of which compaction has left no batch.
        epochs = () if self._is_compacted() else abandoned_epochs(view, local)
        returned = [entry.epoch for entry in local.entries if entry.epoch in view.abandoned_epochs]
        if epochs or returned:
            await self._metadata.abandon_epochs(self._partition, epochs, returned=returned)
            log.warning("epochs_abandoned", partition=str(self._partition), epochs=epochs, returned=returned)
        self._judged_by = local

    async def _find_holes(self) -> None:
        """Find the offsets below the frontier that the tier lacks and this host has; once for each new frontier."""
        if self._holes is not None:
            return
        find = partial(
            holes,
            self._metadata.view(self._partition),
            self.local.scan,
            await self._offsets(),
            log_start_offset=self._log_start(),
            copied_through=self._copied_offset(),
            held=self.local.held,
        )
        is_small = len(self._metadata.view(self._partition).segments) <= _SEARCHED_IN_LOOP
        self._holes = find() if is_small else await asyncio.to_thread(find)
        for hole in self._holes:
            log.warning(
                "copied_again",
                partition=str(self._partition),
                first_offset=hole.start,
                last_offset=hole.end,
                why="the tier lacks these offsets, and this host has them",
            )

    async def _end_stale(self) -> None:
        """End the copied segments of records that the local log lost, and move the frontier back to before them."""
        view = self._metadata.view(self._partition)
        try:
            is_ended = await self._stale.end(view, await self._offsets())
        except RemoteStorageError:
            # While the store does not answer, every rolled segment is worth holding.
            await self.local.protect(copied_through=-1)
            raise
        if is_ended:
            await self._take_frontier(log_start_offset=self._state.log_start_offset)

    async def _report_copied(self) -> None:
        """Report to the log how far the tier is durable without a hole: the log's own retention may go so far."""
        if self._state.copied_through is None:
            return
        copied = copied_without_hole(
            self._state.copied_through, self._holes or (), self.local.scan, log_start_offset=self._log_start()
        )
        if copied != self._reported:
            await self._log_offsets.copied_through(self.local.log_dir, self._partition, copied)
            self._reported = copied

    async def _copy_due(self) -> float | None:
        offsets = await self._offsets()
        await self._follow_restarted_log(offsets)
        await self._follow_deleted_records(offsets)
        below = self._holes or ()
        due = await self._due.find(
            copied_through=self._copied_offset(), log_start_offset=self._log_start(), holes=below
        )
        if not due:
            self._enter(CopyPhase.IDLE, self._closed_because() or "", high_watermark=offsets.high_watermark)
            return None
        if (closed := self._closed_because()) is not None:
            self._enter(CopyPhase.WAITING, closed, high_watermark=offsets.high_watermark)
            return None
        stable = await stable_offset(due, self.local.scan, offsets.high_watermark)
        candidates = copy_candidates(
            due,
            copied_through=self._copied_offset(),
            log_start_offset=self._log_start(),
            last_stable_offset=stable,
            holes=below,
        )
        committed = [candidate.segment for candidate in candidates]
        ripe, next_ripe_ms = await self._ripe(due, len(committed))
        await self._copy_in_order(committed[:ripe])
        if ripe < len(committed) and self._closed_because() is None:
            return self._await_age(committed[ripe], next_ripe_ms)
        return self._settle(due[len(committed) :], offsets.high_watermark, stable)

    async def _copy_in_order(self, segments: Sequence[HeldSegment]) -> None:
        """Copy what lies above the frontier, then what is copied again: a damaged old segment delays no new one."""
        frontier_offset = self._copied_offset()
        await self._copy.copy([held for held in segments if held.end_offset > frontier_offset])
        for held in [held for held in segments if held.end_offset <= frontier_offset]:
            await self._copy.copy([held])
            if self._closed_because() is not None:
                break
            self._holes = without_range(self._holes or (), OffsetRange(held.base_offset, held.end_offset))
        await self._report_copied()

    async def _ripe(self, due: Sequence[HeldSegment], count: int) -> tuple[int, int | None]:
        """Return how many of the first ``count`` segments the topic's delay releases, and when the next one is due."""
        delay = self._delay()
        if delay.is_none or not count:
            return count, None
        ages = await asyncio.to_thread(ages_of, due, self.local.scan)
        return ripe_segments(ages[:count], delay, now_ms=self._clock.now_ms())

    def _await_age(self, held: HeldSegment, due_ms: int | None) -> float | None:
        self._enter(CopyPhase.WAITING, f"copy_lag keeps segment {held.base_offset:020d} local for now")
        return None if due_ms is None else max(0.0, (due_ms - self._clock.now_ms()) / 1000)

    async def _copied(self, held: HeldSegment, copied: CopiedThrough) -> None:
        self._stale.copied(held)
        self._grown = True
        if copied.offset > self._copied_offset():
            self._state = replace(self._state, copied_through=copied)
        await self._report_copied()

    def _step(self, reason: str) -> None:
        self._enter(CopyPhase.COPYING, reason)

    def _settle(self, waiting: list[HeldSegment], high_watermark: int | None, stable: int) -> float | None:
        """Record what the pass left undone; return the seconds until the next pass."""
        if not waiting:
            self._enter(CopyPhase.IDLE, high_watermark=high_watermark)
            return None
        if (closed := self._closed_because()) is not None:
            self._enter(CopyPhase.WAITING, closed, high_watermark=high_watermark)
            return None
        first = waiting[0]
        by_high_watermark = high_watermark is None or first.next_base_offset > high_watermark
        if high_watermark is None:
            reason = "no high watermark in replication-offset-checkpoint yet"
        elif by_high_watermark:
            reason = f"high watermark {high_watermark} has not reached {first.next_base_offset}"
        else:
            reason = f"an open transaction keeps the last stable offset at {stable}"
        self._enter(CopyPhase.WAITING, reason, high_watermark=high_watermark, awaits_high_watermark=by_high_watermark)
        return self._interval_s

    async def _follow_restarted_log(self, offsets: BrokerOffsets) -> None:
        """Move the tier's log start back where the log itself ends below it."""
        was = self._log_start()
        if began_anew_at(self.local.scan, offsets, log_start_offset=was) is None:
            return
        scan = await self.local.rescan()  # the log may have rolled since it was listed
        start = began_anew_at(scan, offsets, log_start_offset=was)
        if start is None or not await ends_below(scan, was):
            return
        log.warning("log_begins_anew", partition=str(self._partition), was=was, log_start_offset=start)
        await self._metadata.lower_log_start_offset(self._partition, start)
        self._state = replace(self._state, log_start_offset=start)

    async def _follow_deleted_records(self, offsets: BrokerOffsets) -> None:
        """Raise the tier's log start where a DeleteRecords request raised the broker's."""
        view = self._metadata.view(self._partition)
        deleted = await self._deleted.find(view, offsets, log_start_offset=self._log_start())
        if deleted is not None:
            await self._metadata.advance_log_start_offset(self._partition, deleted)
            self._state = replace(self._state, log_start_offset=deleted)
            self._grown = True
            log.info("log_start_raised", partition=str(self._partition), log_start_offset=deleted)

    async def _offsets(self) -> BrokerOffsets:
        return await self._log_offsets.offsets(self.local.log_dir, self._partition)

    def _copied_offset(self) -> int:
        assert self._state.copied_through is not None, "asked for after loading"
        return self._state.copied_through.offset

    def _log_start(self) -> int:
        """Return the start offset of the total log; retention raises it in the metadata meanwhile."""
        assert self._state.log_start_offset is not None, "asked for after loading"
        return max(self._state.log_start_offset, self._metadata.view(self._partition).log_start_offset or 0)

    def next_pass(self) -> "asyncio.Future[None]":
        """Return a future of the next pass that begins; it is done when that pass has ended, well or not."""
        return self._waiters.next_pass()

    def close(self) -> None:
        """Release the callers that wait for a pass: there will be none."""
        self._waiters.close()

    def _enter(
        self,
        phase: CopyPhase,
        reason: str = "",
        *,
        high_watermark: int | None = None,
        awaits_high_watermark: bool = False,
    ) -> None:
        known = self._state.high_watermark if high_watermark is None else high_watermark
        self._state = replace(
            self._state,
            phase=phase,
            reason=reason,
            high_watermark=known,
            awaits_high_watermark=awaits_high_watermark,
        )
