"""Facts about one partition of a plan: from its newest segments in the tier, and from the log dirs of the target."""

from dataclasses import replace

from tierd.app.restore.log_dir_plan import LogDirPlanRequest
from tierd.app.restore.target_directories import TargetDirectories
from tierd.errors import LogError, RemoteIndexAbsentError, RemoteIntegrityError
from tierd.log import parse_lineage, parse_producer_snapshot
from tierd.metadata import PartitionView
from tierd.model import IndexType, Lineage, RemoteLogSegmentState, TopicIdPartition, TopicPartition, uuid_to_text
from tierd.remote import RemoteStorageManager
from tierd.restore import PlanFinding, PlanSeverity, RestoreMode, newest_segment


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
