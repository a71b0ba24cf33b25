"""The change feed of a partition: the differences between one revision that was seen and the next.

Nothing is pushed: the partition's row is read now and then, one small value, and the partition only when its revision
has moved. Several steps of one segment between two reads show as one change; no state that lasts is missed.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from uuid import UUID

from tierd.clock import Clock
from tierd.errors import BackendUnavailableError
from tierd.metadata.kv import KeyValueStore
from tierd.metadata.rows import MetadataKeyFactory
from tierd.metadata.stored.stored_partitions import read_partition, read_row
from tierd.metadata.views import PartitionView
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition


@dataclass(frozen=True, slots=True)
class SegmentChange:
    """Change of one segment, seen at ``revision``.

    Attributes:
        revision: of the partition, when the change was seen.
        before: as it was seen last; None when it is new.
        after: as it is; DELETE_SEGMENT_FINISHED once its objects are gone. None when even that is forgotten.
    """

    revision: int
    before: RemoteLogSegmentMetadata | None
    after: RemoteLogSegmentMetadata | None


def changes_between(before: PartitionView, after: PartitionView) -> list[SegmentChange]:
    """Return the changes of segments, by start offset; a tombstone that expired is no change."""
    old = {**before.segments, **before.tombstones}
    new = {**after.segments, **after.tombstones}
    found: list[SegmentChange] = []
    for segment_id in old.keys() | new.keys():
        was, now = old.get(segment_id), new.get(segment_id)
        if was != now and not _is_gone_either_way(was, now):
            found.append(SegmentChange(after.revision, was, now))
    return sorted(found, key=_position)


async def changes(
    store: KeyValueStore,
    keys: MetadataKeyFactory,
    partition: TopicIdPartition,
    *,
    clock: Clock,
    interval_s: float = 1.0,
    patience_s: float = 60.0,
) -> AsyncGenerator[SegmentChange, None]:
    """Yield every segment that there is, as new, by start offset; then every change, until the partition is deleted.

    Nothing is missed between the two parts. Ends when the deletion of the partition is finished, otherwise never.

    Args:
        store: the store of the metadata; it is only read.
        keys: of the cluster.
        partition: owner of the segments; one without metadata is waited for.
        clock: the clock to sleep on.
        interval_s: between two reads.
        patience_s: how long the store may be away before that is an error.

    Raises:
        BackendUnavailableError: the store has not answered for ``patience_s``.
        MetadataDecodeError: a row that cannot be understood.
    """
    seen = PartitionView(partition)
    answered_s = clock.monotonic_s()
    while True:
        try:
            view = await _next_view(store, keys, seen)
            answered_s = clock.monotonic_s()
        except BackendUnavailableError:
            if clock.monotonic_s() - answered_s >= patience_s:
                raise
        else:
            for change in changes_between(seen, view):
                yield change
            if view.row is not None and view.row.is_tombstone:
                return
            seen = view
        await clock.sleep(interval_s)


async def _next_view(store: KeyValueStore, keys: MetadataKeyFactory, seen: PartitionView) -> PartitionView:
    row = await read_row(store, keys, seen.partition)
    if row is None or row == seen.row:
        return seen
    return await read_partition(store, keys, seen.partition)


def _is_gone_either_way(was: RemoteLogSegmentMetadata | None, now: RemoteLogSegmentMetadata | None) -> bool:
    gone = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    return (was is None or was.state is gone) and (now is None or now.state is gone)


def _position(change: SegmentChange) -> tuple[int, UUID]:
    metadata = change.after or change.before
    assert metadata is not None
    return metadata.start_offset, metadata.segment.id
