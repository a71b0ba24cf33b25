"""The bucket as segments, in the order of their keys, from one page of its listing at a time."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from tierd.errors import RemoteResourceNotFoundError
from tierd.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, uuid_from_text, uuid_to_text
from tierd.remote import ObjectInfo, ObjectKeyFactory, ObjectStore, SegmentKey

LOG, INDEXES, MANIFEST, TOMBSTONE = ".log", ".indexes", ".manifest", ".tombstone"
OBJECT_SUFFIXES: Final = (LOG, INDEXES, MANIFEST)
ALL_SUFFIXES: Final = (*OBJECT_SUFFIXES, TOMBSTONE)

_PAGE: Final = 1000

Objects: TypeAlias = Mapping[str, ObjectInfo]
"""The objects of one segment, by suffix."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentPlace:
    """Parts of the keys of a segment's objects. Ordered as the keys are, within a partition."""

    start_offset: int
    name: str
    segment: RemoteLogSegmentId

    @classmethod
    def of(cls, segment: RemoteLogSegmentId, start_offset: int) -> "SegmentPlace":
        """Return the place of a segment."""
        return cls(start_offset, uuid_to_text(segment.id), segment)

    @classmethod
    def of_row(cls, row: RemoteLogSegmentMetadata) -> "SegmentPlace":
        """Return the place of a segment that has a row."""
        return cls.of(row.segment, row.start_offset)

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition of the segment."""
        return self.segment.topic_id_partition

    def is_of(self, row: RemoteLogSegmentMetadata, keys: ObjectKeyFactory) -> bool:
        """Return whether this is where the objects of ``row`` lie, below the prefix and in the form of ``keys``.

        Raises:
            RemoteFormatError: a later tierd wrote the row.
        """
        topic = row.segment.topic_id_partition.topic
        return self == SegmentPlace.of_row(row) and keys.for_custom_metadata(row.custom_metadata, topic) == keys

    def key(self, keys: ObjectKeyFactory, suffix: str) -> str:
        """Return the key of one of the segment's objects."""
        return f"{keys.partition_prefix(self.partition)}{self.start_offset:020d}-{self.name}{suffix}"


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """Neighbouring objects of one segment."""

    place: SegmentPlace
    objects: Objects


async def stored_segments(
    store: ObjectStore, keys: ObjectKeyFactory, prefix: str, other_form: Callable[[ObjectKeyFactory], None]
) -> AsyncGenerator[StoredSegment | ObjectInfo, None]:
    """Yield what lies below ``prefix``, ascending: segments, and objects that are no segment's as they are.

    Memory holds one page and one segment, however many there are.

    Args:
        store: the objects.
        keys: the keys in the wanted form; other objects come with the form that tierd writes now.
        prefix: the prefix of the keys.
        other_form: is called with the form of a segment's key that is left out, for it is not that of ``keys``.

    Raises:
        RemoteStorageError: the store failed.
    """
    current: SegmentPlace | None = None
    objects: dict[str, ObjectInfo] = {}
    last = ""
    while page := await store.list_objects(prefix, start_after=last, limit=_PAGE):
        last = page[-1].key
        for info in page:
            parsed = keys.parse(info.key)
            if _is_left_out(keys, parsed, other_form):
                continue
            place = place_of(parsed)
            if current is not None and place != current:
                yield StoredSegment(current, objects)
                objects = {}
            current = place
            if place is None:
                yield info
            else:
                objects[info.key[info.key.rindex(".") :]] = info
    if current is not None:
        yield StoredSegment(current, objects)


def _is_left_out(
    keys: ObjectKeyFactory, parsed: SegmentKey | None, other_form: Callable[[ObjectKeyFactory], None]
) -> bool:
    if parsed is None:
        return keys.spells_out
    form = keys.form_of(parsed)
    if form == keys:
        return False
    other_form(form)
    return True


async def stored_objects(store: ObjectStore, keys: ObjectKeyFactory, place: SegmentPlace) -> Objects:
    """Ask the store for each object of a segment by its key: a listing may be out of date.

    Raises:
        RemoteStorageError: the store failed.
    """
    found = {}
    for suffix in ALL_SUFFIXES:
        try:
            found[suffix] = await store.head(place.key(keys, suffix))
        except RemoteResourceNotFoundError:
            continue
    return found


def place_of(key: SegmentKey | None) -> SegmentPlace | None:
    """Return the place that a parsed key names; None without a key."""
    if key is None:
        return None
    partition = TopicIdPartition(uuid_from_text(key.topic_id), key.topic, key.partition)
    return SegmentPlace.of(RemoteLogSegmentId(partition, key.segment_id), key.start_offset)
