"""Partitions that are being deleted or were: small index rows, so that the number of segments does not slow a search.

A deletion outlives the process that began it: the remover reads ``partitions_being_deleted`` when it starts.
"""

from dataclasses import dataclass
from typing import Final

from tierd.errors import PreconditionFailedError
from tierd.metadata.kv import Batch, Delete, Expect, KeyValueStore
from tierd.metadata.rows import MetadataKeyFactory, partition_named_by, serde
from tierd.model import RemotePartitionDeleteMetadata, TopicIdPartition

_FORGOTTEN_PER_CALL: Final = 256


@dataclass(frozen=True, slots=True)
class PartitionBeingDeleted:
    """A deletion that has not come to its end.

    Attributes:
        metadata: the last step of the deletion, with its broker. ``DELETE_PARTITION_FINISHED`` here means that rows
            are left to be erased: put the same step again.
        leader_epoch: of the claim under which that step was put. The same broker may claim the partition with it again.
    """

    metadata: RemotePartitionDeleteMetadata
    leader_epoch: int


async def partitions_being_deleted(store: KeyValueStore, keys: MetadataKeyFactory) -> list[PartitionBeingDeleted]:
    """Return every partition of the cluster whose deletion has begun and not ended, under any leader.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer.
    """
    pairs = await store.scan(keys.deleting_prefix)
    return [_entry(key, value, keys.deleting_prefix) for key, value in pairs]


async def deleted_partitions(store: KeyValueStore, keys: MetadataKeyFactory) -> list[TopicIdPartition]:
    """Return every deleted partition of which only the tombstone is left.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer.
    """
    pairs = await store.scan(keys.deleted_prefix)
    return [_entry(key, value, keys.deleted_prefix).metadata.partition for key, value in pairs]


async def forget_deleted_partitions(store: KeyValueStore, keys: MetadataKeyFactory, *, before_ms: int) -> int:
    """Remove the tombstones of partitions whose deletion ended before ``before_ms``; return how many were removed.

    At most 256 a call. From then on a late writer of the partition is not refused any more.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer; some may be gone.
        OutcomeUnknownError: the same; call again.
    """
    forgotten = 0
    for key, value in await store.scan(keys.deleted_prefix):
        entry = _entry(key, value, keys.deleted_prefix)
        if entry.metadata.event_timestamp_ms >= before_ms:
            continue
        row = keys.row(entry.metadata.partition)
        batch = Batch([Delete(row), Delete(key)], [Expect(row, await store.get(row))])
        try:
            await store.apply(batch)
        except PreconditionFailedError:  # claimed anew this moment; the next call sees it as it is then
            continue
        forgotten += 1
        if forgotten == _FORGOTTEN_PER_CALL:
            break
    return forgotten


def _entry(key: str, value: bytes, prefix: str) -> PartitionBeingDeleted:
    topic, deletion, leader_epoch = serde.decode_deleting(key, value)
    metadata = RemotePartitionDeleteMetadata(
        partition=partition_named_by(key, prefix=prefix, topic=topic),
        state=deletion.state,
        event_timestamp_ms=deletion.event_timestamp_ms,
        broker_id=deletion.broker_id,
    )
    return PartitionBeingDeleted(metadata, leader_epoch)
