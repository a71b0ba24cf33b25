"""OrderedCopy: segments of one log copied one after the other, oldest first; the next one is checked meanwhile."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Self

import structlog

from tierd.errors import MissingArtefactError, SegmentChangedError
from tierd.metadata import PartitionView
from tierd.model import Lineage
from tierd.tasks import drop_task, wait_all
from tierd.tiering.copy_plan import CopiedThrough
from tierd.tiering.copying.complete import complete_segment
from tierd.tiering.copying.copy_tools import CopyTools
from tierd.tiering.copying.due_segments import lineage_for
from tierd.tiering.copying.prepare import CheckedFiles, PreparedSegment, check_held
from tierd.tiering.copying.producer_history import ProducerHistory
from tierd.tiering.local.held_segment import HeldSegment
from tierd.tiering.local.partition_log import PartitionLog

log = structlog.get_logger()

CheckedSegment = tuple[HeldSegment, PreparedSegment]
SegmentChecker = Callable[[HeldSegment], Coroutine[object, object, CheckedSegment]]


class CheckAhead:
    """Checks of one pass: one in use and at most one ahead, each holding a copy slot from its begin to its end.

    Used as a context: leaving it releases the slots that are still held, and cancels the checks under way. The thread
    that reads for a cancelled check runs to its end, and its result is dropped.
    """

    def __init__(self, slots: asyncio.Semaphore, check: SegmentChecker) -> None:
        """Check nothing yet; ``slots`` bounds the segments of all partitions that are checked or uploaded at once."""
        self._slots = slots
        self._check = check
        self._current: asyncio.Task[CheckedSegment] | None = None
        self._ahead: asyncio.Task[CheckedSegment] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        dropped = [task for task in (self._current, self._ahead) if task is not None]
        self._current = self._ahead = None
        for task in dropped:  # before anything is awaited: a slot that is lost is lost for ever
            self._slots.release()
            drop_task(task)  # ``result`` has raised its failure for a caller that asked
        await wait_all(dropped)

    async def begin(self, held: HeldSegment) -> None:
        """Wait for a slot and begin the check of ``held``, unless that was begun ahead."""
        assert self._current is None, "one segment at a time"
        if self._ahead is None:
            await self._slots.acquire()
            self._ahead = asyncio.create_task(self._check(held))
        self._current, self._ahead = self._ahead, None

    async def result(self) -> CheckedSegment:
        """Wait for the check that was begun; what it raises is raised."""
        assert self._current is not None, "begun before"
        return await asyncio.shield(self._current)

    async def begin_ahead(self, following: HeldSegment | None) -> None:
        """Begin the check of the next segment if a slot is free and no other partition waits for it."""
        if following is not None and not self._slots.locked():
            await self._slots.acquire()  # does not wait: it is not locked
            self._ahead = asyncio.create_task(self._check(following))

    def end(self) -> None:
        """End the segment whose result was given, and release its slot."""
        assert self._current is not None, "begun before"
        assert self._current.done(), "asked for before"
        self._current = None
        self._slots.release()


class OrderedCopy:
    """Copies of one leadership. Cancelled or failed anywhere, no segment counts as copied that is not finished."""

    def __init__(
        self,
        local: PartitionLog,
        *,
        leader_epoch: int,
        tools: CopyTools,
        closed_because: Callable[[], str | None],
        on_step: Callable[[str], None],
        on_copied: Callable[[HeldSegment, CopiedThrough], Awaitable[None]],
    ) -> None:
        """Copy nothing yet. ``closed_because`` returns why no new segment may be begun; None when one may be.

        ``on_step`` is called with each step in words, which begin with ``queued`` while the copy waits for others.
        ``on_copied`` is called with every segment once its copy is finished, durably.
        """
        self._local = local
        self._leader_epoch = leader_epoch
        self._tools = tools
        self._closed_because = closed_because
        self._on_step = on_step
        self._on_copied = on_copied

    async def copy(self, segments: Sequence[HeldSegment]) -> None:
        """Copy ``segments`` until one fails, or no new one may be begun.

        Raises:
            TierError: the first copy that failed; the segments behind it were not tried.
        """
        history = ProducerHistory(self._local, self._tools.remote)
        try:
            async with CheckAhead(self._tools.slots, partial(self._prepared, history)) as checks:
                for held, following in zip(segments, (*segments[1:], None), strict=False):
                    if not self._is_open():
                        break
                    self._on_step(f"queued: segment {held.base_offset:020d}")
                    await checks.begin(held)
                    if not self._is_open():  # closed while it waited for its slot
                        break
                    self._on_step(f"segment {held.base_offset:020d}")
                    if not await self._copy(checks, following):
                        break
                    checks.end()
        except SegmentChangedError:
            await self._local.rescan()  # the next pass begins from what is there now
            raise

    async def _copy(self, checks: CheckAhead, following: HeldSegment | None) -> bool:
        """Copy the segment whose check was begun; False when no segment may begin any more."""
        clock = self._tools.clock
        began_s = clock.monotonic_s()
        held, prepared = await checks.result()
        await checks.begin_ahead(following)
        if not await self._is_admitted(held):
            return False
        await self._tools.segment_copy.copy(
            self._local.partition, held, prepared, leader_epoch=self._leader_epoch, directory=self._local.path
        )
        self._report(held, seconds=clock.monotonic_s() - began_s)
        await self._on_copied(held, CopiedThrough(held.end_offset, prepared.epochs[-1].epoch))
        await self._local.copied(held)
        return True

    def _is_open(self) -> bool:
        return self._closed_because() is None

    async def _is_admitted(self, held: HeldSegment) -> bool:
        name = f"segment {held.base_offset:020d}"
        self._on_step(f"queued: {name} for copy.max_bytes_per_second")
        admitted = await self._tools.quota.admit(held.size_bytes, is_wanted=self._is_open)
        self._on_step(name)
        return admitted

    async def _prepared(self, history: ProducerHistory, held: HeldSegment) -> tuple[HeldSegment, PreparedSegment]:
        checked = None
        with contextlib.suppress(MissingArtefactError):
            checked = await self._checked(held)
        if checked is None or checked.is_damaged:
            # The hold has the files as they were when it was taken; since then one may have been written or restored.
            held = await self._local.hold_again(held)
            checked = await self._checked(held)
        before = None
        if not checked.is_whole:
            before = await history.before(held, self._lineage(held), self._view())
        prepared = await asyncio.to_thread(complete_segment, checked, held, before, directory=self._local.path)
        history.take(held.next_base_offset, prepared.data.producer_snapshot)
        return held, prepared

    async def _checked(self, held: HeldSegment) -> CheckedFiles:
        return await asyncio.to_thread(check_held, held, self._lineage(held), directory=self._local.path)

    def _lineage(self, held: HeldSegment) -> Lineage:
        return lineage_for(held, self._local.scan, self._view())

    def _view(self) -> PartitionView:
        return self._tools.metadata.view(self._local.partition)

    def _report(self, held: HeldSegment, *, seconds: float) -> None:
        partition = self._local.partition
        self._tools.recorder.segment_copied(partition.topic, size_bytes=held.size_bytes, seconds=seconds)
        log.info(
            "segment_copied",
            partition=str(partition),
            base_offset=held.base_offset,
            end_offset=held.end_offset,
            size_bytes=held.size_bytes,
            seconds=round(seconds, 3),
        )
