"""Facts about one partition of a plan: from its segments in the tier, and the log dirs of the target.

Archived objects of a plan have to be thawed before the restore begins (DESIGN 13, trap 13).
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Final

from tierd.app.restore.log_dir_plan import LogDirPlanRequest
from tierd.app.restore.target_directories import TargetDirectories
from tierd.cost import thaw_offers
from tierd.errors import LogError, RemoteIndexAbsentError, RemoteIntegrityError
from tierd.log import parse_lineage, parse_producer_snapshot
from tierd.metadata import PartitionView
from tierd.model import IndexType, Lineage, RemoteLogSegmentState, TopicIdPartition, TopicPartition, uuid_to_text
from tierd.remote import ArchiveState, ObjectInfo, ObjectKeyFactory, ObjectStore, RemoteStorageManager
from tierd.restore import PartitionPlan, PlanFinding, PlanSeverity, RestoreMode, newest_segment
from tierd.tasks import together

_READ: Final = (".log", ".indexes", ".manifest")
_AT_ONCE: Final = 16
_GIB: Final = 1 << 30


async def newest_lineage(view: PartitionView, storage: RemoteStorageManager) -> Lineage:
    """Return the leader epochs of the newest segment; empty without a segment.

    Raises:
        RemoteStorageError: the store failed, or the object is damaged.
        LogError: the epochs are damaged.
    """
    newest = newest_segment(view)
    if newest is None:
        return Lineage()
    data = await storage.fetch_index(newest, IndexType.LEADER_EPOCH)
    return parse_lineage(data, name=f"{newest.segment} leader epochs")


async def highest_producer_id(view: PartitionView, storage: RemoteStorageManager) -> int:
    """Return the highest producer id that was alive at the end of the tier; -1 without one.

    It is a part of the truth, early: the restore looks at every batch before it restores cluster metadata.

    Raises:
        RemoteStorageError: the store failed.
    """
    finished = [each for each in view.list() if each.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    if not finished:
        return -1
    last = max(finished, key=lambda each: each.end_offset)
    try:
        data = await storage.fetch_index(last, IndexType.PRODUCER_SNAPSHOT)
        producers = parse_producer_snapshot(data, f"{last.segment} producers")
    except (RemoteIndexAbsentError, RemoteIntegrityError, LogError):
        return -1
    return max((each.producer_id for each in producers), default=-1)


def restored_as(
    partition: TopicIdPartition, request: LogDirPlanRequest, directories: TargetDirectories | None
) -> TopicIdPartition:
    """Return name and topic id of the restored directory. ``directories`` is None where no log dir is written."""
    if request.mode is not RestoreMode.IMPORT or directories is None:
        return partition
    renamed = replace(partition, topic=request.as_topic or partition.topic)
    topic_id = request.topic_id or directories.topic_id(renamed.topic_partition)
    return renamed if topic_id is None else replace(renamed, topic_id=topic_id)


def directory_findings(
    partition: TopicIdPartition, request: LogDirPlanRequest, directories: TargetDirectories | None
) -> tuple[PlanFinding, ...]:
    """Return the objections of the log dirs: another has the partition, or an import has no place for it. Blocking."""
    if directories is None:
        return ()
    elsewhere = directories.elsewhere.get(restored_as(partition, request, directories).topic_partition)
    if elsewhere is not None:
        text = f"{elsewhere} has it: a broker does not start with a partition in two log dirs"
        return (PlanFinding(PlanSeverity.LEFT_OUT, text, ""),)
    if request.mode is not RestoreMode.IMPORT:
        return _of_another_topic(partition, directories)
    name = TopicPartition(request.as_topic or partition.topic, partition.partition)
    if request.topic_id is None and directories.topic_id(name) is None:
        text = f"the log dir has no directory {name}, so that the topic id in the new cluster is not known"
        remedy = "create the topic, stop its broker, then restore; or name the id with --topic-id"
        return (PlanFinding(PlanSeverity.LEFT_OUT, text, remedy),)
    if directories.has_records(name):
        text = f"the directory {name} in the log dir has records already"
        return (PlanFinding(PlanSeverity.REFUSED, text, "import into a topic without records"),)
    return ()


def _of_another_topic(partition: TopicIdPartition, directories: TargetDirectories) -> tuple[PlanFinding, ...]:
    """Return an objection if the directory in the log dir is of a topic that was made under the name later."""
    name = partition.topic_partition
    found = directories.topic_id(name)
    if found is None or found == partition.topic_id:
        return ()
    text = (
        f"the directory {name} in the log dir is of topic id {uuid_to_text(found)}, not "
        f"{uuid_to_text(partition.topic_id)}: the topic was deleted and made again"
    )
    remedy = "move the directory away if the new topic's records are not wanted, or restore with mode import"
    return (PlanFinding(PlanSeverity.LEFT_OUT, text, remedy),)


async def archived_objects(plan: PartitionPlan, store: ObjectStore, keys: ObjectKeyFactory) -> tuple[ObjectInfo, ...]:
    """Return the objects that the plan reads and that are archived, or are being thawed, by key.

    Listings tell the storage class. Only an object of a class with archives is asked for itself.

    Raises:
        RemoteStorageError: the store failed, or custom metadata of a segment is of a later tierd.
    """
    wanted: set[str] = set()
    prefixes: set[str] = set()
    for part in plan.parts:
        factory = keys.for_custom_metadata(part.metadata.custom_metadata, plan.partition.topic)
        prefixes.add(factory.partition_prefix(plan.partition))
        wanted |= {factory.segment(part.metadata, suffix) for suffix in _READ}
    listed = [info for prefix in sorted(prefixes) for info in await store.list_objects(prefix)]
    unknown = [info.key for info in listed if info.key in wanted and info.archive is not ArchiveState.READABLE]
    found = await together({f"head {key}": partial(store.head, key) for key in unknown}, at_once=_AT_ONCE)
    return tuple(info for info in found if info.archive is not ArchiveState.READABLE)


def archive_findings(archived: Collection[ObjectInfo]) -> list[PlanFinding]:
    """Return the refusals for archived objects of a plan, one for each storage class, with time and cost."""
    by_class = sorted(archived, key=lambda info: info.storage_class)
    return [_finding(name, list(found)) for name, found in groupby(by_class, key=lambda info: info.storage_class)]


def _finding(storage_class: str, found: list[ObjectInfo]) -> PlanFinding:
    frozen = [info for info in found if info.archive is ArchiveState.ARCHIVED]
    size_bytes = sum(info.size_bytes for info in frozen)
    parts = [f"{len(found)} of its objects are in the storage class {storage_class}, and cannot be read until thawed"]
    if frozen:
        offers = " or ".join(_offers(storage_class, objects=len(frozen), size_bytes=size_bytes))
        parts.append(f"to thaw {len(frozen)} of them, {size_bytes / _GIB:.2f} GiB, takes {offers or 'an unknown time'}")
    if len(frozen) < len(found):
        parts.append(f"{len(found) - len(frozen)} are being thawed")
    remedy = "thaw them as docs/restore.md says; --json lists them under archived; then run the same command again"
    return PlanFinding(PlanSeverity.REFUSED, "; ".join(parts), remedy)


def _offers(storage_class: str, *, objects: int, size_bytes: int) -> Iterable[str]:
    for offer in thaw_offers(storage_class):
        cost = offer.cost(objects=objects, size_bytes=size_bytes)
        yield f"{offer.hours} hours and about {cost:.2f} USD ({offer.tier})"
