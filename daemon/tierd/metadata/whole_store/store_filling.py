"""Filling a store with whole partitions that come from elsewhere: an export, or the bucket.

A row beside the metadata says that the filling is under way, and from which source, so that it can be continued and is
never mixed with another one. The store's own identity is written last: a daemon that starts in between finds a store of
another identity than its tier has, and copies nothing.

A partition's rows go first, in batches of bounded size; its partition row goes last, and only then is the partition
listed. So a partition is there whole or not at all, and what an interrupted filling left is written again.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tierd.errors import MetadataFillingRefusedError, PreconditionFailedError
from tierd.metadata.kv import Batch, Delete, Expect, KeyValueStore, Put
from tierd.metadata.rows import FORMAT, MetadataKeyFactory, PartitionRow, decoded_value, serde
from tierd.metadata.stored import list_partitions
from tierd.model import TopicIdPartition

_WRITES_PER_BATCH: Final = 500
_NOT_EMPTY: Final = "name an empty metadata store; remove the rows of this store only if they are not needed"


@dataclass(frozen=True, slots=True)
class FillingSource:
    """Source of the rows; two fillings of one source may continue one another.

    Attributes:
        kind: ``import`` or ``rebuild``.
        name: distinguishes one source of that kind from another.
    """

    kind: str
    name: str


class StoreFilling:
    """One filling of one store: ``begin``, ``write`` each partition, ``complete``."""

    def __init__(self, store: KeyValueStore, keys: MetadataKeyFactory, source: FillingSource) -> None:
        self._store = store
        self._keys = keys
        self._mark = _encode(source)

    async def is_begun(self) -> bool:
        """Return True if an earlier, interrupted filling from this source may be continued.

        Raises:
            MetadataFillingRefusedError: one from another source is under way.
        """
        mark = await self._store.get(self._keys.moving_key)
        if mark is not None and mark != self._mark:
            source = _decode(self._keys.moving_key, mark)
            raise MetadataFillingRefusedError(
                f"an interrupted {source.kind} from {source.name} has filled a part of this metadata store",
                remedy=f"finish that {source.kind}, or begin with an empty store",
            )
        return mark is not None

    async def begin(self) -> None:
        """Note that the filling is under way; a repeated call changes nothing.

        Raises:
            MetadataFillingRefusedError: one from another source began at the same moment.
        """
        key = self._keys.moving_key
        try:
            await self._store.apply(Batch([Put(key, self._mark)], [Expect(key, None)]))
        except PreconditionFailedError:
            if not await self.is_begun():
                raise

    async def write(
        self, partition: TopicIdPartition, rows: Mapping[str, bytes], row: PartitionRow, *, stored: PartitionRow | None
    ) -> None:
        """Write a partition: ``rows`` in batches, then ``row``, with which it is there.

        Args:
            partition: the partition to write.
            rows: full keys below the partition's prefix, the partition row excepted.
            row: the partition row.
            stored: the present partition row, None when there is none.

        Raises:
            MetadataFillingRefusedError: another process writes the partition; it is not there.
            BackendUnavailableError: the store did not answer; the partition is not there.
            OutcomeUnknownError: it may or may not be there; go on with another run.
        """
        key = self._keys.row(partition)
        expect = [Expect(key, None if stored is None else serde.encode_row(stored))]
        last: list[Put | Delete] = [Put(key, serde.encode_row(row)), *self._index_writes(partition, row)]
        present = {name for name, _ in await self._store.scan(self._keys.partition_prefix(partition))} - {key}
        writes: list[Put | Delete] = [Delete(name) for name in present - rows.keys()]  # left by an interrupted filling
        writes += (Put(name, value) for name, value in rows.items())
        try:
            for start in range(0, len(writes), _WRITES_PER_BATCH):
                await self._store.apply(Batch(writes[start : start + _WRITES_PER_BATCH], expect))
            await self._store.apply(Batch(last, expect))
        except PreconditionFailedError as error:
            raise MetadataFillingRefusedError(
                f"{partition}: another program writes its metadata meanwhile",
                remedy="stop every tierd that uses this metadata store, then run this again",
            ) from error

    async def complete(self, *, store_id: UUID | None, tiers: Sequence[str]) -> None:
        """Give the store its identity and the tiers that are its own, and end the filling.

        Args:
            store_id: None leaves the store without one, to be made by the first daemon.
            tiers: the key prefixes.
        """
        writes: list[Put | Delete] = [Put(self._keys.tier(prefix), prefix.encode()) for prefix in tiers]
        if store_id is not None:
            writes.append(Put(self._keys.store_key, serde.encode_identity(store_id)))
        writes.append(Delete(self._keys.moving_key))
        await self._store.apply(Batch(writes))

    def _index_writes(self, partition: TopicIdPartition, row: PartitionRow) -> list[Put | Delete]:
        writes: list[Put | Delete] = []
        if not row.is_tombstone:
            writes.append(Put(self._keys.index(partition), serde.encode_topic(partition.topic)))
        if row.deletion is not None:
            value = serde.encode_deleting(partition.topic, row.deletion, row.claim.leader_epoch)
            key = self._keys.deleted(partition) if row.is_tombstone else self._keys.deleting(partition)
            writes.append(Put(key, value))
        return writes


async def holds_segments(store: KeyValueStore, keys: MetadataKeyFactory) -> bool:
    """Return True if any partition of the cluster has a segment row; partitions that were only claimed do not count.

    Raises:
        MetadataDecodeError: a row that cannot be understood.
        BackendUnavailableError: the store does not answer.
    """
    for partition in await list_partitions(store, keys):
        if await store.scan(f"{keys.partition_prefix(partition)}seg/"):
            return True
    return False


async def require_empty(store: KeyValueStore, keys: MetadataKeyFactory) -> None:
    """Raise if the store has rows that the filling would be mixed with; an unused identity may be there.

    Raises:
        MetadataFillingRefusedError: partitions, deletions or tiers are there.
        BackendUnavailableError: the store does not answer.
    """
    for prefix in (keys.index_prefix, keys.deleting_prefix, keys.deleted_prefix, keys.tier_prefix):
        if found := await store.scan(prefix):
            raise MetadataFillingRefusedError(
                f"the metadata store is not empty: {len(found)} rows below {prefix}", remedy=_NOT_EMPTY
            )


def _encode(source: FillingSource) -> bytes:
    return bytes([FORMAT]) + json.dumps({"kind": source.kind, "name": source.name}).encode()


def _decode(key: str, value: bytes) -> FillingSource:
    return decoded_value(key, value, lambda body: FillingSource(str(body["kind"]), str(body["name"])))
