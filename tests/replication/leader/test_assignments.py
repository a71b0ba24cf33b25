"""Announcements of a leader to its standbys, and the long polls for them."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tierd.replication.leader.assignments import MAX_DELETED, LeaderAssignments
from tierd.replication.model.messages import (
    AssignedPartition,
    AssignmentsRequest,
    AssignmentsResponse,
    DeletedReplica,
)
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity

TOPIC_ID = UUID(int=7)
ORDERS = AssignedPartition(topic="orders", topic_id=TOPIC_ID, partition=0, leader_epoch=3)
PEER = PeerIdentity(1, 100)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def assignments(clock: ManualClock) -> LeaderAssignments:
    return LeaderAssignments(clock)


def poll(known_version: int, *, max_wait_ms: int = 0, replica_id: int = 1, epoch: int = 100) -> AssignmentsRequest:
    return AssignmentsRequest(
        replica_id=replica_id, replica_epoch=epoch, known_version=known_version, max_wait_ms=max_wait_ms
    )


async def begin_poll(
    assignments: LeaderAssignments, clock: ManualClock, known_version: int
) -> "asyncio.Task[AssignmentsResponse]":
    """Return a poll that waits."""
    polling = asyncio.create_task(assignments.answer(poll(known_version, max_wait_ms=5000), PEER), name="poll")
    await eventually(lambda: clock.sleeping == 1, what="the poll to wait")
    return polling


async def test_standby_that_knows_nothing_gets_only_its_own_partitions(assignments: LeaderAssignments) -> None:
    assignments.assign(ORDERS, [1, 2])
    assignments.assign(replace(ORDERS, partition=1), [2])

    response = await assignments.answer(poll(-1, max_wait_ms=5000), PEER)

    assert response.partitions == (ORDERS,)


async def test_standby_without_any_partition_gets_an_empty_list(assignments: LeaderAssignments) -> None:
    response = await assignments.answer(poll(-1, max_wait_ms=5000), PEER)
    assert response.partitions == ()


async def test_poll_with_the_present_version_gets_no_list_after_its_wait(
    assignments: LeaderAssignments, clock: ManualClock
) -> None:
    assignments.assign(ORDERS, [1])
    version = assignments.response_to(1, -1).version
    polling = await begin_poll(assignments, clock, version)

    clock.advance(5)

    assert await polling == AssignmentsResponse(version=version)


async def test_poll_of_a_standby_without_partitions_ends_with_its_first_partition(
    assignments: LeaderAssignments, clock: ManualClock
) -> None:
    version = assignments.response_to(1, -1).version
    polling = await begin_poll(assignments, clock, version)

    assignments.assign(ORDERS, [1])

    assert (await polling).partitions == (ORDERS,)


async def test_waiting_poll_ends_with_a_new_leader_epoch(assignments: LeaderAssignments, clock: ManualClock) -> None:
    assignments.assign(ORDERS, [1])
    polling = await begin_poll(assignments, clock, assignments.response_to(1, -1).version)

    assignments.assign(replace(ORDERS, leader_epoch=4), [1])

    assert (await polling).partitions == (replace(ORDERS, leader_epoch=4),)


async def test_change_for_another_standby_leaves_the_version(assignments: LeaderAssignments) -> None:
    assignments.assign(ORDERS, [1])
    version = assignments.response_to(1, -1).version

    assignments.assign(ORDERS, [1, 2])
    assignments.assign(replace(ORDERS, partition=1), [2])

    assert assignments.response_to(1, version) == AssignmentsResponse(version=version)


async def test_partition_led_elsewhere_is_missing_and_not_deleted(assignments: LeaderAssignments) -> None:
    assignments.assign(ORDERS, [1])
    assignments.withdraw(TOPIC_ID, 0)

    response = assignments.response_to(1, -1)

    assert (response.partitions, response.deleted) == ((), ())


async def test_standby_that_is_removed_from_a_partition_keeps_its_copy(assignments: LeaderAssignments) -> None:
    assignments.assign(ORDERS, [1, 2])
    assignments.assign(ORDERS, [2])

    response = assignments.response_to(1, -1)

    assert (response.partitions, response.deleted) == ((), ())


async def test_deleted_partition_is_named_in_later_answers_too(assignments: LeaderAssignments) -> None:
    assignments.assign(ORDERS, [1])
    assignments.delete(TOPIC_ID, 0)
    assignments.assign(replace(ORDERS, topic_id=UUID(int=8)), [1])

    response = assignments.response_to(1, -1)

    assert response.deleted == (DeletedReplica(TOPIC_ID, 0),)
    assert response.partitions == (replace(ORDERS, topic_id=UUID(int=8)),)


async def test_deletion_reaches_standbys_that_the_caller_names(assignments: LeaderAssignments) -> None:
    assignments.delete(TOPIC_ID, 0, [1])
    assert assignments.response_to(1, 0).deleted == (DeletedReplica(TOPIC_ID, 0),)


async def test_number_of_named_deletions_is_bounded(assignments: LeaderAssignments) -> None:
    for partition in range(MAX_DELETED + 5):
        assignments.delete(TOPIC_ID, partition, [1])

    deleted = assignments.response_to(1, -1).deleted

    assert len(deleted) == MAX_DELETED
    assert deleted[0].partition == 5


async def test_same_assignment_again_leaves_the_version(assignments: LeaderAssignments) -> None:
    assignments.assign(ORDERS, [1])
    version = assignments.response_to(1, -1).version

    assignments.assign(ORDERS, [1])

    assert assignments.response_to(1, -1).version == version


async def test_peer_that_asks_as_another_node_is_refused(assignments: LeaderAssignments) -> None:
    assignments.assign(ORDERS, [1, 2])
    response = await assignments.answer(poll(-1, replica_id=2), PEER)
    assert (response.error_code, response.partitions) == (PushErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)


async def test_request_of_an_older_process_is_refused(assignments: LeaderAssignments) -> None:
    response = await assignments.answer(poll(-1, epoch=99), PEER)
    assert response.error_code == PushErrorCode.STALE_BROKER_EPOCH


async def test_cancelled_poll_leaves_no_task(assignments: LeaderAssignments, clock: ManualClock) -> None:
    polling = await begin_poll(assignments, clock, assignments.response_to(1, -1).version)
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    await eventually(lambda: len(asyncio.all_tasks()) == 1, what="the tasks of the poll to end")
