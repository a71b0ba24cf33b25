"""RepairPlanner: runs an audit and plans an action for each finding. It only reads."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from tierd.clock import Clock
from tierd.metadata import read_partition, read_segment
from tierd.model import (
    OffsetRange,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from tierd.tiering.auditing.log_start_check import DISAGREES, STRAY
from tierd.tiering.auditing.orphan_inspector import OrphanInspector
from tierd.tiering.auditing.orphans import (
    is_covered,
    is_of_lineage,
    uncovered,
)
from tierd.tiering.auditing.recopy import RecopySource, RemoteSource, local_source
from tierd.tiering.auditing.repair_plan import (
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
from tierd.tiering.auditing.side_by_side import AuditReport
from tierd.tiering.auditing.stored_segments import LOG, MANIFEST
from tierd.tiering.auditing.tier_audit import TierAudit
from tierd.tiering.auditing.tier_findings import missing_offsets
from tierd.tiering.reading.tiered_log import TieredLog
from tierd.tiering.stored_tier import StoredTier

LEAST_AGE_S: Final = 3600.0
"""Age below which objects without a row are left alone, unless the operator sets another one."""

_IDENTITY: Final = frozenset({"missing-tier-identity", "foreign-tier", "damaged-tier-identity"})


class RepairPlanner:
    """Planner of the repair of a tier.

    Args:
        audit: finds the faults.
        orphans: reads segments without a row.
        tier: the tier in its two stores.
        tiered_log: reads the tier and the local log of a partition anew.
        led: the partitions that this broker leads.
        hold_dir: the directory of held segments.
        clock: time.
        min_age_s: age below which objects without a row are left alone.
    """

    def __init__(
        self,
        *,
        audit: TierAudit,
        orphans: OrphanInspector,
        tier: StoredTier,
        tiered_log: Callable[[TopicIdPartition], Awaitable[TieredLog]],
        led: Collection[TopicIdPartition] | Mapping[TopicIdPartition, int],
        hold_dir: Path,
        clock: Clock,
        min_age_s: float,
    ) -> None:
        self._audit = audit
        self._orphans = orphans
        self._rows = tier.rows
        self._metadata_keys = tier.row_keys
        self._tiered_log = tiered_log
        self._led = led
        self._hold_dir = hold_dir
        self._clock = clock
        self._min_age_s = min_age_s

    async def run(
        self, only: Collection[TopicIdPartition] | None = None, *, deep: bool = False
    ) -> AsyncGenerator[RepairAction, None]:
        """Yield the actions of the repair in an order in which they may be done; gaps that stay come last.

        Args:
            only: these partitions; None plans for everything below the prefix.
            deep: download every segment, and check every batch.

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
            return plan_identity(report.findings[0], is_ours=await self._audit.knows_a_segment())
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
            return plan_orphan(
                report, await self._orphans.inspect(report, standing), standing, min_age_s=self._min_age_s
            )
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

    async def _source(
        self, report: AuditReport, row: RemoteLogSegmentMetadata, tiered: TieredLog
    ) -> RecopySource | None:
        """Return the best source of a segment's bytes, None where there is none.

        The local segment comes first if it has the same size, or if the segment has aborted transactions, which cannot
        be listed from a stored log alone. Otherwise a whole stored log comes first: a local segment may have records
        that compaction took out of the tier, also records of deleted keys.
        """
        local = await asyncio.to_thread(local_source, row, tiered, self._hold_dir)
        if local is not None and (local.is_same_size(row) or not row.txn_index_empty):
            return local
        is_log_whole = LOG in report.objects and all(finding.artefact != LOG for finding in report.findings)
        is_described = MANIFEST in report.objects and all(f.artefact != MANIFEST for f in report.findings)
        is_plain = is_log_whole and report.objects[LOG].size_bytes == row.size_bytes
        return RemoteSource() if is_log_whole and (is_described or is_plain) else local


def _is_read(tiered: TieredLog, row: RemoteLogSegmentMetadata) -> bool:
    """Return whether a lookup of one of the row's epochs leads to its segment."""
    for entry in row.segment_leader_epochs:
        for offset in {entry.start_offset, row.epoch_end(entry.epoch)}:
            found = tiered.view.segment_for(entry.epoch, offset)
            if found is not None and found.segment == row.segment:
                return True
    return False
