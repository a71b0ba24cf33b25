"""TierRepair: carries a plan out, one action after the other, each under the claim of its partition.

Each run plans from the state at that moment, so a repair that was broken off continues when it is run again::

    copy again    a fresh copy, finished ─► the damaged one DELETE_STARTED, tombstone; expiration removes it
    adopt         one row, COPY_FINISHED at once
    remove        ledger ─► log, indexes, manifest, tombstone
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import (
    FencedError,
    ForeignTierError,
    RefusedError,
    RemoteObjectRetainedError,
    SegmentChangedError,
    TierError,
)
from tierd.metadata import RECORD_IN_DOUBT, KeyValueStore, MetadataKeyFactory, RemoteLogMetadataManager, read_segment
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, uuid_to_text
from tierd.remote import ObjectStore, SegmentStorage
from tierd.tiering.auditing.recopy import LocalSource, ReadyCopy, RemoteLogCopy, RemoteSource, prepare_local
from tierd.tiering.auditing.repair_plan import RepairAction, RepairKind
from tierd.tiering.auditing.repair_planner import RepairPlanner
from tierd.tiering.auditing.side_by_side import AuditReport
from tierd.tiering.auditing.stored_segments import ALL_SUFFIXES, SegmentPlace
from tierd.tiering.copying.segment_copy import SegmentCopy
from tierd.tiering.reading.tiered_log import TieredLog
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.last_copy import KEPT, KEPT_REMEDY
from tierd.tiering.removing.ledger import DeleteReason, Ledger, LedgerEntry, LedgerStep

log = structlog.get_logger()


class RepairResult(StrEnum):
    """Result of an action."""

    PLANNED = "planned"
    DONE = "done"
    CANNOT = "cannot"
    REFUSED = "refused"
    FAILED = "failed"

    @property
    def is_problem(self) -> bool:
        """Return True if the damage stays."""
        return self not in {RepairResult.PLANNED, RepairResult.DONE}


@dataclass(frozen=True, slots=True)
class RepairOutcome:
    """Outcome of an action; ``problem`` and ``remedy`` say why the action was not done."""

    action: RepairAction
    result: RepairResult
    problem: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairTools:
    """Collaborators of the actions.

    Attributes:
        metadata: claims partitions and writes rows.
        copies: makes fresh copies.
        deletion: removes segments that have rows.
        remote_log: reads the logs of damaged segments.
        store: the objects; it refuses to change a tier that is not ours.
        storage: the same objects as segments.
        rows: the metadata as it is stored.
        metadata_keys: the keys of the cluster's rows.
        tiered_log: reads the tier and the local log of a partition anew.
        led: leader epochs of the partitions that this broker leads.
        ledger: is told before anything is removed.
        clock: time.
        broker_id: this broker.
        session_id: this process.
        scratch: a directory of ours for what is fetched, on a disk with room for some segments.
        grace_s: the time for which a damaged copy that was replaced stays.
        own: proves that the tier is ours, or raises.
        write_identity: makes the tier ours whose identity is gone.
    """

    metadata: RemoteLogMetadataManager
    copies: SegmentCopy
    deletion: SegmentDeletion
    remote_log: RemoteLogCopy
    store: ObjectStore
    storage: SegmentStorage
    rows: KeyValueStore
    metadata_keys: MetadataKeyFactory
    tiered_log: Callable[[TopicIdPartition], Awaitable[TieredLog]]
    led: Mapping[TopicIdPartition, int]
    ledger: Ledger
    clock: Clock
    broker_id: int
    session_id: UUID
    scratch: Path
    grace_s: float
    own: Callable[[], Awaitable[None]]
    write_identity: Callable[[], Awaitable[None]]


class TierRepair:
    """Repair of a tier. One runs at a time, in the only process that has the claims of this broker."""

    def __init__(self, planner: RepairPlanner, tools: RepairTools) -> None:
        self._planner = planner
        self._tools = tools

    async def run(
        self, only: Collection[TopicIdPartition] | None = None, *, deep: bool = False, is_confirmed: bool = False
    ) -> AsyncGenerator[RepairOutcome, None]:
        """Do what can be done and yield the outcome of each action. After a cancellation another run continues.

        Args:
            only: these partitions; None repairs everything below the prefix.
            deep: download every segment, and check every batch.
            is_confirmed: carry out also the actions that remove what was readable once.

        Raises:
            ForeignTierError: the tier belongs to another metadata store; nothing more is done.
            TierError: a store does not answer, so that nothing can be planned.
        """
        await asyncio.to_thread(shutil.rmtree, self._tools.scratch, ignore_errors=True)  # of a run that was killed
        async with contextlib.aclosing(self._planner.run(only, deep=deep)) as actions:
            async for action in actions:
                yield await self._attempt(action, is_confirmed=is_confirmed)

    async def _attempt(self, action: RepairAction, *, is_confirmed: bool) -> RepairOutcome:
        if action.kind is RepairKind.NOTHING:
            return RepairOutcome(action, RepairResult.CANNOT, action.why, action.remedy)
        if action.is_dangerous and not is_confirmed:
            problem = "it takes away what was readable once, and was not confirmed"
            return RepairOutcome(action, RepairResult.REFUSED, problem, "run it again with --yes")
        try:
            await self._act(action)
        except ForeignTierError:
            raise
        except FencedError as error:
            return RepairOutcome(action, RepairResult.REFUSED, str(error), error.remedy)
        except RemoteObjectRetainedError as error:
            return RepairOutcome(action, RepairResult.CANNOT, str(error), error.remedy)
        except TierError as error:
            return RepairOutcome(action, RepairResult.FAILED, str(error), error.remedy or "run it again")
        log.info("tier_repaired", action=action.kind.value, where=action.where, why=action.why)
        return RepairOutcome(action, RepairResult.DONE)

    async def _act(self, action: RepairAction) -> None:
        if action.kind is RepairKind.WRITE_IDENTITY:
            await self._tools.write_identity()
            return
        await self._tools.own()
        if action.kind in (RepairKind.REMOVE_LOG_START, RepairKind.WRITE_LOG_START):
            await self._repair_log_start(action)
            return
        report = action.report
        assert report is not None, "what is done is done to something"
        await self._require_unchanged(report)
        match action.kind:
            case RepairKind.COPY_AGAIN:
                await self._copy_again(action, _row_of(report))
            case RepairKind.REMOVE_DAMAGED:
                await self._begin_deletion(_row_of(report), action.why)
            case RepairKind.ADOPT:
                await self._adopt(action)
            case RepairKind.REMOVE_ORPHAN:
                await self._remove_orphan(report, action.why)
            case RepairKind.REMOVE_TOMBSTONE:
                await self._tools.storage.remove_tombstone(_row_of(report))
            case RepairKind.WRITE_TOMBSTONE:
                await self._tools.deletion.mark(_row_of(report), detail="it was missing")
            case RepairKind.END_DELETION:
                await self._require_not_last_copy(_row_of(report))
                await self._tools.deletion.end(_row_of(report), reason=DeleteReason.DANGLING, detail=action.why)
            case RepairKind.ABORT_UPLOAD:
                assert report.upload is not None, "that is what it is about"
                await self._tools.store.abort_upload(report.upload)

    async def _require_not_last_copy(self, row: RemoteLogSegmentMetadata) -> None:
        if await self._tools.deletion.is_last_copy(row):
            raise RefusedError(f"{row.segment}: {KEPT}", remedy=KEPT_REMEDY)

    async def _repair_log_start(self, action: RepairAction) -> None:
        """Remove a record that is left over, or mark it as not written, so that the next daemon writes it."""
        tools, partition = self._tools, action.partition
        assert partition is not None, "a log start is of a partition"
        if action.kind is RepairKind.REMOVE_LOG_START:
            await tools.store.delete(action.where)
            return
        await tools.metadata.become_leader(partition, tools.led[partition])
        await tools.metadata.ensure_ready(partition)
        await tools.metadata.note_recorded_log_start(partition, RECORD_IN_DOUBT)

    async def _require_unchanged(self, report: AuditReport) -> None:
        """Claim the partition if it is ours, and make sure that the segment's row is what was planned with.

        Under the claim no other process can change the row. A partition that the metadata does not know, or knows as
        deleted, has no leader: a row that has appeared is a change.
        """
        tools, partition = self._tools, report.partition
        assert report.place is not None, "only segments are changed"
        assert partition is not None, "a segment is of a partition"
        if partition in tools.led:
            await tools.metadata.become_leader(partition, tools.led[partition])
            await tools.metadata.ensure_ready(partition)
            row = tools.metadata.view(partition).segment(report.place.segment.id)
        else:
            row, partition_row = await read_segment(tools.rows, tools.metadata_keys, report.place.segment)
            if partition_row is not None and not partition_row.is_tombstone:
                raise RefusedError(f"{partition} is led by another broker", remedy="run it there")
        if report.row is None and row is not None and SegmentPlace.of_row(row) != report.place:
            row = None  # of the segment whose id the objects have, and which lies elsewhere
        if report.upload is None and row != report.row:
            raise SegmentChangedError(f"{report.place.segment}: changed meanwhile", remedy="run it again")

    # ------------------------------------------------------------ fresh copies

    async def _copy_again(self, action: RepairAction, row: RemoteLogSegmentMetadata) -> None:
        tiered = await self._tools.tiered_log(row.segment.topic_id_partition)
        match action.source:
            case LocalSource(segments):
                for held in segments:
                    await self._copy(row, await asyncio.to_thread(prepare_local, held, tiered))
            case RemoteSource():
                await self._copy_from_tier(row, tiered)
        await self._begin_deletion(row, action.why)

    async def _copy_from_tier(self, row: RemoteLogSegmentMetadata, tiered: TieredLog) -> None:
        scratch = self._tools.scratch
        await asyncio.to_thread(scratch.mkdir, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            ready = await self._tools.remote_log.prepare(row, tiered, Path(folder))
            await self._copy(row, ready)

    async def _copy(self, row: RemoteLogSegmentMetadata, ready: ReadyCopy) -> None:
        partition = row.segment.topic_id_partition
        await self._tools.copies.copy(
            partition,
            ready.held,
            ready.prepared,
            leader_epoch=self._tools.led[partition],
            directory=ready.directory,
        )

    async def _begin_deletion(self, row: RemoteLogSegmentMetadata, why: str) -> None:
        """Begin to delete a damaged segment; expiration ends the deletion after the grace."""
        await self._tools.deletion.begin(
            row,
            reason=DeleteReason.DAMAGED,
            detail=why,
            delete_after_ms=self._tools.clock.now_ms() + round(1000 * self._tools.grace_s),
        )

    # ------------------------------------------------------------ orphans, deletions

    async def _adopt(self, action: RepairAction) -> None:
        assert action.orphan is not None, "that is what is adopted"
        tools, partition = self._tools, action.orphan.segment.topic_id_partition
        await tools.metadata.adopt(
            replace(
                action.orphan,
                broker_id=tools.broker_id,
                event_timestamp_ms=tools.clock.now_ms(),
                leader_epoch=tools.led[partition],
                session_id=tools.session_id,
            )
        )

    async def _remove_orphan(self, report: AuditReport, why: str) -> None:
        tools, place = self._tools, report.place
        assert place is not None, "an orphan lies somewhere"
        size_bytes = sum(info.size_bytes for info in report.objects.values())
        await tools.ledger.record(
            LedgerEntry(
                time_ms=tools.clock.now_ms(),
                step=LedgerStep.DELETED.value,
                partition=str(place.partition),
                topic_id=uuid_to_text(place.partition.topic_id),
                segment_id=uuid_to_text(place.segment.id),
                start_offset=place.start_offset,
                end_offset=-1,
                size_bytes=size_bytes,
                reason=DeleteReason.ORPHAN.value,
                detail=why,
                broker_id=tools.broker_id,
            )
        )
        for suffix in ALL_SUFFIXES:
            if (info := report.objects.get(suffix)) is not None:
                await tools.store.delete(info.key)


def _row_of(report: AuditReport) -> RemoteLogSegmentMetadata:
    assert report.row is not None, "only what has a row is treated like this"
    return report.row
