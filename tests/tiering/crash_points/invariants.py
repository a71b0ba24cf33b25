"""Invariants of the tier, at the moment of a death and when all work has come to rest."""

from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from tests.tiering.crash_points.world import (
    CLUSTER_ID,
    RECORDS_PER_SEGMENT,
    SEGMENTS,
    Process,
    World,
)
from tierd.log import identify_directory, scan_partition
from tierd.metadata import (
    KeyValueStore,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    PartitionView,
    differences,
    read_partition,
)
from tierd.model import IsolationLevel, RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, uuid_to_text
from tierd.remote import LogStartStorage, ObjectKeyFactory, ObjectStore, SegmentStorage
from tierd.remote.backends.files import FilesystemObjectStore
from tierd.tiering import (
    AuditLimits,
    FetchTask,
    MetadataRebuild,
    SilentRecorder,
    StoredTier,
    TierAudit,
    TieredLog,
    read_ledger,
)

KEYS = MetadataKeyFactory(CLUSTER_ID)
OBJECT_KEYS = ObjectKeyFactory("", CLUSTER_ID)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
HIGH_WATERMARK = (SEGMENTS + 1) * RECORDS_PER_SEGMENT
OBJECTS = {".indexes", ".log", ".manifest"}


async def view_of(world: World, store: KeyValueStore) -> PartitionView:
    """Return the metadata of the partition as any process would read it."""
    return await read_partition(store, KEYS, world.partition)


async def objects_of(world: World) -> dict[UUID, set[str]]:
    """Return the suffixes of the objects of each segment in the bucket."""
    storage = SegmentStorage(FilesystemObjectStore(world.bucket), cluster_id=CLUSTER_ID, broker_id=0)
    listed = await storage.list_segment_objects(world.partition)
    return {segment: {Path(info.key).suffix for info in found} for segment, found in listed.items()}


async def recorded_log_start(world: World) -> int:
    """Return the log start in the bucket, 0 without a record."""
    stored = await LogStartStorage(FilesystemObjectStore(world.bucket), OBJECT_KEYS).read(world.partition)
    if stored is None:
        return 0
    assert stored.record is not None, stored.damage
    return stored.record.log_start_offset


async def check_at_death(world: World, store: KeyValueStore) -> frozenset[UUID]:
    """Check the leftovers of a dead process for states that must not be seen at any moment; return every id."""
    view, objects = await view_of(world, store), await objects_of(world)
    start = view.log_start_offset or 0
    for metadata in view.list():
        assert metadata.end_offset < HIGH_WATERMARK, "I4: a segment that is not committed"
        if metadata.state is FINISHED:
            assert objects.get(metadata.segment.id) == OBJECTS, f"I1: readable, with {objects.get(metadata.segment.id)}"
        elif metadata.soft_delete is not None and metadata.soft_delete.reason == "retention_time":
            assert metadata.end_offset < start, f"deleted from {metadata.start_offset} on, log start {start}"
    _check_highest(view)
    readable = sorted((m for m in view.list() if m.state is FINISHED), key=lambda m: m.start_offset)
    assert all(a.end_offset < b.start_offset for a, b in pairwise(readable)), "both an output and its inputs"
    orphans = objects.keys() - view.segments.keys()
    assert not orphans, f"objects without a row: {sorted(map(uuid_to_text, orphans))}"
    assert start in range(0, SEGMENTS * RECORDS_PER_SEGMENT, RECORDS_PER_SEGMENT)
    assert start <= (SEGMENTS - 1) * RECORDS_PER_SEGMENT, "the log start is above all offsets that may be deleted"
    assert await recorded_log_start(world) <= start, "a rebuild would hide readable records"
    await _check_readable(world, view)
    return frozenset(view.segments)


async def stored_ids(world: World) -> frozenset[UUID]:
    """Return the ids of all segments with an object in the bucket."""
    return frozenset(await objects_of(world))


async def check_rebuild_at_death(world: World) -> None:
    """Check that a rebuild from the bucket at that moment reads like the log, at any progress of the operation."""
    rebuilt_rows = MemoryKeyValueStore()
    await _rebuild(FilesystemObjectStore(world.bucket), rebuilt_rows).run()
    rebuilt = await view_of(world, rebuilt_rows)
    assert {m.start_offset for m in rebuilt.list() if m.state is FINISHED} >= {0}, "nothing begins at the log start"
    await _check_readable(world, rebuilt)


async def check_tombstones(world: World, store: KeyValueStore) -> None:
    """Check that every segment in its grace has a tombstone, and no other segment has one."""
    view, objects = await view_of(world, store), await objects_of(world)
    marked = {segment for segment, suffixes in objects.items() if ".tombstone" in suffixes}
    in_grace = {m.segment.id for m in view.list() if m.state is DELETING and m.soft_delete is not None}
    assert marked == in_grace, f"{len(marked)} tombstones, {len(in_grace)} segments in their grace"


async def is_at_rest(process: Process) -> bool:
    """Return True if no work is left of copies, deletions and uploads."""
    view = await view_of(process.world, process.store)
    is_settled = all(m.state is FINISHED for m in view.list())
    is_settled = is_settled and view.row is not None and view.row.is_log_start_recorded
    if view.delete_state is not None:
        is_settled = len(await process.store.scan(KEYS.partition_prefix(view.partition))) == 1
    return is_settled and not await process.storage.list_unfinished_uploads()


async def check_at_rest(
    process: Process, ids: frozenset[UUID], readable: Sequence[int], stored: frozenset[UUID]
) -> None:
    """Check the tier against the source, the bucket against the rows, and the ledger against both.

    ``stored``: those of ``ids`` that had an object at the time of the check.
    """
    world = process.world
    view, objects = await view_of(world, process.store), await objects_of(world)
    rows = sorted(view.list(), key=lambda m: m.start_offset)
    assert [(m.start_offset, m.state) for m in rows] == [(start, FINISHED) for start in readable], (
        "a dangling or missing row"
    )
    assert ids <= view.segments.keys() | view.tombstones.keys() or not readable, "I5: an id without a row or an end"
    assert objects == dict.fromkeys(view.segments, OBJECTS), "orphans, or objects that are missing"
    assert await process.storage.list_unfinished_uploads() == []
    _check_ledger(world, ids, rows, stored)
    if not readable:
        assert view.row is not None
        assert view.row.is_tombstone
        assert len(await process.store.scan(KEYS.partition_prefix(world.partition))) == 1
        assert await process.objects.list_objects(OBJECT_KEYS.partition_prefix(world.partition)) == []
        return
    _check_highest(view)
    assert view.log_start_offset == await recorded_log_start(world) == readable[0]
    await _check_readable(world, view)
    await _check_audit(process)
    await _check_rebuild(process, view)


def _check_highest(view: PartitionView) -> None:
    ends = [m.end_offset for m in (*view.list(), *view.tombstones.values()) if m.state is not _STARTED]
    for epoch in view.epochs:
        highest = view.highest_offset_for_epoch(epoch)
        assert highest is None or highest in ends, f"I2: epoch {epoch} reaches {highest}, the segments {ends}"


_STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED


def _check_ledger(
    world: World, ids: frozenset[UUID], rows: Sequence[RemoteLogSegmentMetadata], stored: frozenset[UUID]
) -> None:
    """Check that the last line of a removed segment is its removal, and that of an existing one, if any, its undelete.

    An attempt that put no object needs no line when it goes.
    """
    lines = [entry for broker_id in (1, 2) for entry in read_ledger(world.state_dir(broker_id))]
    last = {entry.segment_id: entry.step for entry in sorted(lines, key=lambda entry: entry.time_ms)}
    present = {row.segment.id for row in rows}
    for segment_id in ids:
        step = last.get(uuid_to_text(segment_id))
        wanted = {None, "undeleted"} if segment_id in present else {"deleted"}
        if segment_id not in stored:
            wanted |= {None}
        assert step in wanted, f"the ledger says {step} of {uuid_to_text(segment_id)}"


async def _check_readable(world: World, view: PartitionView) -> None:
    """Check that every record read from the tier alone is that of the source."""
    if not any(m.state is FINISHED for m in view.list()):
        return
    end = TieredLog(view.partition, view, None, None).remote_end_offset
    log = TieredLog(view.partition, view, None, end)
    storage = SegmentStorage(FilesystemObjectStore(world.bucket), cluster_id=CLUSTER_ID, broker_id=0)

    async def look() -> TieredLog:
        return log

    task = FetchTask(look, remote=storage, recorder=SilentRecorder(), prefetch_bytes=1 << 16)
    read = [(r.offset, r.value) async for r in task.records(None, None, IsolationLevel.READ_UNCOMMITTED)]
    first = log.log_start_offset
    wanted = [(offset, f"{offset // RECORDS_PER_SEGMENT} {offset}".encode()) for offset in range(first, end)]
    assert read == wanted, "the tier does not read as the log did"


async def _check_audit(process: Process) -> None:
    """Check that ``tierd verify --deep`` has no finding."""

    async def tiered_log(partition: TopicIdPartition) -> TieredLog:
        directory = identify_directory(process.world.path(process.broker_id))
        assert directory is not None
        view = await view_of(process.world, process.store)
        return TieredLog(partition, view, scan_partition(directory), HIGH_WATERMARK)

    async def none_retained() -> Collection[UUID]:
        return ()

    audit = TierAudit(
        StoredTier(
            objects=process.objects,
            segments=process.storage,
            object_keys=OBJECT_KEYS,
            rows=process.store,
            row_keys=KEYS,
        ),
        tiered_log=tiered_log,
        clock=process.clock,
        limits=AuditLimits(grace_s=0, attempt_timeout_s=0),
        retained=none_retained,
    )
    assert [report.findings async for report in audit.run(deep=True)] == []


async def _check_rebuild(process: Process, view: PartitionView) -> None:
    """Check that a rebuild from the bucket alone gives the same metadata."""
    rebuilt_rows = MemoryKeyValueStore()
    report = await _rebuild(process.objects, rebuilt_rows).run()
    assert report.problems == []
    rebuilt = await view_of(process.world, rebuilt_rows)
    assert differences(view, rebuilt) == []
    assert (rebuilt.log_start_offset or 0) == view.log_start_offset
    for metadata in rebuilt.list():
        for offset in range(metadata.start_offset, metadata.end_offset + 1):
            assert _found(rebuilt, offset) == _found(view, offset)


def _rebuild(objects: ObjectStore, rows: KeyValueStore) -> MetadataRebuild:
    return MetadataRebuild(
        StoredTier(
            objects=objects,
            segments=SegmentStorage(objects, cluster_id=CLUSTER_ID, broker_id=0),
            object_keys=OBJECT_KEYS,
            rows=rows,
            row_keys=KEYS,
        ),
        session_id=UUID(int=1),
        grace_ends_ms=0,
        on_progress=lambda _: None,
    )


def _found(view: PartitionView, offset: int) -> UUID | None:
    metadata = view.segment_for(0, offset)
    return None if metadata is None else metadata.segment.id
