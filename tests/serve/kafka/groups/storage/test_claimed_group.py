"""A group in the store: one coordinator writes it at a time, in every backend; and what is unknown is read back."""

from uuid import UUID

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tierd.errors import BackendUnavailableError, MetadataDecodeError, OutcomeUnknownError
from tierd.metadata import KeyValueStore, MemoryKeyValueStore, MetadataKeyFactory
from tierd.serve.kafka.groups.protocol.durable_group import DurableGroup, StaticMember
from tierd.serve.kafka.groups.storage.claimed_group import ClaimedGroup, GroupClaimLostError
from tierd.serve.kafka.groups.storage.group_offset import GroupOffset, OffsetKey
from tierd.serve.kafka.groups.storage.group_store import GroupStore

KEYS = MetadataKeyFactory("cluster")
KEY, OTHER = OffsetKey(UUID(int=1), 0), OffsetKey(UUID(int=1), 1)


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


def offset(value: int) -> GroupOffset:
    return GroupOffset("orders", value, 3, "métadonnées", 1000)


def static(member_id: str) -> StaticMember:
    return StaticMember(
        instance_id="one",
        member_id=member_id,
        client_id="client",
        client_host="/host",
        session_timeout_s=10.0,
        rebalance_timeout_s=60.0,
        protocols=(("range", b"\0\1"),),
    )


def stored_in(store: KeyValueStore) -> GroupStore:
    return GroupStore(store, KEYS, timeout_s=30.0, clock=FakeClock())


async def claimed(store: KeyValueStore, session: int = 1, *, may_create: bool = True) -> ClaimedGroup:
    found = await ClaimedGroup.claim(
        stored_in(store), "readers", owner_id=session, session_id=UUID(int=session), now_ms=5, may_create=may_create
    )
    assert found is not None
    return found


async def test_group_goes_from_one_coordinator_to_the_next_with_all_that_is_durable(any_store: KeyValueStore) -> None:
    one = await claimed(any_store)
    assert one.durable == DurableGroup(0, None, 5)
    durable = DurableGroup(4, "consumer", None, (static("m1"),))
    await one.store(durable)
    await one.commit({KEY: offset(10), OTHER: offset(20)})
    await one.commit({KEY: offset(11)}, [OTHER])
    two = await claimed(any_store, 2, may_create=False)
    assert two.durable == durable
    assert two.offsets == {KEY: offset(11)}
    with pytest.raises(GroupClaimLostError):
        await one.commit({KEY: offset(12)})
    with pytest.raises(GroupClaimLostError):
        await one.store(DurableGroup(5, "consumer", None))
    with pytest.raises(GroupClaimLostError):
        await one.delete()
    assert (await claimed(any_store, 3)).offsets == {KEY: offset(11)}


async def test_deleted_group_is_gone_with_its_rows_and_others_stay(any_store: KeyValueStore) -> None:
    one = await claimed(any_store)
    await one.store(DurableGroup(1, "consumer", None, (static("m1"),)))
    await one.commit({KEY: offset(10)})
    other = await stored_in(any_store).claim("writers", owner_id=1, session_id=UUID(int=9), now_ms=5, may_create=True)
    await one.delete()
    store = stored_in(any_store)
    assert [row.group for row in await store.all_rows()] == ["writers"]
    assert await store.row("writers") == other
    assert (await store.static_members("readers"), await store.offsets("readers")) == ({}, {})
    assert await store.claim("readers", owner_id=1, session_id=UUID(int=2), now_ms=5, may_create=False) is None
    with pytest.raises(GroupClaimLostError):
        await one.commit({KEY: offset(11)})


async def test_static_member_that_is_replaced_or_gone_is_so_in_the_store(store: FaultyKeyValueStore) -> None:
    one = await claimed(store)
    await one.store(DurableGroup(1, "consumer", None, (static("m1"),)))
    await one.store(DurableGroup(1, "consumer", None, (static("m2"),)))
    assert await stored_in(store).static_members("readers") == {"one": static("m2")}
    await one.store(DurableGroup(2, "consumer", 9))
    assert await stored_in(store).static_members("readers") == {}


async def test_only_wanted_offsets_are_read_from_one_snapshot_with_the_row(any_store: KeyValueStore) -> None:
    one = await claimed(any_store)
    await one.commit({KEY: offset(10), OTHER: offset(20)})
    row, offsets = await stored_in(any_store).some_offsets("readers", [KEY, OffsetKey(UUID(int=2), 0)])
    assert (row, offsets) == (one.row, {KEY: offset(10)})
    assert await stored_in(any_store).some_offsets("unknown", [KEY]) == (None, {})


async def test_commit_that_lands_late_does_not_lower_the_one_after_it(store: FaultyKeyValueStore) -> None:
    one = await claimed(store)
    store.apply_faults.append(Fault.LAND_LATE)
    with pytest.raises(OutcomeUnknownError):
        await one.commit({KEY: offset(10)})
    await one.claim_again()
    await one.commit({KEY: offset(20)})
    await store.land_late()
    assert (await stored_in(store).offsets("readers"))[KEY] == offset(20)
    assert one.offsets == {KEY: offset(20)}


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.DROP_REQUEST])
async def test_write_of_unknown_outcome_is_read_back(store: FaultyKeyValueStore, fault: Fault) -> None:
    one = await claimed(store)
    await one.commit({KEY: offset(10)})
    store.apply_faults.append(fault)
    with pytest.raises(OutcomeUnknownError):
        await one.store(DurableGroup(1, "consumer", None, (static("m1"),)))
    await one.claim_again()
    has_landed = fault is Fault.LOSE_ANSWER
    assert one.durable == (
        DurableGroup(1, "consumer", None, (static("m1"),)) if has_landed else DurableGroup(0, None, 5)
    )
    await one.store(DurableGroup(2, "consumer", None))
    assert (await claimed(store, 2)).durable.generation == 2


async def test_write_that_lands_while_it_is_read_back_counts(store: FaultyKeyValueStore) -> None:
    one = await claimed(store)
    store.apply_faults.append(Fault.LAND_LATE)
    with pytest.raises(OutcomeUnknownError):
        await one.store(DurableGroup(1, "consumer", None))

    async def land() -> None:
        store.before_apply = None
        await store.land_late()

    store.before_apply = land
    await one.claim_again()
    assert one.durable == DurableGroup(1, "consumer", None)
    await one.store(DurableGroup(2, "consumer", None))


async def test_claim_again_is_repeated_until_the_store_answers(store: FaultyKeyValueStore) -> None:
    one = await claimed(store)
    store.apply_faults.extend([Fault.DROP_REQUEST, Fault.FAIL, Fault.LOSE_ANSWER])
    for expected in (OutcomeUnknownError, BackendUnavailableError, OutcomeUnknownError):
        with pytest.raises(expected):
            await one.claim_again()
    await one.claim_again()
    await one.commit({KEY: offset(1)})
    assert (await claimed(store, 2)).offsets == {KEY: offset(1)}


async def test_claim_again_after_another_coordinator_has_come_is_lost(store: FaultyKeyValueStore) -> None:
    one = await claimed(store)
    await claimed(store, 2)
    with pytest.raises(GroupClaimLostError):
        await one.claim_again()


async def test_coordinators_that_claim_at_once_are_told_apart(store: FaultyKeyValueStore) -> None:
    await claimed(store)
    inner = store.inner

    async def other_claims() -> None:
        store.before_apply = None
        await claimed(inner, 7)

    store.before_apply = other_claims
    two = await claimed(store, 2)
    assert two.row.revision == 2
    await two.commit({KEY: offset(1)})


async def test_row_of_another_group_under_the_key_is_refused(store: FaultyKeyValueStore) -> None:
    one = await claimed(store)
    value = await store.get(KEYS.group("readers"))
    assert value is not None
    await store.create(KEYS.group("writers"), value)
    with pytest.raises(MetadataDecodeError, match="writers"):
        await stored_in(store).row("writers")
    assert await stored_in(store).all_rows() == [one.row, one.row]


async def test_damaged_rows_are_refused_where_they_matter_and_left_out_of_a_list(store: FaultyKeyValueStore) -> None:
    await claimed(store)
    await store.create(f"{KEYS.groups_prefix}damaged", b"\1{}")
    await store.create(f"{KEYS.group_offsets_prefix('readers')}no-partition", b"\1{}")
    assert [row.group for row in await stored_in(store).all_rows()] == ["readers"]
    with pytest.raises(MetadataDecodeError, match="no-partition"):
        await stored_in(store).offsets("readers")
