"""CopyTask: brings one partition's finished segments into the tier, oldest first, one pass at a time."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace

import structlog

from tierd.clock import Clock
from tierd.errors import (
    CorruptIndexError,
    FencedError,
    MetadataError,
    MissingArtefactError,
    SegmentChangedError,
    TierError,
)
from tierd.metadata import PartitionView, RemoteLogMetadataManager, effective_lineage
from tierd.model import Lineage, OffsetRange
from tierd.tiering.copying.check_ahead import CheckAhead
from tierd.tiering.copying.copy_state import CopyPhase, CopyState, IntakeGate
from tierd.tiering.copying.prepare import PreparedSegment, prepare_segment
from tierd.tiering.copying.segment_copy import CustomMetadataTooLongError, SegmentCopy
from tierd.tiering.local.broker_state import BrokerCheckpoints, BrokerOffsets
from tierd.tiering.local.held_segment import HeldSegment
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.local.stable import stable_offset
from tierd.tiering.plan import (
    CopiedThrough,
    OffsetSpan,
    copy_candidates,
    deleted_records_before,
    first_offset_due,
    gaps,
    highest_copied,
    initial_log_start_offset,
    local_log_start,
    rolled_after,
)
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.sweep import DanglingSweep

log = structlog.get_logger()

_LOOKS_AT_GAP = 3


class CopyTask:
    """One leadership of one partition in one directory; another leader epoch or directory gets a task of its own."""

    def __init__(
        self,
        local: PartitionLog,
        *,
        leader_epoch: int,
        metadata: RemoteLogMetadataManager,
        segment_copy: SegmentCopy,
        sweep: DanglingSweep,
        checkpoints: BrokerCheckpoints,
        slots: asyncio.Semaphore,
        gate: IntakeGate,
        recorder: TieringRecorder,
        clock: Clock,
        interval_s: float,
    ) -> None:
        """``slots`` bounds the segments that are checked or uploaded at once, over all partitions."""
        self._local = local
        self._partition = local.partition
        self._leader_epoch = leader_epoch
        self._metadata = metadata
        self._segment_copy = segment_copy
        self._sweep = sweep
        self._checkpoints = checkpoints
        self._slots = slots
        self._gate = gate
        self._recorder = recorder
        self._clock = clock
        self._interval_s = interval_s
        self._wake = asyncio.Event()
        self._claimed = False
        self._reported_gaps: set[OffsetRange] = set()
        self._state = CopyState()
        self._waiters: list[asyncio.Future[None]] = []
        self._loaded = asyncio.Event()

    @property
    def name(self) -> str:
        """``copy <partition> <topic id> @<epoch>``: another incarnation or leadership is another task."""
        return f"copy {self._partition} {self._partition.topic_id} @{self._leader_epoch}"

    @property
    def wake(self) -> asyncio.Event:
        """Set when the directory changed, the high watermark moved, or somebody asks."""
        return self._wake

    @property
    def local(self) -> PartitionLog:
        """The log that it copies from."""
        return self._local

    @property
    def leader_epoch(self) -> int:
        """The epoch that it writes under."""
        return self._leader_epoch

    @property
    def state(self) -> CopyState:
        """What it is about now."""
        return self._state

    @property
    def loaded(self) -> asyncio.Event:
        """Set once the partition is claimed and its metadata was there."""
        return self._loaded

    async def run_once(self) -> float | None:
        """Copy what is due, then sweep; return seconds until there may be more, None when only an event tells.

        Cancelled or failed anywhere, no segment counts as copied that is not finished.

        Raises:
            FencedError: another leader owns the partition; nothing helps but a new leadership.
            TierError: the pass ended early.
        """
        waiters, self._waiters = self._waiters, []
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
            _release(waiters)
        self._recorder.task_succeeded("copy")
        return delay_s

    async def _pass(self) -> float | None:
        await self._load()
        waits_s = await self._copy_due()
        swept_s = await self._sweep.run_once()
        delays = [delay for delay in (waits_s, swept_s) if delay is not None]
        return min(delays, default=None)

    async def _load(self) -> None:
        """Claim the partition once, load its metadata, and find the frontier."""
        known = self._state.copied_through is not None and self._metadata.is_ready(self._partition)
        try:
            if not self._claimed:
                await self._metadata.become_leader(self._partition, self._leader_epoch)
                self._claimed = True
            await self._metadata.ensure_ready(self._partition)
        except FencedError:
            raise
        except MetadataError:
            if self._state.copied_through is None:
                # While nobody can say what the tier has, everything that has rolled is worth holding.
                await self._local.protect(copied_through=-1)
            raise
        if not known:  # after a reload too: what was in doubt may be in the tier
            await self._find_frontier()
        self._loaded.set()

    async def _find_frontier(self) -> None:
        view, lineage = self._view_and_lineage()
        segments = self._local.scan.segments
        log_start = view.log_start_offset
        if log_start is None:  # nobody ever led it long enough to say
            checkpointed = (await self._offsets()).log_start_offset
            local_start = local_log_start(segments, checkpointed=checkpointed)
            log_start = initial_log_start_offset(lineage, view.list_epoch, local_log_start_offset=local_start)
            await self._metadata.advance_log_start_offset(self._partition, log_start)
        # The active segment's base is an offset that the log surely reaches.
        reached = segments[-1].base_offset if segments else 0
        copied = highest_copied(lineage, view.highest_offset_for_epoch, log_end_offset=reached)
        self._state = replace(self._state, copied_through=copied, log_start_offset=log_start)

    async def _copy_due(self) -> float | None:
        offsets = await self._offsets()
        await self._follow_deleted_records(offsets)
        due = await self._due()
        if not due:
            self._enter(CopyPhase.IDLE, self._gate.closed_because() or "", high_watermark=offsets.high_watermark)
            return None
        if (closed := self._gate.closed_because()) is not None:
            self._enter(CopyPhase.WAITING, closed, high_watermark=offsets.high_watermark)
            return None
        stable = await stable_offset(due, self._local.scan, offsets.high_watermark)
        candidates = copy_candidates(
            due,
            copied_through=self._copied_offset(),
            log_start_offset=self._log_start(),
            last_stable_offset=stable,
        )
        await self._copy_in_order([candidate.segment for candidate in candidates])
        return self._settle(due[len(candidates) :], offsets.high_watermark, stable)

    async def _due(self) -> list[HeldSegment]:
        """Hold and return what has rolled and is not in the tier, whatever is missing before or between it.

        Raises:
            SegmentChangedError: the directory changes at every look.
        """
        await self._local.protect(copied_through=self._settled_through())
        missing = self._gaps()
        for _ in range(_LOOKS_AT_GAP):
            if not missing - self._reported_gaps:
                break
            # To step over a segment is for ever: one that the broker renames while it is listed is seen by a second
            # look, and it can still be held.
            await self._local.look()
            missing, previous = self._gaps(), missing
            if missing == previous:
                self._report(missing - self._reported_gaps)
        else:
            if missing - self._reported_gaps:
                raise SegmentChangedError(f"{self._local.path}: changes at every look", remedy="it is looked at again")
        return rolled_after(
            self._local.pending, copied_through=self._copied_offset(), log_start_offset=self._log_start()
        )

    async def _copy_in_order(self, segments: Sequence[HeldSegment]) -> None:
        """Copy one segment after the other; while one is uploaded the next may be checked, and no more than that."""
        try:
            async with CheckAhead(self._slots, self._prepared) as checks:
                for held, following in zip(segments, (*segments[1:], None), strict=False):
                    if self._gate.closed_because() is not None:
                        break
                    self._enter(CopyPhase.COPYING, f"queued: segment {held.base_offset:020d}")
                    await checks.begin(held)
                    self._enter(CopyPhase.COPYING, f"segment {held.base_offset:020d}")
                    await self._copy(checks, following)
                    checks.end()
        except SegmentChangedError:
            await self._local.look()  # the next pass begins from what is there now
            raise

    async def _copy(self, checks: CheckAhead, following: HeldSegment | None) -> None:
        began_s = self._clock.monotonic_s()
        held, prepared = await checks.result()
        await checks.begin_ahead(following)
        await self._segment_copy.copy(
            self._partition, held, prepared, leader_epoch=self._leader_epoch, directory=self._local.path
        )
        copied = CopiedThrough(held.end_offset, prepared.epochs[-1].epoch)
        self._state = replace(self._state, copied_through=copied)
        seconds = self._clock.monotonic_s() - began_s
        self._recorder.segment_copied(self._partition.topic, size_bytes=held.size_bytes, seconds=seconds)
        log.info(
            "segment_copied",
            partition=str(self._partition),
            base_offset=held.base_offset,
            end_offset=held.end_offset,
            size_bytes=held.size_bytes,
            seconds=round(seconds, 3),
        )
        await self._local.copied(held)

    async def _prepared(self, held: HeldSegment) -> tuple[HeldSegment, PreparedSegment]:
        try:
            return held, await self._prepare(held)
        except (MissingArtefactError, CorruptIndexError):
            # The hold has the files as they were when it was taken; since then one may have been restored.
            held = await self._local.hold_again(held)
            return held, await self._prepare(held)

    async def _prepare(self, held: HeldSegment) -> PreparedSegment:
        lineage = self._lineage_for(held)
        return await asyncio.to_thread(prepare_segment, held, lineage, directory=self._local.path)

    def _settle(self, waiting: list[HeldSegment], high_watermark: int | None, stable: int) -> float | None:
        """Say what the pass left undone and when to look again."""
        if not waiting:
            self._enter(CopyPhase.IDLE, high_watermark=high_watermark)
            return None
        if (closed := self._gate.closed_because()) is not None:
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

    async def _follow_deleted_records(self, offsets: BrokerOffsets) -> None:
        """Raise the tier's log start where a DeleteRecords request raised the broker's."""
        if self._deleted_before(offsets) is None:
            return
        await self._local.look()  # the checkpoint may be younger than the listing, which may lack a base
        deleted = self._deleted_before(offsets)
        if deleted is not None:
            await self._metadata.advance_log_start_offset(self._partition, deleted)
            self._state = replace(self._state, log_start_offset=deleted)
            log.info("log_start_raised", partition=str(self._partition), log_start_offset=deleted)

    def _deleted_before(self, offsets: BrokerOffsets) -> int | None:
        """An offset that records were deleted before on request, if that is news."""
        deleted = deleted_records_before(
            checkpointed=offsets.log_start_offset,
            segments=self._local.scan.segments,
            high_watermark=offsets.high_watermark,
        )
        return deleted if deleted is not None and deleted > self._log_start() else None

    def _gaps(self) -> set[OffsetRange]:
        """What is due, and neither held nor in the log."""
        due_from = first_offset_due(copied_through=self._copied_offset(), log_start_offset=self._log_start())
        spans: list[OffsetSpan] = [*self._local.pending, *self._local.scan.segments[-1:]]
        return set(gaps(spans, due_from=due_from))

    def _report(self, lost: Collection[OffsetRange]) -> None:
        """Say once of every stretch that the broker deleted unseen that it is lost; copying goes on after it."""
        self._reported_gaps.update(lost)
        for gap in sorted(lost, key=lambda gap: gap.start):
            self._recorder.gap_found(self._partition.topic, offsets=gap.end - gap.start + 1)
            log.error(
                "segments_lost_before_copy",
                partition=str(self._partition),
                first_offset=gap.start,
                last_offset=gap.end,
                remedy="the broker deleted them before tierd saw them: raise its local retention",
            )

    def _lineage_for(self, held: HeldSegment) -> Lineage:
        """The lineage to copy ``held`` with: the broker's, and what it knew at the time of the hold."""
        local = self._local.scan.lineage
        if not local and not held.lineage:
            raise MissingArtefactError(
                f"{self._local.path}: leader-epoch-checkpoint is missing or empty"
                + (f" ({self._local.scan.lineage_problem})" if self._local.scan.lineage_problem else ""),
                remedy=f"restart the broker, which rebuilds the file; see tierd inspect {self._local.path}",
            )
        known = held.lineage
        for epoch, start_offset in local.entries:
            known = known.assign(epoch=epoch, start_offset=start_offset)
        return effective_lineage(self._metadata.view(self._partition), known)

    def _view_and_lineage(self) -> tuple[PartitionView, Lineage]:
        view = self._metadata.view(self._partition)
        return view, effective_lineage(view, self._local.scan.lineage)

    async def _offsets(self) -> BrokerOffsets:
        return await self._checkpoints.offsets(self._local.log_dir, self._partition.topic_partition)

    def _copied_offset(self) -> int:
        assert self._state.copied_through is not None, "asked for after loading"
        return self._state.copied_through.offset

    def _log_start(self) -> int:
        assert self._state.log_start_offset is not None, "asked for after loading"
        return self._state.log_start_offset

    def _settled_through(self) -> int:
        """Last offset that needs no hold: in the tier, or below its log start."""
        return max(self._copied_offset(), self._log_start() - 1)

    def next_pass(self) -> "asyncio.Future[None]":
        """A future that is done when a pass has ended, well or not, that had not begun yet at this moment."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def close(self) -> None:
        """Let go of whoever waits for a pass: there will be none."""
        _release(self._waiters)

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


def _release(waiters: "list[asyncio.Future[None]]") -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
