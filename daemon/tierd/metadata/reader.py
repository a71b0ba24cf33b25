"""Reading metadata without owning it: followers and commands. Every answer comes from one snapshot of the store."""

from collections.abc import Callable
from uuid import UUID

from tierd.errors import MetadataDecodeError, PreconditionFailedError
from tierd.metadata import serde
from tierd.metadata.cache import PartitionView
from tierd.metadata.keys import MetadataKeyFactory
from tierd.metadata.kv.base import Batch, Expect, KeyValueStore, Put
from tierd.metadata.rows import load_partition
from tierd.model import TopicIdPartition, uuid_from_text


async def read_partition(
    store: KeyValueStore, keys: MetadataKeyFactory, partition: TopicIdPartition, *, strict_kafka_compat: bool = False
) -> PartitionView:
    """Return the partition as the store has it now; an empty view when it has nothing.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer.
    """
    pairs = await store.scan(keys.partition_prefix(partition))
    return load_partition(partition, pairs, keys, strict_kafka_compat=strict_kafka_compat).view


async def list_partitions(store: KeyValueStore, keys: MetadataKeyFactory) -> list[TopicIdPartition]:
    """Return every partition that was ever claimed in this cluster, by topic name, partition and topic id.

    Raises:
        MetadataDecodeError: a row that cannot be understood; names the key.
        BackendUnavailableError: the store does not answer.
    """
    found = [_partition_of(key, value, keys) for key, value in await store.scan(keys.index_prefix)]
    return sorted(found, key=lambda partition: (partition.topic, partition.partition, partition.topic_id))


async def store_identity(store: KeyValueStore, keys: MetadataKeyFactory, *, new_id: Callable[[], UUID]) -> UUID:
    """Return the random id of this store, making it once; of several that do so at once, one id wins.

    Raises:
        MetadataDecodeError: the stored id cannot be understood.
        BackendUnavailableError: the store does not answer, or has no id and cannot be written.
        OutcomeUnknownError: the id may or may not have been written; ask again.
    """
    stored = await store.get(keys.store_key)
    if stored is None:
        fresh = new_id()
        batch = Batch([Put(keys.store_key, serde.encode_identity(fresh))], [Expect(keys.store_key, None)])
        try:
            await store.apply(batch)
        except PreconditionFailedError as error:
            stored = error.actual
        else:
            return fresh
    return serde.decode_identity(keys.store_key, stored or b"")


def _partition_of(key: str, value: bytes, keys: MetadataKeyFactory) -> TopicIdPartition:
    topic_id, _, number = key.removeprefix(keys.index_prefix).partition("/")
    try:
        return TopicIdPartition(uuid_from_text(topic_id), serde.decode_topic(key, value), int(number))
    except ValueError as error:
        raise MetadataDecodeError(f"{key}: {error}", remedy="restore the store from a backup") from error
