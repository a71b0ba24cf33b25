"""CompactionLeader: the job proposes, the leader commits (DESIGN 9).

::

    prepare ─► order                          inputs of the order: they do not expire while the run is on
    begin   ─► rows COPY_SEGMENT_STARTED      then the job may write .log and .indexes of exactly those ids
    commit  ─► .manifest ─► one atomic batch  output FINISHED, inputs DELETE_STARTED, perhaps compacted_to
    end     ─► what is open DELETE_STARTED    the sweep removes its objects

A crash anywhere leaves rows that the sweep removes, and readers see the inputs or the output.
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import RefusedError
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import random_id
from tierd.pipeline.committing.beginning import Beginning
from tierd.pipeline.committing.evidence_reader import EvidenceReader
from tierd.pipeline.committing.messages import Begun, RefusedGroup, Verdict
from tierd.pipeline.committing.open_outputs import OpenOutput, OpenOutputs
from tierd.pipeline.committing.order_maker import OrderMaker, PreparedRun, stored_secret
from tierd.pipeline.committing.output_checks import inputs_problem
from tierd.pipeline.committing.patient_metadata import PatientMetadata, WriteOutcome
from tierd.pipeline.committing.replacing import LeaderSettings, OutputStorage, Replacing
from tierd.pipeline.committing.round import GroupState, PartitionRound
from tierd.pipeline.committing.run_record import RunRecord, RunStatistics
from tierd.pipeline.pipeline_errors import WorkOrderError
from tierd.pipeline.planning import Candidate, Output, WorkOrder
from tierd.remote import SegmentManifest

log = structlog.get_logger()

_GO_ON: Final = "the group stays as it was; the next run tries again"


class CompactionLeader:
    """Leader's side of one run after the other. It has one caller, which awaits each call before the next.

    Args:
        metadata: the rows of the tier, which are begun, replaced and abandoned here.
        storage: the objects of the job, and the manifests.
        outputs: the outputs that a run has begun; they belong to this leader alone.
        clock: wall clock of rows, and of retries.
        settings: limits of retries and reads.
        new_id: makes ids of runs and outputs.
        run_secret: returns the secret for the hashes of keys; None: that of the metadata store, which is made once.
        random: returns a number in [0, 1), which chooses what is audited.
    """

    def __init__(
        self,
        metadata: RemoteLogMetadataManager,
        storage: OutputStorage,
        *,
        outputs: OpenOutputs,
        clock: Clock,
        settings: LeaderSettings,
        new_id: Callable[[], UUID] = random_id,
        run_secret: Callable[[], Awaitable[bytes]] | None = None,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._new_id = new_id
        self._metadata = PatientMetadata(metadata, clock=clock, tries=settings.metadata_tries, retry_s=settings.retry_s)
        self._replacing = Replacing(self._metadata, storage, clock=clock, settings=settings)
        evidence = EvidenceReader(storage, concurrency=settings.fetch_concurrency, timeout_s=settings.fetch_timeout_s)
        self._orders = OrderMaker(
            evidence,
            clock=clock,
            run_secret=run_secret or partial(stored_secret, metadata.rows, metadata.keys),
            random=random,
        )
        self._outputs = outputs
        self._beginning = Beginning(
            self._metadata, storage, replacing=self._replacing, outputs=self._outputs, clock=clock, new_id=new_id
        )
        self._rounds: tuple[PartitionRound, ...] = ()
        self._order: WorkOrder | None = None
        self.record = RunRecord(UUID(int=0), partitions=0, groups=0)
        """Record of the present run, or of the last one."""

    @property
    def order(self) -> WorkOrder | None:
        """Return the order of the present run, None between two runs."""
        return self._order

    @property
    def rounds(self) -> tuple[PartitionRound, ...]:
        """Return the round of each partition in the present run; empty between two runs."""
        return self._rounds

    def statistics(self) -> RunStatistics:
        """Return the statistics of the present run, or of the last one."""
        return self.record.statistics()

    async def prepare(
        self,
        candidates: Sequence[Candidate],
        *,
        run_id: UUID | None = None,
        max_bytes: int | None = None,
        audit_bytes: int = 0,
    ) -> PreparedRun:
        """Begin a run, which lasts until ``end`` is called. A partition whose objects cannot be read is skipped.

        Args:
            candidates: partitions that this broker leads, with views that are loaded.
            run_id: id of the run; a fresh one by default.
            max_bytes: bytes that the run may rewrite; None for no limit.
            audit_bytes: bytes of the segments that the run audits, chosen anew; 0 for none.

        Raises:
            RefusedError: another run is on.
            BackendUnavailableError: the metadata store does not answer, or has no secret and cannot be written.
        """
        if self._order is not None:
            raise RefusedError("a run is on", remedy="wait until it has ended")
        prepared = await self._orders.prepare(
            candidates, run_id=run_id or self._new_id(), max_bytes=max_bytes, audit_bytes=audit_bytes
        )
        self._order = prepared.order
        works = prepared.order.partitions
        starts = {candidate.partition: candidate.view.log_start_offset or 0 for candidate in candidates}
        self._rounds = tuple(PartitionRound(work, log_start_offset=starts[work.partition]) for work in works)
        due = [len(round_.work.groups) for round_ in self._rounds if not round_.is_audit]
        self.record = RunRecord(prepared.order.run_id, partitions=len(due), groups=sum(due))
        for work in works:
            for group in range(len(work.groups)):
                self._outputs.guard(work.group_inputs(group))
        return prepared

    async def begin(self, index: int, groups: Sequence[int]) -> Begun:
        """Begin outputs of one partition; a group that is refused must be left alone.

        Raises:
            WorkOrderError: there is no such partition.
        """
        round_ = self._round(index)
        outputs: list[Output] = []
        refused: dict[int, str] = {}
        for group in sorted(set(groups)):
            if (problem := round_.why_not_begin(group)) is not None:
                refused[group] = problem
                continue
            output = await self._beginning.describe(round_, group)
            if isinstance(output, Output):
                outputs.append(output)
            else:
                refused[group] = output
                self._leave(round_, group, output)
        problem = await self._beginning.begin(round_, outputs)
        if problem is not None:
            for output in outputs:
                refused[output.group] = problem
                self._leave(round_, output.group, problem)
            outputs = []
        self.record.begun(len(outputs))
        listed = tuple(RefusedGroup(group=group, reason=refused[group]) for group in sorted(refused))
        return Begun(outputs=tuple(outputs), refused=listed)

    async def commit(
        self,
        segment_id: UUID,
        manifest: SegmentManifest,
        counts: Mapping[str, int],
        *,
        erased: Mapping[int, int] = MappingProxyType({}),
    ) -> Verdict:
        """Let an output take the place of its inputs; a refused output leaves the group as it was.

        A cancelled commit may have happened or not: readers see the inputs or the output.

        Args:
            segment_id: of the output.
            manifest: of the output.
            counts: counts of the rewrite, by name.
            erased: records that went of each erased key, by ``PartitionWork.erased_places``.

        Raises:
            WorkOrderError: the work has no such erased key.
        """
        opened = self._outputs.get(segment_id)
        if opened is None:
            return _unknown(segment_id)
        erased_counts = opened.round.work.erased_counts(erased)
        problem = opened.round.why_not_commit(opened.output.group, counts)
        outcome = WriteOutcome(problem) if problem is not None else await self._replacing.replace(opened, manifest)
        if outcome.problem is not None:
            return await self._not_committed(opened, outcome)
        self._outputs.forget(opened)
        opened.round.commit(opened.output.group, opened.row.segment, counts, erased=erased_counts)
        self.record.committed(
            bytes_before=sum(metadata.size_bytes for metadata in opened.inputs),
            bytes_after=manifest.size_bytes,
            counts=counts,
        )
        return Verdict(committed=True)

    async def refuse(self, segment_id: UUID, problem: str) -> Verdict:
        """Abandon an output whose manifest cannot be understood; the group stays as it was."""
        opened = self._outputs.get(segment_id)
        return _unknown(segment_id) if opened is None else await self._not_committed(opened, WriteOutcome(problem))

    async def unchanged(self, index: int, group: int, counts: Mapping[str, int] | None = None) -> None:
        """Take note that a group is right as it is; once all groups of a compaction are done the partition is clean.

        Raises:
            WorkOrderError: there is no such group, or it has come to its end.
        """
        round_ = await self._settle(index, group, GroupState.DONE)
        if round_.is_audit:
            self.record.audited(*round_.work.group_inputs(group))
            return
        self.record.unchanged(counts or {})
        offset, partition = round_.compacted_to_with(group), round_.work.partition
        if offset is None:
            return
        outcome = await self._metadata.write(lambda: self._metadata.manager.advance_compacted_to(partition, offset))
        if outcome.problem is not None:  # the next run reads the whole partition again
            log.warning("compacted_to_not_stored", partition=str(partition), problem=outcome.problem)

    async def failed(self, index: int, group: int, problem: str) -> None:
        """Take note that the job could not rewrite a group, or that its audit found a problem; other groups go on.

        Raises:
            WorkOrderError: there is no such group, or it has come to its end.
        """
        round_ = await self._settle(index, group, GroupState.LEFT)
        if round_.is_audit:
            await self._note_finding(round_, group, problem)
            return
        self.record.failed(round_.work.partition, group, problem)
        log.warning("compaction_group_failed", partition=str(round_.work.partition), group=group, problem=problem)

    async def end(self) -> RunStatistics:
        """End the run: open outputs are abandoned, and the inputs may expire. Without a run, nothing is done.

        A cancelled call leaves rows that the sweep removes after its grace.
        """
        self._orders.note_failed(round_.work.partition for round_ in self._rounds if round_.has_failed)
        self._order, self._rounds = None, ()
        await self._outputs.close()
        return self.statistics()

    def _round(self, index: int) -> PartitionRound:
        if not 0 <= index < len(self._rounds):
            raise WorkOrderError(f"the order has no partition {index}", remedy=_GO_ON)
        return self._rounds[index]

    async def _settle(self, index: int, group: int, state: GroupState) -> PartitionRound:
        round_ = self._round(index)
        if (problem := round_.why_not_settle(group)) is not None:
            raise WorkOrderError(problem, remedy=_GO_ON)
        round_.move(group, state)
        opened = self._outputs.of_group(round_, group)
        self._outputs.release(round_.work.group_inputs(group))
        if opened is not None:
            await self._outputs.abandon(opened)
        return round_

    async def _note_finding(self, round_: PartitionRound, group: int, problem: str) -> None:
        """Note the finding of an audit, unless the segment has changed or gone since."""
        (metadata,) = round_.work.group_inputs(group)
        view = await self._metadata.view(round_.work.partition)
        gone = None if isinstance(view, WriteOutcome) else inputs_problem(view, [metadata])
        if gone is not None:
            log.info("audit_left_out", partition=str(round_.work.partition), reason=gone, found=problem)
            return
        self.record.damaged(metadata, group, problem)
        log.error("audit_finding", partition=str(round_.work.partition), segment=str(metadata.segment), problem=problem)

    def _leave(self, round_: PartitionRound, group: int, reason: str) -> None:
        """Leave a group of this run as it was, since the leader refused it."""
        round_.move(group, GroupState.LEFT)
        self._outputs.release(round_.work.group_inputs(group))
        self.record.refused(round_.work.partition, group, reason)
        log.warning("compaction_group_refused", partition=str(round_.work.partition), group=group, reason=reason)

    async def _not_committed(self, opened: OpenOutput, outcome: WriteOutcome) -> Verdict:
        reason = outcome.problem or ""
        if outcome.is_unknown:  # if the commit happened, a deleted row would delete the only copy
            self._outputs.forget(opened)
            reason = f"it is unknown whether it was committed: {reason}"
        else:
            await self._outputs.abandon(opened)
        self._leave(opened.round, opened.output.group, reason)
        return Verdict(committed=False, reason=reason)


def _unknown(segment_id: UUID) -> Verdict:
    return Verdict(committed=False, reason=f"this run has no open output {segment_id}")
