import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings

from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import FINISHED, PARTITION, SESSION, segment, step
from tests.metadata.histories import Copied, histories, lead
from tests.metadata.leading.test_partition_deletes import deleting
from tierd.errors import (
    BackendUnavailableError,
    MetadataDecodeError,
    MetadataExportError,
    MetadataFillingRefusedError,
    OutcomeUnknownError,
    TierError,
)
from tierd.metadata import (
    Batch,
    KeyValueStore,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    Put,
    TransferCounts,
    export_lines,
    import_lines,
    is_tier_known,
    list_partitions,
    partitions_being_deleted,
    read_partition,
    remember_tier,
    store_identity,
)
from tierd.metadata.kv import SqliteKeyValueStore
from tierd.model import RemotePartitionDeleteState, TopicIdPartition
from tierd.testing import cancel_at

KEYS = MetadataKeyFactory("cluster")
STORE_ID = UUID(int=42)
PARTITIONS = [TopicIdPartition(UUID(int=7), "orders", 0), TopicIdPartition(UUID(int=7), "orders", 10)]
DELETED = TopicIdPartition(UUID(int=8), "gone", 0)
HISTORY: list[Copied] = [(0, 10, 0, 2), (0, 10, 1, 2), (3, 10, 0, 3), (0, 5, 0, 4), (0, 5, 0, 1)]


async def exported(store: KeyValueStore, keys: MetadataKeyFactory = KEYS) -> list[str]:
    return [line async for line in export_lines(store, keys, exported_ms=1_700_000_000_000)]


async def imported(store: KeyValueStore, lines: list[str], keys: MetadataKeyFactory = KEYS) -> TransferCounts:
    return await import_lines(store, keys, lambda: iter(lines), on_progress=lambda _: None)


async def everything(store: KeyValueStore) -> list[tuple[str, bytes]]:
    return await store.scan(KEYS.all_prefix)


@pytest.fixture
async def source() -> KeyValueStore:
    """Return a store with partitions with a past, one under deletion, one deleted, an identity, and two tiers."""
    store = MemoryKeyValueStore()
    await store_identity(store, KEYS, new_id=lambda: STORE_ID)
    for prefix in ("", "tiers/ä"):
        await remember_tier(store, KEYS, key_prefix=prefix)
    for partition in PARTITIONS:
        manager = await lead(store, partition, HISTORY)
        await manager.advance_log_start_offset(partition, 7)
    await manager.put_partition_delete(
        deleting(RemotePartitionDeleteState.DELETE_PARTITION_MARKED, partition=PARTITIONS[1])
    )
    gone = await lead(store, DELETED, [(0, 10, 0, 4)])
    for state in RemotePartitionDeleteState:
        await gone.put_partition_delete(deleting(state, partition=DELETED))
    return store


@pytest.fixture(params=["memory", "sqlite"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[FaultyKeyValueStore]:
    if request.param == "memory":
        yield FaultyKeyValueStore(MemoryKeyValueStore())
    else:
        store = await SqliteKeyValueStore.open(tmp_path / "metadata.db")
        yield FaultyKeyValueStore(store)
        await store.close()


async def test_an_import_gives_every_row_that_was_exported(source: KeyValueStore, target: FaultyKeyValueStore) -> None:
    counts = await imported(target, await exported(source))
    assert await everything(target) == await everything(source)
    assert (counts.partitions, counts.present) == (3, 0)
    assert await store_identity(target, KEYS, new_id=lambda: UUID(int=1)) == STORE_ID
    assert await is_tier_known(target, KEYS, key_prefix="tiers/ä")
    assert await list_partitions(target, KEYS) == PARTITIONS
    assert [entry.metadata.partition for entry in await partitions_being_deleted(target, KEYS)] == [PARTITIONS[1]]
    assert await exported(target) == await exported(source)


@settings(max_examples=40, deadline=None)
@given(histories)
def test_rows_of_any_history_are_imported_as_they_were_exported(history: list[Copied]) -> None:
    async def moved() -> None:
        source, target = MemoryKeyValueStore(), MemoryKeyValueStore()
        await lead(source, PARTITION, history)
        await imported(target, await exported(source))
        assert await everything(target) == await everything(source)

    asyncio.run(moved())


async def test_import_leaves_the_rows_of_other_clusters(source: KeyValueStore, target: FaultyKeyValueStore) -> None:
    other = MetadataKeyFactory("other")
    await store_identity(target, other, new_id=lambda: UUID(int=9))
    before = await target.scan(other.all_prefix)
    await imported(target, await exported(source))
    assert await target.scan(other.all_prefix) == before
    assert await exported(target, other) == [*(await exported(target, other))]


async def test_fields_of_a_later_tierd_are_exported_and_imported(
    source: KeyValueStore, target: FaultyKeyValueStore
) -> None:
    key = KEYS.row(PARTITIONS[0])
    value = await source.get(key)
    assert value is not None
    await source.apply(Batch([Put(key, b'\x01{"later":{"a":[1,null]},' + value[2:])]))
    await imported(target, await exported(source))
    assert await everything(target) == await everything(source)
    view = await read_partition(target, KEYS, PARTITIONS[0])
    assert view.row is not None
    assert view.row.unknown == {"later": {"a": [1, None]}}


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER, Fault.DROP_REQUEST])
async def test_interrupted_import_is_continued_and_shows_no_partial_partition(
    source: KeyValueStore, fault: Fault
) -> None:
    lines = await exported(source)
    wanted = {partition: await read_partition(source, KEYS, partition) for partition in PARTITIONS}
    for failing in range(20):
        target = FaultyKeyValueStore(MemoryKeyValueStore())
        target.apply_faults.extend([*[None] * failing, fault])
        try:
            await imported(target, lines)
        except (BackendUnavailableError, OutcomeUnknownError):
            for partition in await list_partitions(target, KEYS):
                assert await read_partition(target, KEYS, partition) == wanted[partition]
            await imported(target, lines)
        else:
            assert failing > 3
        assert await everything(target) == await everything(source)


async def test_export_of_a_partly_filled_store_is_refused(source: KeyValueStore) -> None:
    target = FaultyKeyValueStore(MemoryKeyValueStore())
    target.apply_faults.extend([None, None, None, Fault.FAIL])
    lines = await exported(source)
    with pytest.raises(BackendUnavailableError):
        await imported(target, lines)
    with pytest.raises(MetadataFillingRefusedError, match="not complete"):
        await exported(target)


async def test_import_cancelled_at_any_await_is_continued(source: KeyValueStore) -> None:
    lines = await exported(source)
    for suspension in range(1, 500):
        target = MemoryKeyValueStore()

        async def run(target: KeyValueStore = target) -> None:
            await imported(target, lines)

        was_cancelled = await cancel_at(suspension, run)
        if not was_cancelled:
            return
        await imported(target, lines)
        assert await everything(target) == await everything(source)
    raise AssertionError("it never came to its end")


async def test_continued_import_counts_the_partitions_already_present(source: KeyValueStore) -> None:
    target = FaultyKeyValueStore(MemoryKeyValueStore())
    target.apply_faults.extend([None, None, None, None, None, Fault.FAIL])
    lines = await exported(source)
    with pytest.raises(BackendUnavailableError):
        await imported(target, lines)
    assert (await imported(target, lines)).present == 2


@pytest.mark.parametrize("key", ["partitions", "tier", "deleted"])
async def test_import_into_a_store_that_is_not_empty_is_refused(
    source: KeyValueStore, target: FaultyKeyValueStore, key: str
) -> None:
    kept = Put(f"{KEYS.all_prefix}{key}/x", b"\x01{}")
    await target.inner.apply(Batch([kept]))
    with pytest.raises(MetadataFillingRefusedError, match="not empty"):
        await imported(target, await exported(source))
    assert await everything(target) == [(kept.key, kept.value)]


async def test_import_into_a_store_with_only_an_identity_succeeds(
    source: KeyValueStore, target: FaultyKeyValueStore
) -> None:
    await store_identity(target, KEYS, new_id=lambda: UUID(int=3))
    await imported(target, await exported(source))
    assert await everything(target) == await everything(source)


async def test_repeated_import_writes_nothing(source: KeyValueStore, target: FaultyKeyValueStore) -> None:
    lines = await exported(source)
    await imported(target, lines)
    before = len(target.batches)
    assert (await imported(target, lines)).present == 3
    assert len(target.batches) == before
    await lead(target, PARTITIONS[0], [])  # the claim alone is a difference
    with pytest.raises(MetadataFillingRefusedError, match="other rows"):
        await imported(target, lines)


async def test_interrupted_import_is_not_continued_with_another_export(source: KeyValueStore) -> None:
    target = FaultyKeyValueStore(MemoryKeyValueStore())
    lines = await exported(source)
    target.apply_faults.extend([None, None, Fault.FAIL])
    with pytest.raises(BackendUnavailableError):
        await imported(target, lines)
    later = [line async for line in export_lines(source, KEYS, exported_ms=1_800_000_000_000)]
    with pytest.raises(MetadataFillingRefusedError, match="interrupted import"):
        await imported(target, later)


async def test_an_export_of_another_cluster_is_refused(source: KeyValueStore, target: FaultyKeyValueStore) -> None:
    with pytest.raises(MetadataFillingRefusedError, match="cluster"):
        await imported(target, await exported(source), MetadataKeyFactory("other"))
    assert await target.scan("") == []


async def test_import_is_refused_when_another_program_writes_meanwhile(source: KeyValueStore) -> None:
    target = FaultyKeyValueStore(MemoryKeyValueStore())
    interfered = False

    async def claim() -> None:
        nonlocal interfered
        if len(target.batches) == 2 and not interfered:
            interfered = True
            await lead(target.inner, PARTITIONS[0], [])

    target.before_apply = claim
    with pytest.raises(MetadataFillingRefusedError, match="another program"):
        await imported(target, await exported(source))
    assert await target.get(KEYS.store_key) is None


def cut(lines: list[str]) -> list[str]:
    return lines[:-1]


def torn(lines: list[str]) -> list[str]:
    return [*lines[:-1], lines[-1][:-1]]


def flipped(lines: list[str]) -> list[str]:
    number = next(n for n, line in enumerate(lines) if '"end":9' in line)
    return [*lines[:number], lines[number].replace('"end":9', '"end":8'), *lines[number + 1 :]]


def later_version(lines: list[str]) -> list[str]:
    return [lines[0].replace('"format_version":1', '"format_version":3'), *lines[1:]]


def without_rows(lines: list[str]) -> list[str]:
    return [lines[0], lines[-1]]


def foreign(lines: list[str]) -> list[str]:
    return ["{}\n", *lines]


def not_json(lines: list[str]) -> list[str]:
    return ["nothing\n"]


def empty(lines: list[str]) -> list[str]:
    return []


@pytest.mark.parametrize("damage", [cut, torn, flipped, later_version, without_rows, foreign, not_json, empty])
async def test_damaged_export_is_refused_with_its_line_before_any_write(
    source: KeyValueStore, target: FaultyKeyValueStore, damage: Callable[[list[str]], list[str]]
) -> None:
    lines = damage(await exported(source))
    with pytest.raises(MetadataExportError, match="line "):
        await imported(target, lines)
    assert await everything(target) == []


@pytest.mark.spec("remote-tiering 20")
async def test_export_of_an_undecodable_row_is_refused(source: KeyValueStore) -> None:
    key = KEYS.row(PARTITIONS[0])
    value = await source.get(key)
    await source.apply(Batch([Put(key, (value or b"") + b"x")]))
    with pytest.raises(MetadataDecodeError, match=key):
        await exported(source)


async def test_a_large_partition_is_written_in_batches_of_bounded_size() -> None:
    source, target = MemoryKeyValueStore(), FaultyKeyValueStore(MemoryKeyValueStore())
    await lead(source, PARTITION, [(0, 1, 0, 2)] * 300)
    await imported(target, await exported(source))
    assert max(len(batch.writes) for batch in target.batches) <= 500
    assert await everything(target) == await everything(source)


async def test_imported_partition_may_be_led_and_written(source: KeyValueStore, target: FaultyKeyValueStore) -> None:
    await imported(target, await exported(source))
    manager = await lead(target, PARTITIONS[0], [])
    metadata = segment(500, 509, partition=PARTITIONS[0], segment_id=UUID(int=77))
    await manager.add(metadata)
    await manager.update(step(metadata, FINISHED))
    assert manager.view(PARTITIONS[0]).segment_for(0, 505) is not None
    assert manager.session_id == SESSION


def lines_that_fail() -> Iterator[str]:
    yield from ()
    raise MetadataExportError("the disk is gone")


async def test_error_of_the_export_file_is_raised_by_the_import(target: FaultyKeyValueStore) -> None:
    with pytest.raises(TierError, match="disk"):
        await import_lines(target, KEYS, lines_that_fail, on_progress=lambda _: None)
