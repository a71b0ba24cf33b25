"""A group has one coordinator that can write, whatever the endpoints see of each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse

from tests.fakes.key_value_store import FaultyKeyValueStore
from tests.fakes.served_partitions import FIRST_NODE, SECOND_NODE
from tests.serve.kafka.groups.asked_groups import (
    GROUP,
    AskedGroups,
    FakeConsumer,
    GroupAnswerError,
    become_stable,
    settle,
)
from tierd.metadata import MemoryKeyValueStore
from tierd.serve.kafka.groups.coordination.placement import coordinator_of
from tierd.serve.kafka.served.served_cluster import EndpointNode

OK, GONE = ErrorCode.none, ErrorCode.not_coordinator
NODES = {node.node_id: node for node in (FIRST_NODE, SECOND_NODE)}
HOME = NODES[coordinator_of(GROUP, NODES)]
OTHER = next(node for node in NODES.values() if node != HOME)


class TwoEndpoints:
    """Two endpoints over one store, each with its own view of the live ones."""

    def __init__(self) -> None:
        self.store = FaultyKeyValueStore(MemoryKeyValueStore())
        self.home = AskedGroups(self.store, nodes=(HOME, OTHER))
        self.other = AskedGroups(self.store, nodes=(OTHER, HOME))

    def see(self, endpoint: AskedGroups, *nodes: EndpointNode) -> None:
        endpoint.served.set_nodes(*nodes)


@pytest.fixture
async def two() -> AsyncIterator[TwoEndpoints]:
    async with AsyncExitStack() as stack:
        endpoints = TwoEndpoints()
        await stack.enter_async_context(endpoints.home.running())
        await stack.enter_async_context(endpoints.other.running())
        yield endpoints


async def coordinator(endpoint: AskedGroups, group: str = GROUP) -> int:
    answer = await endpoint.answer(FindCoordinatorRequest(coordinator_keys=(group,)), FindCoordinatorResponse)
    return answer.coordinators[0].node_id


async def test_both_endpoints_name_the_same_coordinator(two: TwoEndpoints) -> None:
    assert await coordinator(two.home) == await coordinator(two.other) == HOME.node_id
    found = {await coordinator(two.home, f"group-{number}") for number in range(20)}
    assert found == {1, 2}


async def test_endpoint_that_is_not_the_coordinator_says_so(two: TwoEndpoints) -> None:
    alice = FakeConsumer(two.other)
    assert await alice.join() is GONE
    assert await alice.beat() is GONE
    assert await alice.commit(1) is GONE
    assert await alice.leave() is GONE
    with pytest.raises(GroupAnswerError, match="not_coordinator"):
        await two.other.committed()


async def test_group_moves_with_its_commits_when_its_endpoint_is_lost(two: TwoEndpoints) -> None:
    alice = FakeConsumer(two.home)
    await become_stable(alice, endpoint=two.home)
    assert await alice.commit(10) is OK
    await two.home.kill()
    two.see(two.other, OTHER)
    assert await coordinator(two.other) == OTHER.node_id
    assert (await two.other.committed())[0] == 10
    alice.endpoint = two.other
    assert await alice.beat() is ErrorCode.unknown_member_id
    alice.member_id = ""
    await become_stable(alice, endpoint=two.other)
    assert alice.generation == 2
    assert await alice.commit(11) is OK


async def test_group_goes_back_when_its_endpoint_comes_back(two: TwoEndpoints) -> None:
    two.see(two.other, OTHER)
    alice = FakeConsumer(two.other)
    await become_stable(alice, endpoint=two.other)
    bob = FakeConsumer(two.other, "bob")
    joining = asyncio.create_task(bob.join())
    await settle()
    two.see(two.other, OTHER, HOME)
    assert await alice.beat() is GONE
    assert await joining is GONE
    for each in (alice, bob):
        each.endpoint, each.member_id = two.home, ""
    await become_stable(alice, bob, endpoint=two.home)
    assert alice.generation == 2


async def test_waiting_clients_learn_that_their_group_has_moved_without_another_request(two: TwoEndpoints) -> None:
    joining = asyncio.create_task(FakeConsumer(two.home).join())
    await settle()
    two.see(two.home, HOME, EndpointNode(99, "new.example", 9092), *(node for node in NODES.values() if node != HOME))
    if coordinator_of(GROUP, [1, 2, 99]) == HOME.node_id:
        two.see(two.home, OTHER)
    await two.home.pass_time(3.0)
    assert await joining is GONE


async def test_only_the_last_of_two_coordinators_can_write(two: TwoEndpoints) -> None:
    """Both endpoints take themselves for the only live one, and clients reach both."""
    two.see(two.home, HOME)
    two.see(two.other, OTHER)
    alice, bob = FakeConsumer(two.home, "alice"), FakeConsumer(two.other, "bob")
    await become_stable(alice, endpoint=two.home)
    assert await alice.commit(10) is OK
    await become_stable(bob, endpoint=two.other)
    assert bob.generation == 2
    assert await bob.commit(20) is OK
    assert await alice.commit(11) is GONE
    assert await two.other.committed() == {0: 20, 1: -1, 2: -1, 3: -1}
    assert two.home.groups.statistics().counters.claims_lost == 1
    assert (await two.home.committed())[0] == 20


async def test_coordinator_that_lost_its_group_never_answers_its_own_old_commits(two: TwoEndpoints) -> None:
    two.see(two.home, HOME)
    two.see(two.other, OTHER)
    simple, other = FakeConsumer(two.home), FakeConsumer(two.other)
    assert await simple.commit(10) is OK
    assert await other.commit(20) is OK
    with pytest.raises(GroupAnswerError, match="not_coordinator"):
        await two.home.committed()
    assert (await two.home.committed())[0] == 20


async def test_members_of_a_lost_group_learn_it_soon_though_they_do_not_commit(two: TwoEndpoints) -> None:
    two.see(two.other, OTHER)
    alice, bob = FakeConsumer(two.home, "alice"), FakeConsumer(two.other, "bob")
    await become_stable(alice, endpoint=two.home)
    assert await FakeConsumer(two.other).beat() is ErrorCode.unknown_member_id
    joining = asyncio.create_task(bob.join())
    await settle()
    await two.home.pass_time(4.0)
    assert await alice.beat() is ErrorCode.unknown_member_id
    joining.cancel()


async def test_rebalance_of_a_coordinator_that_lost_its_group_sends_members_away(two: TwoEndpoints) -> None:
    two.see(two.home, HOME)
    two.see(two.other, OTHER)
    alice, bob = FakeConsumer(two.home, "alice"), FakeConsumer(two.home, "bob")
    await become_stable(alice, endpoint=two.home)
    assert await FakeConsumer(two.other, "carol").join(is_patient=False) is ErrorCode.member_id_required
    joining = asyncio.create_task(bob.join())
    await settle()
    assert await alice.join() is GONE
    assert await joining is GONE
