"""Archived objects of a plan: found by listings and descriptions, refused with time and cost until they are thawed."""

from dataclasses import replace

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import PARTITION, segment
from tierd.app.restore.partition_facts import archive_findings, archived_objects
from tierd.model import Lineage, RemoteLogSegmentMetadata
from tierd.remote import ArchiveState, ObjectInfo, ObjectKeyFactory
from tierd.restore import PartitionPlan, PlanSeverity, RestoreMode
from tierd.restore.plan.partition_plan import SegmentPart

KEYS = ObjectKeyFactory("tier", "cluster")
FIRST, SECOND, THIRD = (segment(start, start + 9) for start in (0, 10, 20))


class ArchivingStore(MemoryObjectStore):
    """Store that tells states of objects: a listing tells that an object may be archived, ``head`` tells the state."""

    def __init__(self, states: dict[str, ArchiveState]) -> None:
        super().__init__()
        self.states = states
        self.described: list[str] = []

    async def head(self, key: str) -> ObjectInfo:
        self.described.append(key)
        info = await super().head(key)
        state = self.states.get(key, ArchiveState.READABLE)
        return replace(info, storage_class="DEEP_ARCHIVE", archive=state)

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        found = await super().list_objects(prefix, start_after=start_after, limit=limit)
        return [replace(each, archive=ArchiveState.UNKNOWN) if each.key in self.states else each for each in found]


def plan_of(*parts: RemoteLogSegmentMetadata) -> PartitionPlan:
    return PartitionPlan(
        partition=PARTITION,
        mode=RestoreMode.LAST_COPY,
        log_start_offset=0,
        end_offset=30,
        target_offset=None,
        parts=tuple(SegmentPart(each, each.start_offset, each.end_offset + 1) for each in parts),
        lineage=Lineage(),
        is_compacted=False,
        missing=(),
        newest_timestamp_ms=None,
        findings=(),
        fetch_bytes=0,
        fetch_requests=0,
    )


async def filled(states: dict[str, ArchiveState]) -> ArchivingStore:
    store = ArchivingStore(states)
    for each in (FIRST, SECOND, THIRD):
        for suffix in (".log", ".indexes", ".manifest"):
            await store.put(KEYS.segment(each, suffix), b"content")
    return store


def log_of(metadata: RemoteLogSegmentMetadata) -> str:
    return KEYS.segment(metadata, ".log")


async def test_objects_that_the_plan_reads_are_found() -> None:
    store = await filled(
        {
            log_of(FIRST): ArchiveState.ARCHIVED,
            KEYS.segment(SECOND, ".manifest"): ArchiveState.THAWING,
            log_of(SECOND): ArchiveState.READABLE,
            log_of(THIRD): ArchiveState.ARCHIVED,
        }
    )
    found = await archived_objects(plan_of(FIRST, SECOND), store, KEYS)
    assert {info.key: info.archive for info in found} == {
        log_of(FIRST): ArchiveState.ARCHIVED,
        KEYS.segment(SECOND, ".manifest"): ArchiveState.THAWING,
    }
    assert log_of(THIRD) not in store.described


async def test_store_without_archived_objects_is_asked_for_none_of_them() -> None:
    store = await filled({})
    assert await archived_objects(plan_of(FIRST, SECOND, THIRD), store, KEYS) == ()
    assert store.described == []


async def test_segment_under_an_earlier_prefix_is_looked_for_there() -> None:
    earlier = ObjectKeyFactory("old", "cluster")
    moved = replace(FIRST, custom_metadata=earlier.custom_metadata(PARTITION.topic))
    key = earlier.segment(moved, ".log")
    store = ArchivingStore({key: ArchiveState.ARCHIVED})
    await store.put(key, b"content")
    assert [info.key for info in await archived_objects(plan_of(moved), store, KEYS)] == [key]


def test_archived_objects_refuse_the_plan_with_time_and_cost() -> None:
    size = 512 << 30
    archived = [
        ObjectInfo("a", size, None, None, "DEEP_ARCHIVE", ArchiveState.ARCHIVED),
        ObjectInfo("b", size, None, None, "DEEP_ARCHIVE", ArchiveState.ARCHIVED),
        ObjectInfo("c", size, None, None, "DEEP_ARCHIVE", ArchiveState.THAWING),
        ObjectInfo("d", 1, None, None, "ICE", ArchiveState.ARCHIVED),
    ]
    deep, other = archive_findings(archived)
    assert (deep.severity, other.severity) == (PlanSeverity.REFUSED, PlanSeverity.REFUSED)
    assert deep.text == (
        "3 of its objects are in the storage class DEEP_ARCHIVE, and cannot be read until thawed; to thaw 2 of them, "
        "1024.00 GiB, takes 12 hours and about 20.48 USD (Standard) or 48 hours and about 2.56 USD (Bulk); "
        "1 are being thawed"
    )
    assert "an unknown time" in other.text
    assert archive_findings([]) == []
