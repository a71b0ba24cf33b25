"""An export carries consumer groups with their committed offsets, and without groups it is the same as before."""

from uuid import UUID

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.metadata.histories import lead
from tests.metadata.whole_store.test_transfer import KEYS, PARTITIONS, everything, exported, imported
from tierd.errors import MetadataExportError, MetadataFillingRefusedError, OutcomeUnknownError
from tierd.metadata import KeyValueStore, MemoryKeyValueStore, store_identity
from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup, StaticMember
from tierd.serve.kafka.groups.storage.claimed_group import ClaimedGroup
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey
from tierd.serve.kafka.groups.storage.group_store import GroupStore

MEMBER = StaticMember(
    instance_id="one",
    member_id="one-1",
    client_id="client",
    client_host="/host",
    session_timeout_s=10.0,
    rebalance_timeout_s=60.0,
    protocols=(("range", b"\0\1"),),
)


async def claim(store: KeyValueStore, group: str = "readers") -> ClaimedGroup:
    stored = GroupStore(store, KEYS, timeout_s=30.0, clock=FakeClock())
    claimed = await ClaimedGroup.claim(stored, group, owner_id=1, session_id=UUID(int=5), now_ms=7, may_create=True)
    assert claimed is not None
    return claimed


@pytest.fixture
async def source() -> KeyValueStore:
    store = MemoryKeyValueStore()
    await store_identity(store, KEYS, new_id=lambda: UUID(int=42))
    await lead(store, PARTITIONS[0], [(0, 10, 0, 2)])
    group = await claim(store)
    await group.store(DurableGroup(3, "consumer", None, (MEMBER,)))
    offsets = {OffsetKey(UUID(int=1), at): GroupOffset("orders", at, -1, "ä", 1000) for at in range(600)}
    await group.commit(offsets)
    await claim(store, "leerläufer")
    return store


async def test_groups_are_imported_as_they_were_exported(source: KeyValueStore) -> None:
    lines, target = await exported(source), MemoryKeyValueStore()
    assert '"format_version":2' in lines[0]
    assert '"groups":2' in lines[-1]
    assert (await imported(target, lines)).groups == 2
    assert await everything(target) == await everything(source)
    assert (await imported(target, lines)).groups == 2
    assert len((await claim(target)).offsets) == 600


async def test_export_without_groups_has_the_form_that_earlier_versions_read() -> None:
    store = MemoryKeyValueStore()
    await lead(store, PARTITIONS[0], [(0, 10, 0, 2)])
    lines = await exported(store)
    assert '"format_version":1' in lines[0]
    assert not any("group" in line for line in lines)


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.DROP_REQUEST])
async def test_interrupted_import_of_groups_is_continued(source: KeyValueStore, fault: Fault) -> None:
    lines, target = await exported(source), FaultyKeyValueStore(MemoryKeyValueStore())
    await imported(target, lines)
    writes = len(target.batches)
    for number in range(1, writes):
        target = FaultyKeyValueStore(MemoryKeyValueStore())
        target.apply_faults.extend([*[None] * number, fault])
        with pytest.raises(OutcomeUnknownError):
            await imported(target, lines)
        await imported(target, lines)
        assert await everything(target) == await everything(source)


async def test_group_that_the_store_has_in_another_form_is_not_mixed_with_the_export(source: KeyValueStore) -> None:
    lines, target = await exported(source), MemoryKeyValueStore()
    await (await claim(target)).commit({OffsetKey(UUID(int=1), 0): GroupOffset("orders", 99, -1, "", 1)})
    with pytest.raises(MetadataFillingRefusedError, match="'readers'"):
        await imported(target, lines)


async def test_damaged_groups_of_an_export_are_refused(source: KeyValueStore) -> None:
    lines = await exported(source)
    at = next(number for number, line in enumerate(lines) if '"group":"readers"' in line and '"crc32c"' in line)
    changed = [*lines[: at + 1], lines[at + 1].replace('"generation":3', '"generation":4'), *lines[at + 2 :]]
    for damaged in (changed, lines[:at] + lines[-1:], [*lines[: at + 3], lines[-1]]):
        with pytest.raises(MetadataExportError):
            await imported(MemoryKeyValueStore(), damaged)
