"""Random histories of a partition, led through its manager, as any store may hold them."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.fakes.remote_segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, SESSION, segment, step
from tierd.metadata import KeyValueStore, RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, SoftDelete, TopicIdPartition

Copied = tuple[int, int, int, int]
"""How many offsets a copy goes back, how many it has, whether an epoch begins in it, and how far it comes.

From 0 on: begun, begun, finished, being deleted, deleted, and replaced by an output of its own if readers find it.
"""
_REPLACED = 5

histories = st.lists(
    st.tuples(st.integers(0, 6), st.integers(1, 12), st.integers(0, 2), st.integers(0, _REPLACED)), max_size=12
)


async def lead(
    store: KeyValueStore,
    partition: TopicIdPartition,
    history: list[Copied],
    *,
    on_step: Callable[[RemoteLogSegmentMetadata, int], Awaitable[None]] | None = None,
) -> RemoteLogMetadataManager:
    """Play a history: each copy begins, and may be finished, begin to be deleted, be deleted, in this order."""
    manager = RemoteLogMetadataManager(store, cluster_id="cluster", broker_id=1, session_id=SESSION, clock=FakeClock())
    epoch, end = 0, 0
    await manager.become_leader(partition, 5)
    for number, (back, length, rolls, reached) in enumerate(history):
        start = max(0, end - back)
        epochs = {epoch: start}
        if rolls and length > 1 and start + 1 >= end:
            epoch += 1
            epochs[epoch] = start + 1
        metadata = segment(
            start,
            start + length - 1,
            epochs,
            partition=partition,
            segment_id=UUID(int=partition.partition * 1000 + number + 1),
            custom_metadata=b"\x01tier",
        )
        end = max(end, metadata.end_offset + 1)
        await manager.add(metadata)
        states = (
            [FINISHED] if reached == _REPLACED else [FINISHED, DELETE_STARTED, DELETE_FINISHED][: max(0, reached - 1)]
        )
        for state in states:
            await manager.update(step(metadata, state, custom_metadata=b"\x01tier"))
        if reached == _REPLACED and manager.view(partition).is_readable(metadata):
            await _replace(manager, metadata)
        if on_step is not None:
            await on_step(metadata, reached)
    return manager


async def _replace(manager: RemoteLogMetadataManager, metadata: RemoteLogSegmentMetadata) -> None:
    row = manager.view(metadata.segment.topic_id_partition).segments[metadata.segment.id]
    output = replace(
        metadata,
        segment=replace(metadata.segment, id=UUID(int=metadata.segment.id.int + 500)),
        event_timestamp_ms=row.event_timestamp_ms + 1,
    )
    await manager.begin_outputs([output])
    await manager.replace_segments(
        replace(output, state=FINISHED, size_bytes=1),
        [row],
        soft_delete=SoftDelete.replaced(delete_after_ms=row.event_timestamp_ms + 2),
        compacted_to=row.end_offset + 1,
    )
