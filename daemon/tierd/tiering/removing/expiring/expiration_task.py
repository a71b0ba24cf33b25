"""ExpirationTask: removes segments that retention does not keep, one pass at a time (Kafka: RLMExpirationTask).

::

    plan ──► log start pushed, durably ──► every segment, oldest first: begin, or finish after the grace ──► sweep
"""

import asyncio
import contextlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import OffsetOutOfRangeError, RemoteObjectRetainedError
from tierd.lazy_event import LazyEvent
from tierd.metadata import PartitionView, RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, SoftDelete
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.expiring.expiration_plan import ExpirationPlan, PlannedDeletion
from tierd.tiering.removing.expiring.local_view import LocalLogView
from tierd.tiering.removing.expiring.partition_expiration import LocalFacts, partition_expiration
from tierd.tiering.removing.ledger import DeleteReason
from tierd.tiering.removing.log_start_keeper import LogStartKeeper
from tierd.tiering.removing.sweep import DanglingSweep
from tierd.tiering.removing.workers import in_order
from tierd.tiering.supervision import PassWaiters, release
from tierd.tiering.topic_policy import FindTopicPolicy, TopicPolicy

log = structlog.get_logger()

_IDLE_S: Final = 3600.0  # events wake the task; this is for one that was lost
_PLANNED_IN_LOOP: Final = 1024  # rows; some milliseconds, more go to a thread
LEFT_BEHIND_GRACE_S: Final = 7 * 86_400.0  # at least, where there is a grace at all
_DELETING: Final = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


@dataclass(frozen=True, slots=True)
class ExpirationState:
    """State of an expiration task at one moment.

    Attributes:
        lag_segments: chosen in this pass and not yet dealt with (Kafka: RemoteDeleteLagSegments).
        lag_bytes: their logs together.
        in_grace: segments that are being deleted and can still be taken back.
        retained: segments that were to go and that the store keeps: Object Lock, retention, legal hold.
        reason: why nothing expires, when something should; empty otherwise.
    """

    lag_segments: int = 0
    lag_bytes: int = 0
    in_grace: int = 0
    retained: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpirationTools:
    """Collaborators that expiration tasks share.

    Attributes:
        being_copied: ids of the copies under way in this process, live.
        log_starts: keeps the log start in the bucket.
        slots: bounds the segments deleted at once, over all partitions.
        width: segments of one partition deleted at once.
        grace_s: the time for which an expired segment can be taken back.
        interval_s: the wait after a pass that left something undone.
    """

    metadata: RemoteLogMetadataManager
    deletion: SegmentDeletion
    policies: FindTopicPolicy
    being_copied: Collection[UUID]
    log_starts: LogStartKeeper
    slots: asyncio.Semaphore
    recorder: TieringRecorder
    clock: Clock
    width: int = 4
    grace_s: float = 3600.0
    interval_s: float = 30.0
    strict_kafka_compat: bool = False


class ExpirationTask:
    """Expiration task of one leadership of one partition. Another leader epoch or directory has another task.

    Attributes:
        name: ``expire <partition> <topic id> @<epoch>``.
        wake: the event that is set when a segment rolled or was copied, the policy changed, or on request.
        partition: the partition.
        local: the local log of the partition.
    """

    def __init__(
        self, local: LocalLogView, *, leader_epoch: int, tools: ExpirationTools, sweep: DanglingSweep | None = None
    ) -> None:
        """Delete nothing yet; ``sweep`` is run at the end of each pass, None where there is none to run."""
        self.local: Final = local
        self.partition: Final = local.partition
        self._leader_epoch = leader_epoch
        self.name: Final = f"expire {local.partition} {local.partition.topic_id} @{leader_epoch}"  # asked for often
        self._tools = tools
        self._metadata = tools.metadata
        self._deletion = tools.deletion
        self._sweep = sweep
        self.wake: Final = LazyEvent()
        self._claimed = False
        # Whose tombstones this task knows to be there, and for which deletion: one may be undone, and another begin.
        self._marked: dict[UUID, SoftDelete | None] = {}
        self._settled: tuple[PartitionView, LocalFacts, TopicPolicy, int | None] | None = None
        self._state = ExpirationState()
        self._waiters = PassWaiters()

    @property
    def state(self) -> ExpirationState:
        """Return the present state."""
        return replace(self._state, retained=self._deletion.retained_of(self.partition))

    @property
    def progress(self) -> object:
        """Return a value that changes while a pass makes progress, or while deletions that it waits for do."""
        return self._state, self._deletion.steps

    async def plan(self) -> ExpirationPlan:
        """Return what a pass would do now; delete nothing.

        Raises:
            RemoteStorageNotReadyError: the metadata is not loaded.
            TierError: the local log cannot be read.
        """
        policy = self._tools.policies(self.partition.topic)
        return await self._plan(self._metadata.view(self.partition), await self._facts(policy), policy)

    async def run_once(self) -> float | None:
        """Delete what is due; return seconds until there is more, None when only an event can bring more.

        Cancelled or failed anywhere, the rows say what is left, and the next pass goes on with it.

        Raises:
            FencedError: another leader owns the partition.
            OffsetOutOfRangeError: the log has not reached the log start that would follow; nothing was deleted.
            TierError: the pass ended early.
        """
        waiting = self._waiters.begin()
        try:
            delay_s = await self._pass()
        finally:
            release(waiting)
        self._tools.recorder.task_succeeded("expire")
        return delay_s

    def next_pass(self) -> "asyncio.Future[None]":
        """Return a future of the next pass that begins; it is done when that pass has ended, well or not."""
        return self._waiters.next_pass()

    def close(self) -> None:
        """Release callers that wait for a pass: there will be none."""
        self._waiters.close()

    async def _pass(self) -> float | None:
        await self.load()
        view = self._metadata.view(self.partition)
        if view.delete_state is not None:
            return None  # all of it goes; the remover sees to that
        if not view.segments:
            self._state, self._settled = ExpirationState(), None
            return await self._rest(None, undone=False)  # most partitions of most brokers: nothing is read
        policy = self._tools.policies(self.partition.topic)
        facts = await self._facts(policy)
        if self._is_settled(view, facts, policy):
            return await self._rest(self._settled[3] if self._settled else None, undone=False)
        being_copied = frozenset(self._tools.being_copied)  # as the plan takes them
        plan = await self._plan(view, facts, policy)
        if not await self._push(plan, facts):
            return self._tools.interval_s
        await self._carry_out(view, plan)
        is_same = not plan.deletions and being_copied == frozenset(self._tools.being_copied)
        return await self._after(facts, policy, planned=(view, plan) if is_same else None)

    async def load(self) -> None:
        """Make sure that the metadata is ours and loaded; the copy task does the same, and once is enough.

        Raises:
            FencedError: another leader owns the partition.
            MetadataError: the store does not answer, or holds what cannot be understood.
        """
        if not self._claimed:
            await self._metadata.become_leader(self.partition, self._leader_epoch)
            self._claimed = True
        await self._metadata.ensure_ready(self.partition)

    async def _facts(self, policy: TopicPolicy) -> LocalFacts:
        return await self.local.facts(sizes=policy.expires_bytes >= 0)

    async def _plan(self, view: PartitionView, facts: LocalFacts, policy: TopicPolicy) -> ExpirationPlan:
        being_copied = frozenset(self._tools.being_copied)
        now_ms = self._tools.clock.now_ms()

        def plan() -> ExpirationPlan:
            return partition_expiration(
                view,
                facts,
                policy,
                being_copied=being_copied,
                now_ms=now_ms,
                strict_kafka_compat=self._tools.strict_kafka_compat,
            )

        began_s = self._tools.clock.monotonic_s()
        planned = plan() if len(view.segments) <= _PLANNED_IN_LOOP else await asyncio.to_thread(plan)
        self._tools.recorder.remote_size_computed(self._tools.clock.monotonic_s() - began_s)
        return planned

    def _is_settled(self, view: PartitionView, facts: LocalFacts, policy: TopicPolicy) -> bool:
        """Return True if nothing has changed since a pass that left nothing to do before a time in the future."""
        if self._settled is None:
            return False
        seen_view, seen_facts, seen_policy, due_ms = self._settled
        is_same = seen_view is view and seen_facts == facts and seen_policy == policy
        return is_same and (due_ms is None or self._tools.clock.now_ms() < due_ms)

    async def _push(self, plan: ExpirationPlan, facts: LocalFacts) -> bool:
        """Move the log start up before anything is deleted; False while it is unknown whether it may move."""
        start = plan.new_log_start_offset
        if start is None:
            return True
        if facts.high_watermark is None:
            self._state = replace(self._state, reason="no high watermark in replication-offset-checkpoint yet")
            return False
        if start > facts.high_watermark:
            raise OffsetOutOfRangeError(
                f"{self.partition}: log start {start} would be above the high watermark {facts.high_watermark}; "
                "nothing expires",
                remedy="nothing to do after an unclean election; otherwise see tierd verify",
            )
        await self._metadata.advance_log_start_offset(self.partition, start)
        await self.local.raise_log_start(start)
        log.info("log_start_advanced", partition=str(self.partition), log_start_offset=start)
        return True

    async def _carry_out(self, view: PartitionView, plan: ExpirationPlan) -> None:
        chosen = [p for p in plan.deletions if not self._deletion.retained_for_s(p.metadata.segment)]
        chosen_bytes = sum(planned.metadata.size_bytes for planned in chosen)
        self._state = ExpirationState(len(chosen), chosen_bytes, in_grace=_in_grace(view))
        try:
            await self._mark_all(view, {planned.metadata.segment.id for planned in plan.deletions})
            await in_order(chosen, self._delete, slots=self._tools.slots, width=self._tools.width)
        except asyncio.CancelledError:
            self._end_lag()  # what a former leader left undone is no lag (remote-tiering 9.1)
            raise
        self._end_lag()  # not after a failure: what could not be deleted stays the lag until the next pass

    def _end_lag(self) -> None:
        self._state = ExpirationState(in_grace=self._state.in_grace)

    async def _mark_all(self, view: PartitionView, except_for: Collection[UUID]) -> None:
        """Give a tombstone to every segment in its grace that a crash left without one; asked once per segment."""
        unmarked = [
            metadata
            for metadata in view.list()
            if metadata.soft_delete is not None
            and self._marked.get(metadata.segment.id) != metadata.soft_delete
            and metadata.segment.id not in except_for
        ]
        unmarked.sort(key=lambda metadata: metadata.start_offset)
        await in_order(unmarked, self._mark, slots=self._tools.slots, width=self._tools.width)

    async def _mark(self, metadata: RemoteLogSegmentMetadata) -> None:
        with self._deletion.exclusively(metadata) as alone:
            present = self._present(metadata)
            if alone and present is not None and present.soft_delete is not None:
                await self._deletion.mark_left(present)
                self._marked[metadata.segment.id] = present.soft_delete

    async def _delete(self, planned: PlannedDeletion) -> None:
        """Take one segment as far as it may go now."""
        with self._deletion.exclusively(planned.metadata) as alone:
            present = self._present(planned.metadata)
            if alone and present is not None and present.state is planned.metadata.state:
                with contextlib.suppress(RemoteObjectRetainedError):  # noted; others need not wait for that
                    await self._delete_alone(present, planned)
        lag, size_bytes = self._state.lag_segments, planned.metadata.size_bytes
        self._state = replace(self._state, lag_segments=lag - 1, lag_bytes=self._state.lag_bytes - size_bytes)

    async def _delete_alone(self, present: RemoteLogSegmentMetadata, planned: PlannedDeletion) -> None:
        reason, detail = planned.reason, planned.detail
        if present.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            after_ms = self._tools.clock.now_ms() + round(self._grace_s(planned) * 1000)
            row = await self._deletion.begin(present, reason=reason, detail=detail, delete_after_ms=after_ms)
            self._marked[present.segment.id] = row.soft_delete
            self._log("segment_expired", row, reason, detail)
            if self._tools.grace_s > 0:
                return
            present = row
        if present.soft_delete is not None:
            is_due = present.soft_delete.delete_after_ms <= self._tools.clock.now_ms()
            if not is_due or not await self._deletion.finish(present):
                return
            self._marked.pop(present.segment.id, None)
        elif present.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED and self._sweep is not None:
            await self._sweep.take(present, reason=reason, detail=detail)
        else:
            await self._deletion.delete(present, reason=reason, detail=detail)
        self._log("segment_deleted", present, reason, detail)

    def _grace_s(self, planned: PlannedDeletion) -> float:
        """Return the time for which the segment can be undeleted.

        A segment that was readable until the log itself turned to other epochs is of a tier that was left behind. After
        the loss of a disk, which the broker replaces by an empty log, that tier is the last copy. People need days to
        notice the loss.
        """
        configured_s = self._tools.grace_s
        log_start = self._metadata.view(self.partition).log_start_offset or 0
        is_of_old = planned.reason is DeleteReason.UNREFERENCED_EPOCH
        if not configured_s or not is_of_old or planned.metadata.end_offset < log_start:
            return configured_s
        log.warning(
            "segment_left_behind",
            partition=str(self.partition),
            segment=str(planned.metadata.segment),
            why=planned.detail,
            remedy="if its disk was lost, tierd undelete --force takes it back; it goes after a week",
        )
        return max(configured_s, LEFT_BEHIND_GRACE_S)

    def _present(self, metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata | None:
        """Return the row as it is now: the segment may have been taken back since the plan was made."""
        return self._metadata.view(self.partition).segment(metadata.segment.id)

    async def _after(
        self, facts: LocalFacts, policy: TopicPolicy, *, planned: tuple[PartitionView, ExpirationPlan] | None
    ) -> float | None:
        """Plan once more for what is left; return the seconds until the next pass.

        ``planned``, a view and its plan, is the plan of a pass that changed nothing: it holds while the view is there.
        """
        view = self._metadata.view(self.partition)
        left = planned[1] if planned and planned[0] is view else await self._plan(view, facts, policy)
        self._marked = {each: deletion for each, deletion in self._marked.items() if each in view.segments}
        self._state = ExpirationState(in_grace=_in_grace(view))
        retained = [self._deletion.retained_for_s(p.metadata.segment) for p in left.deletions]
        blocked = left.blocked_by is not None and left.blocked_by in self._tools.being_copied
        if not left.deletions and not blocked:
            self._settled = (view, facts, policy, left.next_due_ms)
        undone = blocked or not all(retained)
        return await self._rest(left.next_due_ms, undone=undone, retained_s=min(retained, default=0.0))

    async def _rest(self, next_due_ms: int | None, *, undone: bool, retained_s: float = 0.0) -> float | None:
        swept_s = await self._sweep.run_once() if self._sweep is not None else None
        recorded_s = await self._tools.log_starts.keep(self.partition)
        delays = [swept_s, recorded_s, self._tools.interval_s if undone else retained_s or None]
        if next_due_ms is not None:
            delays.append((next_due_ms - self._tools.clock.now_ms()) / 1000)
        known = [delay for delay in delays if delay is not None]
        if not known and not self._metadata.view(self.partition).segments:
            return None
        return max(0.0, min([*known, _IDLE_S]))

    def _log(self, event: str, metadata: RemoteLogSegmentMetadata, reason: DeleteReason, detail: str) -> None:
        log.info(
            event,
            partition=str(self.partition),
            segment=str(metadata.segment),
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            size_bytes=metadata.size_bytes,
            reason=str(reason),
            why=detail,
        )


def _in_grace(view: PartitionView) -> int:
    return sum(m.state is _DELETING and m.soft_delete is not None for m in view.segments.values())
