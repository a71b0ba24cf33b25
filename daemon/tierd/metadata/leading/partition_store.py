"""PartitionStore: claims, loads and writes led partitions in atomic batches (remote-tiering 7.5 to 7.7).

Every method runs under the lock of its partition, and shielded from the cancellation of its caller.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog

from tierd.errors import (
    BackendUnavailableError,
    FencedError,
    MetadataError,
    OutcomeUnknownError,
    PreconditionFailedError,
)
from tierd.metadata.kv import Batch, Delete, Expect, KeyValueStore, Put
from tierd.metadata.leading.led_partition import LedPartition
from tierd.metadata.rows import MetadataKeyFactory, PartitionRow, claimed_row, fenced, serde
from tierd.metadata.stored import read_snapshot
from tierd.metadata.views import LoadedPartition, PartitionView, ViewChange, writes_of
from tierd.model import TopicIdPartition

log = structlog.get_logger()

_CLAIMS_AT_ONCE: Final = 512  # small, and they share transactions
_CLAIM_ATTEMPTS: Final = 5


class PartitionStore:
    """The shell between led partitions and a store that answers in time; ``counts`` has the number of each event."""

    def __init__(
        self, store: KeyValueStore, keys: MetadataKeyFactory, *, strict_kafka_compat: bool, load_concurrency: int = 8
    ) -> None:
        self._store = store
        self._keys = keys
        self._strict_kafka_compat = strict_kafka_compat
        self._claim_slots = asyncio.Semaphore(_CLAIMS_AT_ONCE)
        self._load_slots = asyncio.Semaphore(load_concurrency)  # each holds a partition's rows in memory
        self._identity: bytes | None = None  # row of the store's identity; None until there was one
        self.counts: Counter[str] = Counter()

    async def make_ready(self, led: LedPartition) -> PartitionView:
        """Return the live view, after claiming and loading the partition where that is needed.

        Claim first, then load: a write in flight under the old claim, or one of ours whose outcome is unknown, landed
        before and is loaded, or fails its precondition for ever.

        Raises:
            FencedError: another owner; the partition is fenced.
            BackendUnavailableError: the store did not answer; the partition stays not ready.
            OutcomeUnknownError: the same, and the claim may have been written.
            MetadataDecodeError: a row that cannot be understood; the partition stays not ready.
        """
        if led.fenced is not None:
            raise FencedError(str(led.fenced), remedy=led.fenced.remedy)
        if led.view is not None and led.is_ready():
            return led.view
        kept, reloading = led.view, led.dirty is not None
        stored, row = await self._claim(led)
        led.held = True
        if kept is not None and not reloading and kept.row == stored:
            led.view = view = replace(kept, row=row)  # no write since: a later leader epoch needs no reload
            return view
        led.view = None
        view = await self._load(led, row)
        led.view, led.dirty = view, None
        self.counts["reloads"] += reloading
        return view

    async def commit(self, led: LedPartition, change: ViewChange) -> None:
        """Write a change of the live view; first durable, then visible.

        Raises:
            FencedError: another owner; nothing was written and the partition is fenced.
            BackendUnavailableError: nothing was written; the live view is what it was.
            OutcomeUnknownError: it may or may not have been written; the partition is dirty.
        """
        assert led.view is not None
        led.view = await self._write(led, led.view, change, writes_of(change, self._keys))

    async def erase(self, led: LedPartition, keys: Sequence[str]) -> None:
        """Remove rows of a partition whose deletion is finished.

        Raises:
            FencedError: another owner; nothing was removed and the partition is fenced.
            BackendUnavailableError: nothing was removed.
            OutcomeUnknownError: they may or may not have been removed; the partition is dirty.
        """
        assert led.view is not None
        led.view = await self._write(led, led.view, ViewChange(led.view), [Delete(key) for key in keys])

    async def bury(self, led: LedPartition) -> None:
        """Note that nothing but the row is left of a deleted partition, so that no list of partitions shows it.

        Raises:
            As ``erase``.
        """
        assert led.view is not None
        row, partition = led.view.row, led.partition
        assert row is not None
        assert row.deletion is not None
        value = serde.encode_deleting(partition.topic, row.deletion, row.claim.leader_epoch)
        writes: list[Put | Delete] = [
            Delete(self._keys.index(partition)),
            Delete(self._keys.deleting(partition)),
            Put(self._keys.deleted(partition), value),
        ]
        led.view = await self._write(led, led.view, ViewChange(led.view), writes)

    async def _claim(self, led: LedPartition) -> tuple[PartitionRow | None, PartitionRow]:
        """Make our claim the owner; return the row before and the row after."""
        partition, key = led.partition, self._keys.row(led.partition)
        async with self._claim_slots:
            value = await self._row_value(key)
            for _ in range(_CLAIM_ATTEMPTS):
                if value is None:
                    await self._require_same_store(partition)
                stored = None if value is None else serde.decode_row(key, value)
                try:
                    row = claimed_row(stored, led.claim, partition, held=led.held, above=led.revision)
                except FencedError as error:
                    led.fence(error)
                    self.counts["fenced_writes"] += 1
                    raise
                led.revision = row.revision
                writes = [Put(key, serde.encode_row(row))]
                if stored is None:
                    writes.append(Put(self._keys.index(partition), serde.encode_topic(partition.topic)))
                try:
                    await self._store.apply(Batch(writes, [Expect(key, value)]))
                except PreconditionFailedError as error:
                    value = error.actual
                except OutcomeUnknownError:
                    self.counts["unknown_outcomes"] += 1
                    raise
                else:
                    self.counts["claims"] += 1
                    return stored, row
        raise BackendUnavailableError(f"{partition}: its row changed {_CLAIM_ATTEMPTS} times while it was claimed")

    async def _row_value(self, key: str) -> bytes | None:
        if self._identity is not None:
            return await self._store.get(key)
        found = await self._store.get_many((key, self._keys.store_key))
        self._identity = found.get(self._keys.store_key)
        return found.get(key)

    async def _require_same_store(self, partition: TopicIdPartition) -> None:
        """Raise where the store has lost its contents under this process: no partition begins anew then.

        A partition that began anew would have the log start of its local log, in the bucket too, and a rebuild from the
        bucket would believe that.
        """
        if self._identity is not None and await self._store.get(self._keys.store_key) != self._identity:
            raise BackendUnavailableError(
                f"{partition}: the metadata store has lost its contents, or is another one by now; nothing was written",
                remedy="stop tierd, and restore the store from a backup or by tierd rebuild-metadata",
            )

    async def _load(self, led: LedPartition, row: PartitionRow) -> PartitionView:
        async with self._load_slots:
            loaded = await read_snapshot(
                self._store, self._keys, led.partition, strict_kafka_compat=self._strict_kafka_compat
            )
        self.counts["loads"] += 1
        if loaded.view.row != row:
            raise self._refused(led, loaded.view.row)
        return await self._repaired(led, loaded) if loaded.repairs else loaded.view

    async def _repaired(self, led: LedPartition, loaded: LoadedPartition) -> PartitionView:
        view = await self._write(led, loaded.view, ViewChange(loaded.view), [r.write for r in loaded.repairs])
        self.counts["repairs"] += len(loaded.repairs)
        first = loaded.repairs[0].problem
        log.warning("metadata_repaired", partition=str(led.partition), repairs=len(loaded.repairs), first=first)
        return view

    async def _write(
        self, led: LedPartition, view: PartitionView, change: ViewChange, writes: list[Put | Delete]
    ) -> PartitionView:
        """Apply ``writes`` under our claim and return the view of ``change`` at its revision."""
        before, after = view.row, change.view.row
        assert before is not None
        assert after is not None
        key, row = self._keys.row(led.partition), after.bumped(change.view.newest_epochs)
        led.revision = row.revision
        batch = Batch([*writes, Put(key, serde.encode_row(row))], [Expect(key, serde.encode_row(before))])
        try:
            await self._store.apply(batch)
        except PreconditionFailedError as error:
            stored = None if error.actual is None else serde.decode_row(key, error.actual)
            raise self._refused(led, stored) from error
        except BackendUnavailableError:
            raise
        except BaseException as error:  # whatever it is, the store may have taken the batch
            led.dirty = error
            self.counts["unknown_outcomes"] += 1
            raise
        return change.with_row(row).view

    def _refused(self, led: LedPartition, stored: PartitionRow | None) -> MetadataError:
        """Judge a row that is not the one we wrote last."""
        owner = stored.claim if stored else None
        if owner is not None and owner != led.claim:
            error = fenced(led.partition, led.claim, owner)
            led.fence(error)
            self.counts["fenced_writes"] += 1
            return error
        cause = f"{led.partition}: its metadata changed though this broker owns it; nothing was written"
        led.dirty = changed = BackendUnavailableError(cause, remedy="look for another program that edits the store")
        self.counts["unexpected_revisions"] += 1
        return changed
