"""The listing of the bucket, grouped by partition and segment."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Final

from tierd.metadata import RebuildProblem, RebuildSeverity
from tierd.model import TopicIdPartition, uuid_from_text
from tierd.remote import ObjectInfo, ObjectKeyFactory, ObjectStore, SegmentKey

_PAGE: Final = 1000
_SUFFIXES: Final = (".log", ".indexes", ".manifest", ".tombstone")


@dataclass(slots=True)
class PartitionObjects:
    """Objects of one partition: per segment, by suffix; and that of its log start.

    Attributes:
        segments: by the key without its suffix, so that an object under another key hides none.
    """

    partition: TopicIdPartition
    segments: dict[str, dict[str, ObjectInfo]] = field(default_factory=dict)
    log_start: ObjectInfo | None = None

    def add(self, info: ObjectInfo, key: SegmentKey | None) -> None:
        """Add an object of the partition. ``key`` is None for the object of the log start."""
        if key is None:
            self.log_start = info
            return
        suffix = next(suffix for suffix in _SUFFIXES if info.key.endswith(suffix))
        self.segments.setdefault(info.key.removesuffix(suffix), {})[suffix] = info


async def list_partition_objects(
    store: ObjectStore, keys: ObjectKeyFactory
) -> AsyncGenerator[PartitionObjects | RebuildProblem, None]:
    """Yield partition after partition below the prefix, and a note for every key that is no segment's.

    The listing comes in pages, in the order of its keys, so that a partition's objects are neighbours. The objects of
    topics with long names may lie in two places, and come last.

    Raises:
        RemoteStorageError: the store failed.
    """
    current: PartitionObjects | None = None
    long: dict[TopicIdPartition, PartitionObjects] = {}
    last = ""
    while page := await store.list_objects(keys.root, start_after=last, limit=_PAGE):
        last = page[-1].key
        for info in page:
            parsed = keys.parse(info.key)
            partition = keys.parse_log_start(info.key) if parsed is None else _partition_of(parsed)
            if partition is None:
                if not keys.belongs_to_tier(info.key):
                    yield RebuildProblem(
                        RebuildSeverity.NOTE, "foreign object", info.key, "it is no object of a segment"
                    )
                continue
            if len(keys.forms(partition.topic)) > 1:  # its objects may lie in two places
                long.setdefault(partition, PartitionObjects(partition)).add(info, parsed)
                continue
            if current is None or current.partition != partition:
                if current is not None:
                    yield current
                current = PartitionObjects(partition)
            current.add(info, parsed)
    if current is not None:
        yield current
    for objects in long.values():
        yield objects


def _partition_of(key: SegmentKey) -> TopicIdPartition:
    return TopicIdPartition(uuid_from_text(key.topic_id), key.topic, key.partition)
