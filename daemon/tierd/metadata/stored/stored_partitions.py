"""Reading metadata without owning it: followers and commands. Every answer comes from one snapshot of the store."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from tierd.metadata.kv import KeyValueStore
from tierd.metadata.rows import Claim, MetadataKeyFactory, PartitionRow, partition_named_by, serde
from tierd.metadata.views import LoadedPartition, PartitionView, load_partition
from tierd.model import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)

_ROWS_DECODED_IN_LOOP: Final = 512  # a few milliseconds; more go to a thread


async def read_partition(
    store: KeyValueStore, keys: MetadataKeyFactory, partition: TopicIdPartition, *, strict_kafka_compat: bool = False
) -> PartitionView:
    """Return the partition as the store has it now; an empty view when it has nothing.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer.
    """
    return (await read_snapshot(store, keys, partition, strict_kafka_compat=strict_kafka_compat)).view


async def read_snapshot(
    store: KeyValueStore, keys: MetadataKeyFactory, partition: TopicIdPartition, *, strict_kafka_compat: bool = False
) -> LoadedPartition:
    """Return the partition as the store has it now, and the repairs of rows that did not fit together.

    Raises:
        As ``read_partition``.
    """
    pairs = await store.scan(keys.partition_prefix(partition))
    decode = partial(load_partition, partition, pairs, keys, strict_kafka_compat=strict_kafka_compat)
    return decode() if len(pairs) <= _ROWS_DECODED_IN_LOOP else await asyncio.to_thread(decode)


async def read_row(store: KeyValueStore, keys: MetadataKeyFactory, partition: TopicIdPartition) -> PartitionRow | None:
    """Return the partition row as the store has it now, None when it has none.

    Raises:
        As ``read_partition``.
    """
    key = keys.row(partition)
    value = await store.get(key)
    return None if value is None else serde.decode_row(key, value)


class StoredSegmentRow(NamedTuple):
    """One segment's row and that of its partition, from one snapshot; None each where there is none.

    A segment that is DELETE_SEGMENT_FINISHED counts as none: only its tombstone is left.
    """

    segment: RemoteLogSegmentMetadata | None
    row: PartitionRow | None


async def read_segment(store: KeyValueStore, keys: MetadataKeyFactory, segment: RemoteLogSegmentId) -> StoredSegmentRow:
    """Return one segment as the store has it now, without reading the others of its partition.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer.
    """
    partition = segment.topic_id_partition
    segment_key, row_key = keys.segment(partition, segment.id), keys.row(partition)
    found = await store.get_many([segment_key, row_key])
    row = serde.decode_row(row_key, found[row_key]) if row_key in found else None
    if row is not None and row.topic != partition.topic:  # keys carry the topic's id alone
        return StoredSegmentRow(None, None)
    if segment_key not in found:
        return StoredSegmentRow(None, row)
    metadata, _ = serde.decode_segment(segment_key, found[segment_key], segment)
    is_gone = metadata.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    return StoredSegmentRow(None if is_gone else metadata, row)


async def read_claims(
    store: KeyValueStore, keys: MetadataKeyFactory, partitions: Sequence[TopicIdPartition]
) -> dict[TopicIdPartition, Claim]:
    """Return the claim that may write each of ``partitions``, without unknown, deleted and just being deleted ones.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer.
    """
    claims = {}
    for at in range(0, len(partitions), _ROWS_DECODED_IN_LOOP):
        some = {keys.row(partition): partition for partition in partitions[at : at + _ROWS_DECODED_IN_LOOP]}
        for key, value in (await store.get_many(list(some))).items():
            row = serde.decode_row(key, value)
            if row.topic == some[key].topic and row.deletion is None:
                claims[some[key]] = row.claim
    return claims


async def list_partitions(store: KeyValueStore, keys: MetadataKeyFactory) -> list[TopicIdPartition]:
    """Return every partition that was ever claimed in this cluster and not deleted, by topic, partition and topic id.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer.
    """
    found = [
        partition_named_by(key, prefix=keys.index_prefix, topic=serde.decode_topic(key, value))
        for key, value in await store.scan(keys.index_prefix)
    ]
    return sorted(found, key=lambda partition: (partition.topic, partition.partition, partition.topic_id))
