"""Newest epochs in a partition's row: a follower learns the copied offsets from one row, as from all rows."""

import asyncio
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.segment_rows import (
    BROKER_ID,
    CLUSTER_ID,
    EPOCH,
    RECORDS,
    partition_number,
    partition_rows,
    started_segment,
)
from tests.bench.segment_rows import SESSION as BENCH_SESSION
from tests.fakes.clock import FakeClock
from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, SESSION, segment, step
from tests.metadata.histories import Copied, histories, lead
from tierd.errors import MetadataDecodeError, RemoteResourceNotFoundError
from tierd.metadata import (
    Batch,
    Claim,
    KeyValueStore,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    MetadataManagerSettings,
    PartitionRow,
    Put,
    RemoteLogMetadataManager,
    TierEpochs,
)
from tierd.metadata.rows import serde
from tierd.metadata.rows.newest_epochs import EPOCHS_KEPT, CopiedEpoch, NewestEpochs
from tierd.metadata.rows.partition_row import claimed_row
from tierd.model import RemoteLogSegmentMetadata, RemotePartitionDeleteMetadata, RemotePartitionDeleteState

KEYS = MetadataKeyFactory("cluster")
EPOCHS = NewestEpochs(3, (CopiedEpoch(4, 0, 99, 120), CopiedEpoch(6, None, None, 7)), is_complete=False)
ROW = PartitionRow(topic="orders", revision=3, claim=Claim(5, 1, SESSION), newest_epochs=EPOCHS)


class CountingStore(KeyValueStore):
    """Another store with counts of the reading calls and of the rows that they return."""

    def __init__(self, inner: KeyValueStore) -> None:
        self.inner = inner
        self.reads = 0
        self.rows = 0

    async def get(self, key: str) -> bytes | None:
        value = await self.inner.get(key)
        self._count(value is not None)
        return value

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        found = await self.inner.get_many(keys)
        self._count(len(found))
        return found

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        found = await self.inner.scan(prefix)
        self._count(len(found))
        return found

    async def apply(self, batch: Batch) -> None:
        await self.inner.apply(batch)

    async def close(self) -> None:
        await self.inner.close()

    def _count(self, rows: int) -> None:
        self.reads += 1
        self.rows += rows


def manager_of(store: KeyValueStore, broker_id: int, *, strict: bool = False) -> RemoteLogMetadataManager:
    return RemoteLogMetadataManager(
        store,
        cluster_id="cluster",
        broker_id=broker_id,
        session_id=SESSION,
        clock=FakeClock(),
        settings=MetadataManagerSettings(strict_kafka_compat=strict),
    )


async def followed(store: KeyValueStore, *, strict: bool = False) -> RemoteLogMetadataManager:
    manager = manager_of(store, 2, strict=strict)
    manager.follow(PARTITION)
    return manager


def answers(tier: TierEpochs, epochs: Iterable[int]) -> dict[int, tuple[int | None, int | None]]:
    """Return first offset and copied offset of each epoch."""
    return {epoch: (tier.first_offsets().get(epoch), tier.copied_offset_for_epoch(epoch)) for epoch in epochs}


async def test_epoch_that_the_log_has_abandoned_is_in_no_lineage_until_the_log_has_it_again() -> None:
    store = MemoryKeyValueStore()
    leader, follower = manager_of(store, 1), await followed(store)
    await leader.become_leader(PARTITION, 5)
    for start, epoch in ((0, 3), (10, 4), (20, 5)):
        metadata = segment(start, start + 9, epoch)
        await leader.add(metadata)
        await leader.update(step(metadata, FINISHED))
    before = answers(leader.view(PARTITION), (3, 4, 5))
    await leader.abandon_epochs(PARTITION, [4, 9])
    for tier in (leader.view(PARTITION), await follower.read_epochs(PARTITION), await follower.read_view(PARTITION)):
        assert answers(tier, (3, 4, 5)) == before | {4: (None, 19)}
    revision = leader.view(PARTITION).revision
    await leader.abandon_epochs(PARTITION, [4])
    assert leader.view(PARTITION).revision == revision
    assert leader.view(PARTITION).abandoned_epochs == (4,)
    await leader.abandon_epochs(PARTITION, [], returned=[3, 4])
    for tier in (leader.view(PARTITION), await follower.read_epochs(PARTITION), await follower.read_view(PARTITION)):
        assert answers(tier, (3, 4, 5)) == before


# ------------------------------------------------------------ agreement with all rows


@pytest.mark.parametrize("strict", [False, True])
@settings(deadline=None)
@given(history=histories)
def test_epochs_of_the_row_agree_with_all_rows_after_every_step(strict: bool, history: list[Copied]) -> None:
    async def play() -> None:
        store = CountingStore(MemoryKeyValueStore())
        follower = await followed(store, strict=strict)

        async def check(_: RemoteLogSegmentMetadata, __: int) -> None:
            store.rows = 0
            found = await follower.read_epochs(PARTITION)
            assert store.rows == 1
            view = await follower.read_view(PARTITION)
            finished = sorted(e for e, state in view.epochs.items() if state.ids or state.highest is not None)
            known = finished[-EPOCHS_KEPT:]
            assert answers(found, known) == answers(view, known)
            assert found.is_complete == (known == finished)
            assert found.log_start_offset == view.log_start_offset

        await lead(store, PARTITION, history, on_step=check)

    asyncio.run(play())


async def test_read_of_epochs_is_incomplete_when_the_row_lacks_some() -> None:
    store = MemoryKeyValueStore()
    leader, follower = manager_of(store, 1), await followed(store)
    await leader.become_leader(PARTITION, 5)
    for number in range(EPOCHS_KEPT + 1):
        assert (await follower.read_epochs(PARTITION)).is_complete
        metadata = segment(number * 10, number * 10 + 9, number)
        await leader.add(metadata)
        await leader.update(step(metadata, FINISHED))
    found = await follower.read_epochs(PARTITION)
    assert not found.is_complete
    assert answers(found, range(EPOCHS_KEPT + 1)) == {0: (None, None)} | {
        number: (number * 10, number * 10 + 9) for number in range(1, EPOCHS_KEPT + 1)
    }


# ------------------------------------------------------------ rows of other programs


async def one_segment(store: KeyValueStore) -> RemoteLogMetadataManager:
    leader = manager_of(store, 1)
    await leader.become_leader(PARTITION, 5)
    metadata = segment(0, 9)
    await leader.add(metadata)
    await leader.update(step(metadata, FINISHED))
    return leader


async def changed_row(store: KeyValueStore, **fields: object) -> None:
    """Write the row as another program would."""
    key = KEYS.row(PARTITION)
    value = await store.get(key)
    assert value is not None
    body = {name: each for name, each in (json.loads(value[1:]) | fields).items() if each is not None}
    await store.apply(Batch([Put(key, value[:1] + json.dumps(body, separators=(",", ":")).encode())]))


async def test_row_of_an_earlier_tierd_is_followed_by_reading_all_rows() -> None:
    store = CountingStore(MemoryKeyValueStore())
    await one_segment(store)
    await changed_row(store, newest_epochs=None)
    follower = await followed(store)
    store.rows = 0
    assert answers(await follower.read_epochs(PARTITION), [0]) == {0: (0, 9)}
    assert store.rows > 1
    store.rows = 0
    assert answers(await follower.read_epochs(PARTITION), [0]) == {0: (0, 9)}
    assert store.rows == 1, "the row has not changed since"


async def test_epochs_that_an_earlier_tierd_left_stale_in_the_row_are_ignored() -> None:
    store = MemoryKeyValueStore()
    leader = await one_segment(store)
    (metadata,) = leader.view(PARTITION).list()
    row = leader.view(PARTITION).row
    assert row is not None
    assert row.newest_epochs is not None
    stale = {"revision": row.revision, "complete": True, "epochs": [list(each) for each in row.newest_epochs.epochs]}
    await leader.update(step(metadata, DELETE_STARTED))
    await changed_row(store, newest_epochs=stale)
    assert answers(await (await followed(store)).read_epochs(PARTITION), [0]) == {0: (None, None)}
    again = manager_of(store, 1)
    await again.become_leader(PARTITION, 6)  # a claim does not make the stale epochs current
    assert answers(await (await followed(store)).read_epochs(PARTITION), [0]) == {0: (None, None)}


def test_claim_keeps_current_epochs_of_the_row_and_drops_stale_ones() -> None:
    claim = Claim(6, 2, SESSION)
    assert claimed_row(ROW, claim, PARTITION, held=False).known_epochs == replace(EPOCHS, revision=4)
    later = replace(ROW, revision=9)
    assert claimed_row(later, claim, PARTITION, held=False).newest_epochs is None


def test_row_with_epochs_is_decoded_as_it_was_encoded() -> None:
    assert serde.decode_row("k", serde.encode_row(ROW)) == ROW
    assert json.loads(serde.encode_row(ROW)[1:])["newest_epochs"] == {
        "revision": 3,
        "complete": False,
        "epochs": [[4, 0, 99, 120], [6, None, None, 7]],
    }


@pytest.mark.parametrize(
    "fields",
    [
        1,
        {},
        {"revision": 1, "complete": 1, "epochs": []},
        {"revision": 1, "complete": True, "epochs": [[1, 2, 3]]},
        {"revision": 1, "complete": True, "epochs": [["1", 2, 3, 4]]},
        {"revision": 1, "complete": True, "epochs": [[1, 2, 3, "4"]]},
    ],
)
async def test_row_with_malformed_epochs_is_damaged(fields: object) -> None:
    store = MemoryKeyValueStore()
    await one_segment(store)
    await changed_row(store, newest_epochs=fields)
    with pytest.raises(MetadataDecodeError, match=KEYS.row(PARTITION)):
        await (await followed(store)).read_epochs(PARTITION)


async def test_epochs_of_a_partition_without_rows_are_none_and_of_a_deleted_one_are_not_found() -> None:
    store = MemoryKeyValueStore()
    follower = await followed(store)
    found = await follower.read_epochs(PARTITION)
    assert (found.is_complete, found.log_start_offset, dict(found.first_offsets())) == (True, None, {})
    leader = manager_of(store, 1)
    await leader.become_leader(PARTITION, 5)
    for state in RemotePartitionDeleteState:
        deleted = RemotePartitionDeleteMetadata(partition=PARTITION, state=state, event_timestamp_ms=1, broker_id=1)
        await leader.put_partition_delete(deleted)
    with pytest.raises(RemoteResourceNotFoundError):
        await follower.read_epochs(PARTITION)


async def test_epochs_of_a_partition_that_this_broker_leads_come_from_its_view() -> None:
    leader = await one_segment(MemoryKeyValueStore())
    assert await leader.read_epochs(PARTITION) is leader.view(PARTITION)


# ------------------------------------------------------------ cost


@pytest.mark.parametrize("segments", [50, 20_000])
async def test_follower_reads_one_row_after_a_change_at_any_number_of_segments(
    any_store: KeyValueStore, segments: int
) -> None:
    store, partition = CountingStore(any_store), partition_number(0)
    for writes in batched((Put(*pair) for pair in partition_rows(partition, segments)), 5_000):
        await store.apply(Batch(writes))
    leader, follower = (
        RemoteLogMetadataManager(
            store, cluster_id=CLUSTER_ID, broker_id=broker, session_id=BENCH_SESSION, clock=FakeClock()
        )
        for broker in (BROKER_ID, BROKER_ID + 1)
    )
    await leader.become_leader(partition, EPOCH)
    follower.follow(partition)
    for number in (segments, segments + 1):
        metadata = started_segment(partition, number)
        await leader.add(metadata)
        await leader.update(step(metadata, FINISHED))
        store.reads = store.rows = 0
        found = await follower.read_epochs(partition)
        assert (store.reads, store.rows) == (1, 1)
        assert found.copied_offset_for_epoch(EPOCH) == (number + 1) * RECORDS - 1


def batched(writes: Iterable[Put], size: int) -> Iterator[list[Put]]:
    """Yield lists of at most ``size`` writes."""
    rest = iter(writes)
    while some := list(islice(rest, size)):
        yield some


@given(st.integers(0, 2 * EPOCHS_KEPT))
def test_row_keeps_a_bounded_number_of_epochs(count: int) -> None:
    async def play() -> None:
        leader = manager_of(MemoryKeyValueStore(), 1)
        await leader.become_leader(PARTITION, 5)
        for number in range(count):
            metadata = segment(number * 10, number * 10 + 9, number)
            await leader.add(metadata)
            await leader.update(step(metadata, FINISHED))
        newest = leader.view(PARTITION).newest_epochs(1)
        assert [each.epoch for each in newest.epochs] == list(range(count))[-EPOCHS_KEPT:]

    asyncio.run(play())
