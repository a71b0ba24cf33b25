"""OrphanInspector: reads the objects of segments that have no row, before a repair adopts or removes them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from tierd.clock import Clock
from tierd.errors import LogError, RemoteObjectTooLargeError, RemoteStorageError, RemoteUnauthenticatedError
from tierd.log import parse_lineage
from tierd.model import IndexType, Lineage, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.remote import SegmentStorage
from tierd.tiering.auditing.orphans import OrphanUse, lineage_behind_tier, use_of
from tierd.tiering.auditing.repair_plan import OrphanFacts, Standing
from tierd.tiering.auditing.segment_check import SegmentCheck
from tierd.tiering.auditing.side_by_side import AuditReport
from tierd.tiering.auditing.stored_segments import MANIFEST, TOMBSTONE
from tierd.tiering.reading.tiered_log import TieredLog
from tierd.tiering.rebuilding.bucket import BucketReader
from tierd.tiering.rebuilding.partition_objects import PartitionObjects
from tierd.tiering.removing.last_copy import is_last_copy


class OrphanInspector:
    """Reader of orphans. It writes nothing.

    Args:
        check: checks the content of a segment.
        bucket: reads manifests.
        segments: the segments of the tier, read without a cache.
        tiered_log: reads the tier and the local log of a partition anew.
        clock: time.
    """

    def __init__(
        self,
        *,
        check: SegmentCheck,
        bucket: BucketReader,
        segments: SegmentStorage,
        tiered_log: Callable[[TopicIdPartition], Awaitable[TieredLog]],
        clock: Clock,
    ) -> None:
        self._check = check
        self._bucket = bucket
        self._storage = segments
        self._tiered_log = tiered_log
        self._clock = clock

    async def inspect(self, report: AuditReport, standing: Standing) -> OrphanFacts:
        """Return the facts of the orphan that ``report`` names.

        Raises:
            RemoteStorageError: the store does not answer.
            MetadataError: the metadata store does not answer.
        """
        assert report.place is not None, "an orphan lies somewhere"
        moments = [info.modified_ms for info in report.objects.values()]
        known = [moment for moment in moments if moment is not None]
        age_s = (self._clock.now_ms() - max(known)) / 1000 if len(known) == len(moments) and known else None
        partition, segment_id = report.place.partition, report.place.segment.id
        objects = PartitionObjects(partition, {str(segment_id): dict(report.objects)})
        is_whole, has_tombstone = MANIFEST in report.objects, TOMBSTONE in report.objects
        if is_whole and has_tombstone and self._storage.asks_for_proof:
            stored_ms = report.objects[TOMBSTONE].modified_ms
            return OrphanFacts(age_s, tombstone_doubt=await self._tombstone_doubt(objects, stored_ms))
        if not is_whole or has_tombstone or standing is not Standing.LED:
            return OrphanFacts(age_s)
        found = await self._bucket.read(objects)
        if not found.segments:
            return OrphanFacts(age_s, problem=next((p.what for p in found.problems), "it went meanwhile"))
        metadata = found.segments[0].metadata
        tiered = await self._tiered_log(partition)
        if segment_id in tiered.view.tombstones:  # an upload that ended after its deletion had
            return OrphanFacts(age_s, metadata, use=OrphanUse.NOTHING)
        use = use_of(metadata, tiered, await self._lineage(metadata, tiered))
        if use is OrphanUse.NOTHING and await is_last_copy(metadata, tiered.view, self._storage.objects_present):
            use = OrphanUse.LAST_COPY
        problem = "" if use is OrphanUse.NOTHING else await self._problem(metadata, report)
        return OrphanFacts(age_s, metadata, problem, use)

    async def _tombstone_doubt(self, objects: PartitionObjects, stored_ms: int | None) -> str:
        """Return why the tombstone beside a whole segment is no reason to remove the segment; empty where it is one.

        The grace counts from when the tombstone was stored: a tombstone of before an undelete may have been put again.

        Args:
            objects: the objects of the segment.
            stored_ms: when the store was given the tombstone; None where the store does not tell.
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
        """Return the faults of an orphan's content after a check of every byte; empty without a fault."""
        finished = replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)
        findings = await self._check.run(finished, report.objects, None, deep=True)
        return "; ".join(finding.what for finding in findings)

    async def _lineage(self, metadata: RemoteLogSegmentMetadata, tiered: TieredLog) -> Lineage:
        """Return the log's epochs: those before the next readable segment as that segment knew them, then its own.

        A segment keeps epochs that the log has forgotten. Without a readable list of epochs the log's lineage is used.
        """
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
