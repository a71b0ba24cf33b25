"""Groups without clients leave memory, then the store; the status shows all groups in memory."""

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.manual_clock import ManualClock
from tests.serve.kafka.groups.asked_groups import GROUP, KEYS, AskedGroups, FakeConsumer, become_stable
from tierd.metadata import Batch, MemoryKeyValueStore, Put
from tierd.serve.kafka.groups import CoordinationLimits
from tierd.serve.kafka.groups.storage.group_offset import OffsetKey
from tierd.serve.kafka.groups.storage.group_rows import GroupRow, encode_group

OK = ErrorCode.none
LIMITS = CoordinationLimits(offsets_retention_s=600.0, upkeep_interval_s=60.0, claim_check_interval_s=20.0)
STEP_S = 20.0
NO_SUCH_GROUP = {0: -1, 1: -1, 2: -1, 3: -1}


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


@pytest.fixture
async def endpoint(store: FaultyKeyValueStore) -> AsyncIterator[AskedGroups]:
    async with AskedGroups(store, limits=LIMITS).running() as running:
        yield running


async def rows(store: FaultyKeyValueStore) -> int:
    return len(await store.scan(KEYS.all_prefix))


async def keep_alive(endpoint: AskedGroups, *consumers: FakeConsumer, duration_s: float) -> None:
    for _ in range(round(duration_s / 9.0)):
        await endpoint.pass_time(9.0, step_s=9.0)
        for consumer in consumers:
            assert await consumer.beat() is OK


async def test_group_without_members_keeps_its_commits_for_the_retention_then_leaves_the_store(
    endpoint: AskedGroups, store: FaultyKeyValueStore
) -> None:
    alice = FakeConsumer(endpoint)
    await become_stable(alice, endpoint=endpoint)
    assert await alice.commit(10) is OK
    assert await alice.leave() is OK
    await endpoint.pass_time(580.0, step_s=STEP_S)
    assert (await endpoint.committed())[0] == 10
    await endpoint.pass_time(140.0, step_s=STEP_S)
    assert await endpoint.committed() == NO_SUCH_GROUP
    assert await rows(store) == 0
    assert endpoint.groups.statistics().groups == ()


async def test_members_keep_the_commits_of_their_topics_however_old(endpoint: AskedGroups) -> None:
    endpoint.served.add_topic("former")
    alice = FakeConsumer(endpoint)
    await become_stable(alice, endpoint=endpoint)
    assert (await alice.commit(10), await alice.commit(5, topic="former")) == (OK, OK)
    await keep_alive(endpoint, alice, duration_s=720.0)
    assert (await endpoint.committed())[0] == 10
    assert await endpoint.committed(0, topic="former") == {0: -1}


async def test_simple_commit_expires_by_its_own_age(endpoint: AskedGroups, store: FaultyKeyValueStore) -> None:
    simple = FakeConsumer(endpoint)
    assert await simple.commit(1) is OK
    await endpoint.pass_time(300.0, step_s=STEP_S)
    assert await simple.commit(2, partition=1) is OK
    await endpoint.pass_time(420.0, step_s=STEP_S)
    assert await endpoint.committed() == {0: -1, 1: 2, 2: -1, 3: -1}
    await endpoint.pass_time(300.0, step_s=STEP_S)
    assert await rows(store) == 0


async def test_damaged_commit_of_one_group_does_not_keep_those_of_others(
    endpoint: AskedGroups, store: FaultyKeyValueStore
) -> None:
    assert await FakeConsumer(endpoint).commit(1) is OK
    earlier = next(name for name in map(str, range(99)) if KEYS.group(name) < KEYS.group(GROUP))
    row = GroupRow(group=earlier, owner_id=1, session_id=UUID(int=1), revision=0)
    damaged = Put(KEYS.group_offset(earlier, UUID(int=7), 0), b"no commit")
    await store.apply(Batch([Put(KEYS.group(earlier), encode_group(row)), damaged]))
    await endpoint.pass_time(800.0, step_s=STEP_S)
    assert await endpoint.committed() == NO_SUCH_GROUP


async def test_group_whose_daemon_ended_with_members_expires_too(store: FaultyKeyValueStore) -> None:
    clock = ManualClock()
    async with AskedGroups(store, limits=LIMITS, clock=clock).running() as endpoint:
        alice = FakeConsumer(endpoint)
        await become_stable(alice, endpoint=endpoint)
        assert await alice.commit(10) is OK
    async with AskedGroups(store, limits=LIMITS, clock=clock).running() as again:
        await again.pass_time(580.0, step_s=STEP_S)
        assert (await again.committed())[0] == 10
        await again.pass_time(260.0, step_s=STEP_S)
        assert await rows(store) == 0


async def test_group_that_no_client_ever_completed_leaves_the_store_soon(
    endpoint: AskedGroups, store: FaultyKeyValueStore
) -> None:
    assert await FakeConsumer(endpoint).join(is_patient=False) is ErrorCode.member_id_required
    assert await rows(store) == 1
    await endpoint.pass_time(200.0, step_s=STEP_S)
    assert await rows(store) == 0


async def test_group_that_was_not_used_leaves_memory_and_is_loaded_when_it_is_used_again(
    endpoint: AskedGroups,
) -> None:
    simple = FakeConsumer(endpoint)
    assert await simple.commit(1) is OK
    await endpoint.pass_time(300.0, step_s=STEP_S)
    [idle] = endpoint.groups.statistics().groups
    assert (idle.group, idle.state, idle.protocol_type) == (GROUP, "Empty", "")
    assert await simple.commit(2) is OK
    statistics = endpoint.groups.statistics()
    assert (statistics.counters.claims, statistics.counters.commits) == (2, 2)


async def test_statistics_have_members_and_commits_of_groups_in_use_and_of_others(endpoint: AskedGroups) -> None:
    alice, bob = FakeConsumer(endpoint, "alice"), FakeConsumer(endpoint, "bob", instance_id="one")
    await become_stable(alice, bob, endpoint=endpoint)
    assert await alice.commit(10) is OK
    assert await FakeConsumer(endpoint, group="another").commit(7, partition=2) is OK
    await keep_alive(endpoint, alice, bob, duration_s=180.0)
    another, readers = endpoint.groups.statistics().groups
    assert (another.group, another.members) == ("another", ())
    assert {key: each.offset for key, each in another.offsets.items()} == {OffsetKey(UUID(int=1), 2): 7}
    assert (readers.state, readers.generation, readers.protocol_name) == ("Stable", 1, "range")
    assert [(each.client_id, each.instance_id) for each in readers.members] == [("alice", None), ("bob", "one")]
    assert readers.members[0].client_host == "/127.0.0.1"
    assert endpoint.groups.statistics().is_complete


async def test_upkeep_goes_on_after_a_store_that_was_down(endpoint: AskedGroups, store: FaultyKeyValueStore) -> None:
    assert await FakeConsumer(endpoint).commit(1) is OK
    for _ in range(7):
        store.read_faults.extend([Fault.FAIL] * 3)
        store.apply_faults.append(Fault.FAIL)
        await endpoint.pass_time(100.0, step_s=STEP_S)
    store.read_faults.clear()
    store.apply_faults.clear()
    await endpoint.pass_time(300.0, step_s=STEP_S)
    assert await rows(store) == 0
