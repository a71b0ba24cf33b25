"""Groups are listed, described and deleted by those who may; coordinators are found for groups alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import DescribedGroup, DescribeGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as FindOneRequest
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as FindOneResponse
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListGroupsResponse
from kio.schema.types import GroupId
from kio.static.primitive import i8, i32Timedelta

from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.serve.kafka.groups.asked_groups import (
    GROUP,
    AskedGroups,
    FakeConsumer,
    GroupAnswerError,
    become_stable,
    settle,
)
from tierd.metadata import MemoryKeyValueStore
from tierd.serve.kafka.groups import CoordinationLimits

OK, AWAY = ErrorCode.none, ErrorCode.coordinator_not_available
BUSY = ErrorCode.coordinator_load_in_progress
HELD_BACK = "User:restored"


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


@pytest.fixture
async def endpoint(store: FaultyKeyValueStore) -> AsyncIterator[AskedGroups]:
    async with AskedGroups(store).running() as running:
        yield running


async def listed(
    endpoint: AskedGroups, *, states: Sequence[str] = (), types: Sequence[str] = (), principal: str = "User:x"
) -> dict[str, tuple[str, str, str]]:
    request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
    answer = await endpoint.answer(request, ListGroupsResponse, principal=principal)
    if answer.error_code:
        raise GroupAnswerError(answer.error_code)
    return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answer.groups}


async def described(
    endpoint: AskedGroups, group: str = GROUP, *, version: int = 6, operations: bool = False
) -> DescribedGroup:
    request = DescribeGroupsRequest(groups=(GroupId(group),), include_authorized_operations=operations)
    [answer] = (await endpoint.answer(request, DescribeGroupsResponse, version=version)).groups
    return answer


async def deleted(endpoint: AskedGroups, *groups: str) -> list[ErrorCode]:
    request = DeleteGroupsRequest(groups_names=tuple(map(GroupId, groups)))
    answer = await endpoint.answer(request, DeleteGroupsResponse)
    return [each.error_code for each in answer.results]


async def test_groups_are_listed_by_state_and_type_whether_in_memory_or_not(store: FaultyKeyValueStore) -> None:
    async with AskedGroups(store).running() as endpoint:
        assert await FakeConsumer(endpoint, group="simple").commit(1) is OK
    async with AskedGroups(store).running() as endpoint:
        await become_stable(FakeConsumer(endpoint), endpoint=endpoint)
        everything = {"simple": ("", "Empty", "classic"), GROUP: ("consumer", "Stable", "classic")}
        assert await listed(endpoint) == await listed(endpoint, types=["Classic", "share"]) == everything
        assert set(await listed(endpoint, states=["stable", "dead"])) == {GROUP}
        assert set(await listed(endpoint, states=["Empty"])) == {"simple"}
        assert await listed(endpoint, types=["consumer"]) == {}
        endpoint.authorizer.forbidden_groups.add(GROUP)
        assert set(await listed(endpoint)) == {"simple"}


async def test_stable_group_is_described_with_assignments_and_others_without(endpoint: AskedGroups) -> None:
    alice = FakeConsumer(endpoint, instance_id="one")
    await become_stable(alice, endpoint=endpoint)
    answer = await described(endpoint)
    assert (answer.group_state, answer.protocol_type, answer.protocol_data) == ("Stable", "consumer", "range")
    [member] = answer.members
    assert (member.member_id, member.group_instance_id) == (alice.member_id, "one")
    assert (member.client_id, member.client_host, member.member_assignment) == ("alice", "/127.0.0.1", b"alice")
    assert b"orders" in member.member_metadata
    joining = asyncio.create_task(FakeConsumer(endpoint).join())
    await settle()
    answer = await described(endpoint)
    assert (answer.group_state, answer.protocol_data) == ("PreparingRebalance", "")
    assert [each.member_assignment for each in answer.members] == [b"", b""]
    joining.cancel()


async def test_group_that_does_not_exist_is_described_as_dead_or_not_found(endpoint: AskedGroups) -> None:
    new, old = await described(endpoint), await described(endpoint, version=5)
    assert (new.error_code, new.group_state) == (ErrorCode.group_id_not_found, "Dead")
    assert new.error_message == "Group readers not found."
    assert (old.error_code, old.group_state) == (OK, "Dead")


async def test_operations_are_told_where_they_are_asked_for(endpoint: AskedGroups) -> None:
    assert await FakeConsumer(endpoint).commit(1) is OK
    assert (await described(endpoint, operations=True)).authorized_operations == 8 + 64 + 256
    assert (await described(endpoint)).authorized_operations == -(2**31)


async def test_group_without_members_is_deleted_with_its_commits(endpoint: AskedGroups) -> None:
    alice = FakeConsumer(endpoint)
    await become_stable(alice, endpoint=endpoint)
    assert await alice.commit(10) is OK
    endpoint.authorizer.forbidden_groups.add("forbidden")
    assert await deleted(endpoint, GROUP, "unknown", "forbidden") == [
        ErrorCode.non_empty_group,
        ErrorCode.group_id_not_found,
        ErrorCode.group_authorization_failed,
    ]
    assert await alice.leave() is OK
    assert await deleted(endpoint, GROUP, GROUP) == [OK]
    assert await endpoint.committed() == {0: -1, 1: -1, 2: -1, 3: -1}
    assert await listed(endpoint) == {}
    assert await alice.beat() is ErrorCode.unknown_member_id


async def test_group_that_is_only_in_the_store_is_deleted(store: FaultyKeyValueStore) -> None:
    async with AskedGroups(store).running() as endpoint:
        assert await FakeConsumer(endpoint).commit(1) is OK
    async with AskedGroups(store).running() as endpoint:
        assert await deleted(endpoint, GROUP) == [OK]
        assert await listed(endpoint) == {}


async def test_deletion_and_a_commit_at_once_leave_one_of_both(endpoint: AskedGroups) -> None:
    simple = FakeConsumer(endpoint)
    assert await simple.commit(1) is OK
    deletion, commit = await asyncio.gather(deleted(endpoint, GROUP), simple.commit(2))
    assert deletion == [OK]
    assert commit in (OK, ErrorCode.not_coordinator)
    assert (await endpoint.committed())[0] in (-1, 2)


async def test_store_that_is_down_is_a_coordinator_that_is_not_available(
    endpoint: AskedGroups, store: FaultyKeyValueStore
) -> None:
    assert await FakeConsumer(endpoint, group="simple").commit(1) is OK
    store.read_faults.extend([Fault.FAIL] * 3)
    with pytest.raises(GroupAnswerError, match="coordinator_not_available"):
        await listed(endpoint)
    assert (await described(endpoint)).error_code is AWAY
    assert await deleted(endpoint, GROUP) == [AWAY]
    assert (await described(endpoint, "simple")).group_state == "Empty"
    store.apply_faults.extend([Fault.FAIL])
    assert await deleted(endpoint, "simple") == [AWAY]
    assert await deleted(endpoint, "simple") == [OK]


async def test_clients_in_quarantine_are_held_back_until_they_are_released(endpoint: AskedGroups) -> None:
    assert await FakeConsumer(endpoint).commit(1) is OK
    endpoint.authorizer.quarantined.add("User:ANONYMOUS")
    alice = FakeConsumer(endpoint)
    assert (await alice.join(), await alice.beat(), await alice.leave()) == (AWAY, AWAY, AWAY)
    assert await alice.commit(2) is AWAY
    for call in (endpoint.committed, alice.sync):
        with pytest.raises(GroupAnswerError, match="coordinator_not_available"):
            await call()
    with pytest.raises(GroupAnswerError, match="coordinator_not_available"):
        await listed(endpoint, principal="User:ANONYMOUS")
    assert (await described(endpoint)).error_code is AWAY
    assert await deleted(endpoint, GROUP) == [AWAY]
    found = await endpoint.answer(FindCoordinatorRequest(coordinator_keys=(GROUP,)), FindCoordinatorResponse)
    assert (found.coordinators[0].error_code, found.coordinators[0].node_id) == (AWAY, -1)
    endpoint.authorizer.quarantined.clear()
    assert (await endpoint.committed())[0] == 1
    await become_stable(alice, endpoint=endpoint)


async def test_members_need_their_group(endpoint: AskedGroups) -> None:
    endpoint.authorizer.forbidden_groups.add(GROUP)
    alice, refused = FakeConsumer(endpoint), ErrorCode.group_authorization_failed
    assert (await alice.join(), await alice.beat(), await alice.leave()) == (refused, refused, refused)
    nameless = FakeConsumer(endpoint, group="")
    assert (await nameless.join(), await nameless.beat()) == (ErrorCode.invalid_group_id, ErrorCode.invalid_group_id)
    assert await nameless.commit(1) is OK


@pytest.mark.parametrize("version", range(7))
async def test_coordinator_is_this_endpoint_in_every_version(endpoint: AskedGroups, version: int) -> None:
    if version < 4:
        one = await endpoint.answer(FindOneRequest(key=GROUP), FindOneResponse, version=version)
        assert (one.error_code, one.node_id, one.host, one.port) == (OK, 1, "one.example", 9092)
        return
    request = FindCoordinatorRequest(coordinator_keys=(GROUP, "another"))
    found = (await endpoint.answer(request, FindCoordinatorResponse, version=version)).coordinators
    assert [each.key for each in found] == [GROUP, "another"]
    assert {(each.error_code, each.node_id, each.host, each.port) for each in found} == {(OK, 1, "one.example", 9092)}


@pytest.mark.parametrize(
    ("key_type", "error"),
    [
        (1, ErrorCode.transactional_id_authorization_failed),
        (2, ErrorCode.invalid_request),
        (9, ErrorCode.invalid_request),
    ],
)
async def test_coordinators_of_transactions_and_share_groups_are_refused(
    endpoint: AskedGroups, key_type: int, error: ErrorCode
) -> None:
    one = await endpoint.answer(FindOneRequest(key="any", key_type=i8(key_type)), FindOneResponse)
    assert (one.error_code, one.node_id) == (error, -1)
    request = FindCoordinatorRequest(coordinator_keys=("any",), key_type=i8(key_type))
    [found] = (await endpoint.answer(request, FindCoordinatorResponse)).coordinators
    assert (found.error_code, found.node_id) == (error, -1)
    assert "tierd's read endpoint" in (found.error_message or "")


def join(group: str = GROUP, *, size_bytes: int = 100) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GroupId(group),
        session_timeout=i32Timedelta.parse(timedelta(seconds=10)),
        rebalance_timeout=i32Timedelta.parse(timedelta(seconds=60)),
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=bytes(size_bytes)),),
        reason=None,
    )


def protocols(*names: str) -> tuple[JoinGroupRequestProtocol, ...]:
    return tuple(JoinGroupRequestProtocol(name=name, metadata=b"") for name in names)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (replace(join(), protocol_type="t" * 256), ErrorCode.inconsistent_group_protocol),
        (replace(join(), protocols=protocols("n" * 256)), ErrorCode.inconsistent_group_protocol),
        (replace(join(), protocols=protocols(*map(str, range(101)))), ErrorCode.inconsistent_group_protocol),
        (replace(join(), group_instance_id="i" * 250), ErrorCode.invalid_request),
    ],
    ids=["long type", "long name", "many protocols", "long instance id"],
)
async def test_join_that_only_fills_memory_is_refused_and_makes_no_group(
    endpoint: AskedGroups, request_: JoinGroupRequest, error: ErrorCode
) -> None:
    assert (await endpoint.answer(request_, JoinGroupResponse)).error_code is error
    assert await listed(endpoint) == {}


async def test_members_of_all_groups_together_have_a_bound_on_their_memory(store: FaultyKeyValueStore) -> None:
    limits = CoordinationLimits(max_member_bytes=4 << 20)
    async with AskedGroups(store, limits=limits).running() as endpoint:

        async def joined(group: str, *, size_bytes: int = 100) -> ErrorCode:
            """Return the answer to a join of an old client, which has no member id; the member waits then."""
            request = join(group, size_bytes=size_bytes)
            asking = asyncio.create_task(endpoint.answer(request, JoinGroupResponse, version=3))
            await settle()
            if asking.done():
                return asking.result().error_code
            asking.cancel()
            return OK

        assert [await joined(f"g{n}", size_bytes=1 << 20) for n in range(4)] == [OK, OK, BUSY, BUSY]
        assert await joined("small") is OK
        await endpoint.pass_time(400)  # the clients did not come back
        assert await joined("g4", size_bytes=1 << 20) is OK


async def test_group_goes_on_while_others_have_all_the_memory_that_joins_may_have(store: FaultyKeyValueStore) -> None:
    limits = CoordinationLimits(max_member_bytes=4 << 20)
    async with AskedGroups(store, limits=limits).running() as endpoint:
        alice = FakeConsumer(endpoint)
        await become_stable(alice, endpoint=endpoint)
        waiting = [
            asyncio.create_task(endpoint.answer(join(f"g{n}", size_bytes=1 << 20), JoinGroupResponse, version=3))
            for n in range(3)
        ]
        await settle()
        assert await FakeConsumer(endpoint, group="new").join() is BUSY
        again = asyncio.create_task(alice.join())
        await endpoint.pass_time(1.0)
        assert await again is OK
        assert await alice.sync({alice.member_id: b"mine"}) == b"mine"
        with pytest.raises(GroupAnswerError, match="coordinator_load_in_progress"):
            await alice.sync({alice.member_id: bytes(2 << 20)})
        for each in waiting:
            each.cancel()


async def test_commits_of_deleted_groups_do_not_count_against_the_bound_of_all(store: FaultyKeyValueStore) -> None:
    limits = CoordinationLimits(max_stored_offset_bytes=40_000)
    async with AskedGroups(store, limits=limits).running() as endpoint:
        for number in range(4):  # each commit takes 17 kB
            assert await FakeConsumer(endpoint, group=str(number)).commit(1, metadata="x" * 4096) is OK
            assert await deleted(endpoint, str(number)) == [OK]
