"""Consumers join, read on where they committed, and go on after a restart of either side."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from kio.schema.errors import ErrorCode

from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.serve.kafka.groups.asked_groups import (
    AskedGroups,
    FakeConsumer,
    GroupAnswerError,
    become_stable,
    settle,
)
from tierd.metadata import KeyValueStore, MemoryKeyValueStore

OK, REBALANCE = ErrorCode.none, ErrorCode.rebalance_in_progress
AWAY, UNKNOWN = ErrorCode.coordinator_not_available, ErrorCode.unknown_member_id


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


@pytest.fixture
async def endpoint(store: KeyValueStore) -> AsyncIterator[AskedGroups]:
    async with AskedGroups(store).running() as running:
        yield running


async def test_two_consumers_share_a_topic_and_a_third_one_rebalances_them(endpoint: AskedGroups) -> None:
    alice, bob, carol = (FakeConsumer(endpoint, name) for name in ("alice", "bob", "carol"))
    await become_stable(alice, bob, endpoint=endpoint)
    assert (alice.generation, bob.generation) == (1, 1)
    assert alice.joined is not None
    assert {each.member_id for each in alice.joined.members} == {alice.member_id, bob.member_id}
    assert alice.joined.leader == alice.member_id != bob.member_id
    assert (await alice.commit(10), await bob.commit(20, partition=1)) == (OK, OK)
    joining = asyncio.create_task(carol.join())
    await settle()
    assert (await alice.beat(), await bob.beat()) == (REBALANCE, REBALANCE)
    assert (await alice.commit(11), await bob.commit(21, partition=1)) == (OK, OK)
    assert {*await asyncio.gather(alice.join(), bob.join(), joining)} == {OK}
    assert (alice.generation, carol.generation) == (2, 2)
    assert await alice.sync({carol.member_id: b"all"}) == b""
    assert await carol.sync() == b"all"
    assert await endpoint.committed() == {0: 11, 1: 21, 2: -1, 3: -1}


async def test_consumer_that_vanishes_is_removed_by_its_session(endpoint: AskedGroups) -> None:
    alice, bob = FakeConsumer(endpoint, "alice"), FakeConsumer(endpoint, "bob")
    await become_stable(alice, bob, endpoint=endpoint)
    for _ in range(2):
        await endpoint.pass_time(5.0)
        await alice.beat()
    assert await alice.beat() is REBALANCE
    assert await alice.join() is OK
    assert await bob.beat() is UNKNOWN
    assert await bob.commit(1) is UNKNOWN
    assert endpoint.groups.statistics().counters.members_lost == 1


async def test_join_whose_client_has_gone_leaves_its_member_to_the_session_timeout(endpoint: AskedGroups) -> None:
    alice, bob = FakeConsumer(endpoint, "alice"), FakeConsumer(endpoint, "bob")
    await become_stable(alice, endpoint=endpoint)
    joining = asyncio.create_task(bob.join())
    await settle()
    joining.cancel()
    await settle()
    assert await alice.beat() is REBALANCE
    assert await alice.join() is OK
    assert alice.joined is not None
    assert len(alice.joined.members) == 2
    await alice.sync({alice.member_id: b"half"})
    for _ in range(2):
        await endpoint.pass_time(5.0)
        await alice.beat()
    assert await alice.join() is OK
    assert len(alice.joined.members) == 1


async def test_join_and_sync_that_wait_end_when_the_endpoint_stops(endpoint: AskedGroups) -> None:
    alice, bob = FakeConsumer(endpoint, "alice"), FakeConsumer(endpoint, "bob")
    joins = [asyncio.create_task(alice.join()), asyncio.create_task(bob.join())]
    await endpoint.pass_time(6.0)
    assert {*await asyncio.gather(*joins)} == {OK}
    leader, follower = (alice, bob) if alice.joined is not None and alice.joined.members else (bob, alice)
    syncing = asyncio.create_task(follower.sync())
    joining = asyncio.create_task(FakeConsumer(endpoint, "carol").join())
    await settle()
    with pytest.raises(GroupAnswerError, match="rebalance_in_progress"):
        await syncing
    rejoining = asyncio.create_task(leader.join())
    await settle()
    endpoint.closing.set()
    assert (await joining, await rejoining) == (AWAY, AWAY)


async def test_waiting_clients_are_sent_away_when_the_groups_end(store: KeyValueStore) -> None:
    async with AskedGroups(store).running() as endpoint:
        joining = asyncio.create_task(FakeConsumer(endpoint).join())
        await settle()
    assert await joining is ErrorCode.not_coordinator
    assert await FakeConsumer(endpoint).join() is AWAY
    assert await FakeConsumer(endpoint).beat() is AWAY
    with pytest.raises(GroupAnswerError, match="coordinator_not_available"):
        await endpoint.committed()


async def test_consumers_go_on_after_a_restart_of_the_daemon(store: KeyValueStore) -> None:
    async with AskedGroups(store).running() as endpoint:
        alice, bob = FakeConsumer(endpoint, "alice"), FakeConsumer(endpoint, "bob", instance_id="b")
        await become_stable(alice, bob, endpoint=endpoint)
        assert (await alice.commit(10), await bob.commit(20, partition=1)) == (OK, OK)
    async with AskedGroups(store).running() as again:
        assert await again.committed() == {0: 10, 1: 20, 2: -1, 3: -1}
        alice.endpoint = bob.endpoint = again
        assert await alice.beat() is UNKNOWN
        assert await bob.beat() is REBALANCE
        former = FakeConsumer(again, instance_id="b")
        former.member_id, former.generation = "former", bob.generation
        assert await former.beat() is ErrorCode.fenced_instance_id
        alice.member_id, alice.generation = "", -1
        joins = [asyncio.create_task(bob.join()), asyncio.create_task(alice.join())]
        await again.pass_time(6.0)
        assert {*await asyncio.gather(*joins)} == {OK}
        assert (alice.generation, bob.generation) == (2, 2)


async def test_static_consumer_that_restarts_keeps_its_assignment(endpoint: AskedGroups) -> None:
    alice, bob = (FakeConsumer(endpoint, name, instance_id=name) for name in ("alice", "bob"))
    await become_stable(alice, bob, endpoint=endpoint)
    reborn = FakeConsumer(endpoint, "alice", instance_id="alice")
    assert await reborn.join() is OK
    assert reborn.generation == 1
    assert reborn.joined is not None
    assert reborn.joined.skip_assignment
    assert await reborn.sync() == b"alice"
    assert await alice.beat() is ErrorCode.fenced_instance_id
    assert await bob.beat() is OK
    old = FakeConsumer(endpoint, "alice", instance_id="alice")
    assert await old.join(version=5) is OK
    assert old.joined is not None
    assert (old.joined.members, old.joined.leader) == ((), reborn.member_id)


async def test_consumers_keep_their_assignments_while_the_store_is_down(
    endpoint: AskedGroups, store: FaultyKeyValueStore
) -> None:
    alice = FakeConsumer(endpoint)
    await become_stable(alice, endpoint=endpoint)
    assert await alice.commit(10) is OK
    for fault in (Fault.FAIL, Fault.LOSE_ANSWER, Fault.DROP_REQUEST):
        store.apply_faults.append(fault)
        assert await alice.commit(11) is AWAY
        assert await alice.beat() is OK
    store.read_faults.append(Fault.FAIL)
    with pytest.raises(GroupAnswerError, match="coordinator_not_available"):
        await endpoint.committed()
    assert await alice.commit(12) is OK
    assert (await endpoint.committed())[0] == 12
    assert alice.generation == 1
    assert endpoint.groups.statistics().counters.failed_commits == 3


async def test_group_that_cannot_be_loaded_is_asked_for_again(
    endpoint: AskedGroups, store: FaultyKeyValueStore
) -> None:
    alice = FakeConsumer(endpoint)
    for fault in (Fault.FAIL, Fault.DROP_REQUEST, Fault.LOSE_ANSWER):
        store.apply_faults.append(fault)
        assert await alice.join() is AWAY
    store.read_faults.append(Fault.FAIL)
    assert await alice.beat() is AWAY
    await become_stable(alice, endpoint=endpoint)


async def test_rebalance_waits_out_a_store_that_is_down(endpoint: AskedGroups, store: FaultyKeyValueStore) -> None:
    alice, bob = FakeConsumer(endpoint, "alice"), FakeConsumer(endpoint, "bob")
    await become_stable(alice, endpoint=endpoint)
    joining = asyncio.create_task(bob.join())
    await settle()
    store.apply_faults.append(Fault.LOSE_ANSWER)
    assert await alice.join() is AWAY
    assert await joining is AWAY
    assert await alice.beat() is REBALANCE
    joining = asyncio.create_task(bob.join())
    assert await alice.join() is OK
    assert await joining is OK
    assert (alice.generation, bob.generation) == (2, 2)


async def test_requests_for_a_group_that_is_being_loaded_share_one_load(
    endpoint: AskedGroups, store: FaultyKeyValueStore
) -> None:
    simple = FakeConsumer(endpoint)
    store.apply_faults.append(Fault.HANG)
    commits = [asyncio.create_task(simple.commit(number, partition=number)) for number in range(4)]
    beat = asyncio.create_task(FakeConsumer(endpoint).beat())
    await store.hanging.wait()
    store.release()
    assert {*await asyncio.gather(*commits)} == {OK}
    assert await beat is UNKNOWN
    assert endpoint.groups.statistics().counters.claims == 1
    assert await endpoint.committed() == {0: 0, 1: 1, 2: 2, 3: 3}


async def test_positions_are_not_reset_under_members_and_are_when_they_have_left(endpoint: AskedGroups) -> None:
    alice, tool = FakeConsumer(endpoint, "alice"), FakeConsumer(endpoint, "tool")
    await become_stable(alice, endpoint=endpoint)
    assert await alice.commit(10) is OK
    assert await tool.commit(0) is UNKNOWN
    assert await endpoint.committed(0) == {0: 10}
    assert await alice.leave() is OK
    assert await tool.commit(3) is OK
    late = FakeConsumer(endpoint, "alice")
    await become_stable(late, endpoint=endpoint)
    assert await endpoint.committed(0) == {0: 3}


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
async def test_members_and_their_commits_outlast_a_step_of_the_wall_clock(endpoint: AskedGroups, days: int) -> None:
    alice = FakeConsumer(endpoint)
    await become_stable(alice, endpoint=endpoint)
    assert await alice.commit(10) is OK
    endpoint.clock.step_wall_clock(days * 86_400_000)
    for _ in range(150):  # longer than the time between two rounds of expiry
        await endpoint.pass_time(9.0, step_s=9.0)
        assert await alice.beat() is OK
    assert await alice.commit(11, partition=1) is OK
    assert await endpoint.committed(0, 1) == {0: 10, 1: 11}


@pytest.mark.parametrize("days", [-400, -1])
async def test_commits_of_an_idle_group_outlast_a_wall_clock_that_steps_back(endpoint: AskedGroups, days: int) -> None:
    alice = FakeConsumer(endpoint)
    await become_stable(alice, endpoint=endpoint)
    assert await alice.commit(10) is OK
    assert await alice.leave() is OK
    endpoint.clock.step_wall_clock(days * 86_400_000)
    await endpoint.pass_time(2000.0, step_s=50.0)
    assert await endpoint.committed(0) == {0: 10}
