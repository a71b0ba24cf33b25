"""RepairPlanner: an audit, and for each thing that it finds what is to be done. Reads only."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tierd.clock import Clock
from tierd.errors import LogError, RemoteObjectTooLargeError, RemoteStorageError, RemoteUnauthenticatedError
from tierd.log import parse_lineage
from tierd.metadata import KeyValueStore, MetadataKeyFactory, read_partition, read_segment
from tierd.model import (
    IndexType,
    Lineage,
    OffsetRange,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from tierd.remote import SegmentStorage
from tierd.tiering.auditing.findings import missing_offsets
from tierd.tiering.auditing.log_start_check import DISAGREES, STRAY
from tierd.tiering.auditing.orphans import (
    OrphanUse,
    is_covered,
    is_of_lineage,
    lineage_behind_tier,
    uncovered,
    use_of,
)
from tierd.tiering.auditing.recopy import RemoteSource, Source, local_source
from tierd.tiering.auditing.repair_plan import (
    OrphanFacts,
    RepairAction,
    RepairKind,
    Standing,
    elsewhere,
    needs_source,
    plan_damaged,
    plan_gap,
    plan_identity,
    plan_log_start,
    plan_orphan,
    plan_row,
    plan_upload,
    unknown,
)
from tierd.tiering.auditing.segment_check import SegmentCheck
from tierd.tiering.auditing.side_by_side import AuditReport
from tierd.tiering.auditing.stored_segments import LOG, MANIFEST, TOMBSTONE
from tierd.tiering.auditing.verify import TierAudit
from tierd.tiering.reading.tiered_log import TieredLog
from tierd.tiering.rebuilding.bucket import BucketReader
from tierd.tiering.rebuilding.partition_objects import PartitionObjects

LEAST_AGE_S: Final = 3600.0
"""Nothing without a row is touched before it is as old as this, unless somebody says so."""

_IDENTITY: Final = frozenset({"missing-tier-identity", "foreign-tier", "damaged-tier-identity"})


class RepairPlanner:
    """Plans the repair of a tier.

    Args:
        audit: finds what is wrong.
        check: looks into orphans.
        bucket: reads the manifests of orphans.
        storage: of the tier, without a cache.
        rows: the metadata.
        metadata_keys: of the cluster.
        tiered_log: looks at both tiers of a partition anew.
        led: partitions that this broker leads.
        hold_dir: where segments are held.
        clock: time.
        min_age_s: of what has no row before it is touched.
    """

    def __init__(
        self,
        *,
        audit: TierAudit,
        check: SegmentCheck,
        bucket: BucketReader,
        storage: SegmentStorage,
        rows: KeyValueStore,
        metadata_keys: MetadataKeyFactory,
        tiered_log: Callable[[TopicIdPartition], Awaitable[TieredLog]],
        led: Collection[TopicIdPartition] | Mapping[TopicIdPartition, int],
        hold_dir: Path,
        clock: Clock,
        min_age_s: float,
    ) -> None:
        self._audit = audit
        self._check = check
        self._bucket = bucket
        self._storage = storage
        self._rows = rows
        self._metadata_keys = metadata_keys
        self._tiered_log = tiered_log
        self._led = led
        self._hold_dir = hold_dir
        self._clock = clock
        self._min_age_s = min_age_s

    async def run(
        self, only: Collection[TopicIdPartition] | None = None, *, deep: bool = False
    ) -> AsyncGenerator[RepairAction, None]:
        """Yield what is to be done, in an order in which it may be done; last what nothing can bring back.

        Args:
            only: these partitions; None plans for everything below the prefix.
            deep: also download every segment and check every batch.

        Raises:
            RemoteStorageError: the store does not answer.
            MetadataError: the metadata store does not answer.
        """
        gaps: dict[TopicIdPartition, list[OffsetRange]] = {}
        filled: dict[TopicIdPartition, list[OffsetRange]] = {}
        async with contextlib.aclosing(self._audit.run(only, deep=deep)) as reports:
            async for report in reports:
                if report.log is not None:
                    gaps[report.log.partition] = list(missing_offsets(report.log))
                    continue
                action = await self._plan(report)
                if action is None:
                    continue
                if action.kind is RepairKind.ADOPT and action.orphan is not None:
                    partition = action.orphan.segment.topic_id_partition
                    offsets = OffsetRange(action.orphan.first_readable_offset, action.orphan.end_offset)
                    filled.setdefault(partition, []).append(offsets)
                yield action
        for partition, missing in gaps.items():
            for offsets in uncovered(missing, filled.get(partition, ())):
                yield plan_gap(partition, offsets)

    async def _plan(self, report: AuditReport) -> RepairAction | None:
        if report.findings[0].kind in _IDENTITY:
            return plan_identity(report.findings[0], is_ours=await self._knows_a_segment())
        if report.partition is not None and report.findings[0].kind in (DISAGREES, STRAY):
            return plan_log_start(report, await self._standing(report))
        if report.partition is None or report.place is None:
            return unknown(report)
        standing = await self._standing(report)
        if report.upload is not None:
            age_s = (self._clock.now_ms() - report.upload.initiated_ms) / 1000
            return plan_upload(report, standing, age_s=age_s, min_age_s=self._min_age_s)
        if report.row is None:
            if standing is Standing.NOT_LED:
                return elsewhere(report)
            return plan_orphan(report, await self._look_into(report, standing), standing, min_age_s=self._min_age_s)
        if standing is not Standing.LED:
            return elsewhere(report)
        if needs_source(report):
            return await self._plan_damaged(report, report.row)
        return plan_row(report)

    async def _standing(self, report: AuditReport) -> Standing:
        assert report.partition is not None, "asked only about partitions"
        if report.partition in self._led:
            return Standing.LED
        if report.place is None:
            row = (await read_partition(self._rows, self._metadata_keys, report.partition)).row
        else:
            _, row = await read_segment(self._rows, self._metadata_keys, report.place.segment)
        if row is None:
            return Standing.UNKNOWN
        return Standing.DELETED if row.is_tombstone else Standing.NOT_LED

    # ------------------------------------------------------------ damage

    async def _plan_damaged(self, report: AuditReport, row: RemoteLogSegmentMetadata) -> RepairAction:
        tiered = await self._tiered_log(row.segment.topic_id_partition)
        wanted = OffsetRange(row.first_readable_offset, row.end_offset)
        is_replaced = not _is_read(tiered, row) and is_covered(tiered, wanted, without=row)
        source, problem = None if is_replaced else await self._source(report, row, tiered), ""
        if source is None:
            problem = "neither this host nor the stored log gives its bytes"
        elif not is_of_lineage(row, tiered.lineage, row.first_readable_offset):
            source, problem = None, "its leader epochs are not those of this log: what is here is another branch"
        return plan_damaged(report, source, problem, is_replaced=is_replaced)

    async def _source(self, report: AuditReport, row: RemoteLogSegmentMetadata, tiered: TieredLog) -> Source | None:
        """The best there is: the broker's own segment; but where that is another one, the stored log goes before it.

        A broker may hold what compaction took out of the tier, records of deleted keys among it. Only aborted
        transactions are not made from a stored log alone.
        """
        local = await asyncio.to_thread(local_source, row, tiered, self._hold_dir)
        if local is not None and (local.is_same_size(row) or not row.txn_index_empty):
            return local
        is_log_whole = LOG in report.objects and all(finding.artefact != LOG for finding in report.findings)
        is_described = MANIFEST in report.objects and all(f.artefact != MANIFEST for f in report.findings)
        is_plain = is_log_whole and report.objects[LOG].size_bytes == row.size_bytes
        return RemoteSource() if is_log_whole and (is_described or is_plain) else local

    # ------------------------------------------------------------ orphans

    async def _look_into(self, report: AuditReport, standing: Standing) -> OrphanFacts:
        assert report.place is not None, "an orphan lies somewhere"
        moments = [info.modified_ms for info in report.objects.values()]
        known = [moment for moment in moments if moment is not None]
        age_s = (self._clock.now_ms() - max(known)) / 1000 if len(known) == len(moments) and known else None
        partition, segment_id = report.place.partition, report.place.segment.id
        objects = PartitionObjects(partition, {str(segment_id): dict(report.objects)})
        is_whole, is_given_up = MANIFEST in report.objects, TOMBSTONE in report.objects
        if is_whole and is_given_up and self._storage.asks_for_proof:
            stored_ms = report.objects[TOMBSTONE].modified_ms
            return OrphanFacts(age_s, tombstone_doubt=await self._tombstone_doubt(objects, stored_ms))
        if not is_whole or is_given_up or standing is not Standing.LED:
            return OrphanFacts(age_s)
        found = await self._bucket.read(objects)
        if not found.segments:
            return OrphanFacts(age_s, problem=next((p.what for p in found.problems), "it went meanwhile"))
        metadata = found.segments[0].metadata
        tiered = await self._tiered_log(partition)
        if segment_id in tiered.view.tombstones:  # an upload that ended after its deletion had
            return OrphanFacts(age_s, metadata, use=OrphanUse.NOTHING)
        use = use_of(metadata, tiered, await self._lineage(metadata, tiered))
        problem = "" if use.is_none else await self._problem(metadata, report)
        return OrphanFacts(age_s, metadata, problem, use)

    async def _tombstone_doubt(self, objects: PartitionObjects, stored_ms: int | None) -> str:
        """Return why the tombstone beside a whole segment is no reason to remove it; empty where it is one.

        Its grace counts from when the object was stored: one of before an undelete may have been put again.

        Args:
            objects: of the segment.
            stored_ms: when the store was given the tombstone; None where it does not tell.
        """
        found = await self._bucket.read(objects)
        if not found.segments:
            return next((problem.what for problem in found.problems), "it went meanwhile")
        try:
            tombstone = await self._storage.read_tombstone(found.segments[0].metadata)
        except (RemoteUnauthenticatedError, RemoteObjectTooLargeError) as error:
            return str(error)
        if tombstone is None:
            return "its tombstone went meanwhile"
        grace_ms = max(0, tombstone.delete_after_ms - tombstone.deleted_at_ms)
        ends_ms = max(tombstone.delete_after_ms, (stored_ms or 0) + grace_ms)
        left_ms = ends_ms - self._clock.now_ms()
        return f"its tombstone keeps it for {left_ms // 1000} s more" if left_ms > 0 else ""

    async def _problem(self, metadata: RemoteLogSegmentMetadata, report: AuditReport) -> str:
        """What is wrong with an orphan's content, every byte looked at; empty when nothing is."""
        finished = replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        findings = await self._check.run(finished, report.objects, None, deep=True)
        return "; ".join(finding.what for finding in findings)

    async def _lineage(self, metadata: RemoteLogSegmentMetadata, tiered: TieredLog) -> Lineage:
        """The log's epochs as the next readable segment knew them: all that were before it."""
        following = next((m for m in tiered.finished if m.start_offset > metadata.end_offset), None)
        if following is None:
            return lineage_behind_tier(metadata, tiered)
        try:
            content = await self._storage.fetch_index(following, IndexType.LEADER_EPOCH)
            known = parse_lineage(content, name=str(following.segment))
        except LogError:
            return tiered.lineage
        except RemoteStorageError as error:
            if error.retriable:
                raise
            return tiered.lineage
        for entry in tiered.lineage.entries:
            if entry.start_offset >= following.start_offset:
                known = known.assign(epoch=entry.epoch, start_offset=entry.start_offset)
        return known

    async def _knows_a_segment(self) -> bool:
        """Whether a segment below the prefix is one of this metadata store: then the prefix is ours."""
        return await self._audit.knows_a_segment()


def _is_read(tiered: TieredLog, row: RemoteLogSegmentMetadata) -> bool:
    """Whether a lookup of one of its epochs leads to the segment."""
    for entry in row.segment_leader_epochs:
        for offset in {entry.start_offset, row.epoch_end(entry.epoch)}:
            found = tiered.view.segment_for(entry.epoch, offset)
            if found is not None and found.segment == row.segment:
                return True
    return False
