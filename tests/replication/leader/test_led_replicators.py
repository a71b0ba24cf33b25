"""Led partitions: what begins and ends with leadership, and what their standbys are told."""

import asyncio
from contextlib import suppress
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.replication.leader.led import NODE, TOPIC_ID, LedSetup, fetch_of
from tests.replication.leader.memory_leader_log import MemoryLeaderLog
from tierd.replication.leader.replicas.replicator_status import UnprotectedRecords, unprotected
from tierd.replication.model.messages import AssignmentsResponse, DeletedReplica
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerNode, PushSessionEndReason

OTHER = PeerNode(2, "host2", 9406)


@pytest.fixture
async def setup() -> LedSetup:
    return LedSetup()


def announced(setup: LedSetup, replica_id: int = 1) -> AssignmentsResponse:
    return setup.assignments.response_to(replica_id, -1)


def epochs(setup: LedSetup, replica_id: int = 1) -> list[int]:
    return [each.leader_epoch for each in announced(setup, replica_id).partitions or ()]


async def promote(setup: LedSetup, log: MemoryLeaderLog) -> None:
    (result,) = (
        await setup.fetch(fetch_of(offset=log.log_end_offset, session_id=0, leader_epoch=log.leader_epoch))
    ).partitions
    assert result.push_started


async def test_second_call_changes_standbys_and_settings_and_keeps_the_sessions(setup: LedSetup) -> None:
    log = setup.lead()
    await promote(setup, log)

    setup.led.lead(log, (NODE, OTHER), config=(("cleanup.policy", "compact"),))

    assert setup.pushes.ends == []
    assert epochs(setup, 2) == [1]
    assert [each.config for each in announced(setup).partitions or ()] == [(("cleanup.policy", "compact"),)]


async def test_removed_standby_is_told_no_more_and_keeps_its_copy(setup: LedSetup) -> None:
    log = setup.lead()
    await promote(setup, log)

    setup.led.lead(log, (OTHER,))

    assert announced(setup).partitions == ()
    assert announced(setup).deleted == ()
    assert setup.pushes.ends == [PushSessionEndReason.REPLICA_REMOVED]


async def test_another_log_of_a_partition_begins_its_sessions_anew(setup: LedSetup) -> None:
    log = setup.lead()
    await promote(setup, log)

    replacement = setup.lead()

    assert setup.pushes.ends == [PushSessionEndReason.LEADER_LOG_TRUNCATED]
    assert log.listener is None
    replicator = setup.led.find(TOPIC_ID, 0)
    assert replicator is not None
    assert replicator.log is replacement


async def test_resigned_partition_is_withdrawn_and_keeps_its_copies(setup: LedSetup) -> None:
    log = setup.lead()
    await promote(setup, log)

    setup.led.resign(log.partition)

    assert setup.pushes.ends == [PushSessionEndReason.LEADER_RESIGNED]
    assert (announced(setup).partitions, announced(setup).deleted) == ((), ())
    assert setup.led.find(TOPIC_ID, 0) is None


async def test_deleted_partition_is_announced_as_deleted(setup: LedSetup) -> None:
    log = setup.lead()

    setup.led.delete(log.partition)

    assert announced(setup).partitions == ()
    assert announced(setup).deleted == (DeletedReplica(TOPIC_ID, 0),)


@pytest.mark.spec("push-replication F5")
async def test_new_leader_epoch_is_announced_and_ends_the_sessions(setup: LedSetup) -> None:
    log = setup.lead()
    await promote(setup, log)

    log.leader_epoch = 2
    log.append()

    assert epochs(setup) == [2]
    assert setup.pushes.ends == [PushSessionEndReason.NEW_LEADER_EPOCH]


@pytest.mark.spec("push-replication F6")
async def test_doubted_leadership_goes_on_with_the_confirmation_of_a_newer_epoch(setup: LedSetup) -> None:
    log = setup.lead()
    log.append()
    setup.led.doubt_leadership(log.partition, 1)
    (refused,) = (await setup.fetch(fetch_of(offset=1))).partitions

    log.leader_epoch = 3
    setup.led.confirm_leadership(log.partition)
    (answered,) = (await setup.fetch(fetch_of(offset=1, leader_epoch=3))).partitions

    assert refused.error_code == PushErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answered.error_code == 0
    assert epochs(setup) == [3]


@pytest.mark.spec("push-replication F16")
async def test_watermark_of_a_doubted_leadership_stands_still_after_its_standbys_are_gone(setup: LedSetup) -> None:
    log = setup.lead()
    await promote(setup, log)
    log.append()
    setup.led.doubt_leadership(log.partition, 1)

    log.append()
    setup.clock.advance(60)
    setup.led.advance()

    assert log.high_watermark == 0


async def test_standby_that_lags_too_long_is_taken_out_by_the_task(setup: LedSetup) -> None:
    log = setup.lead()
    await setup.fetch(fetch_of())
    log.append()
    running = asyncio.create_task(setup.led.run(), name="led partitions")
    for _ in range(31):
        await eventually(lambda: setup.clock.sleeping == 1, what="the task to rest")
        assert log.high_watermark == 0
        setup.clock.advance(1)

    await eventually(lambda: log.high_watermark == 1, what="the watermark")
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_end_of_the_process_ends_all_sessions_and_announces_no_deletion(setup: LedSetup) -> None:
    log = setup.lead()
    await promote(setup, log)

    setup.led.close()

    assert setup.led.replicators() == ()
    assert setup.pushes.ends == [PushSessionEndReason.BROKER_SHUTDOWN]
    assert epochs(setup) == [1]


async def test_unprotected_records_are_those_that_the_best_standby_lacks(setup: LedSetup) -> None:
    log = setup.lead(0, NODE, OTHER)
    log.append(size=100)
    await setup.fetch(fetch_of(offset=1))
    setup.clock.advance(2)
    log.append(size=300)
    setup.clock.advance(3)

    statuses = setup.led.statuses()

    assert unprotected(statuses) == UnprotectedRecords(3.0, 300)
    lags = {status.replica_id: (status.lag_offsets, status.lag_bytes, status.lag_s) for status in statuses}
    assert lags == {1: (1, 300, 3.0), 2: (2, 400, 5.0)}
    assert unprotected([]) == UnprotectedRecords()


@pytest.mark.spec("push-replication F13")
async def test_topic_that_is_led_with_another_id_ends_the_sessions_of_the_older_one(setup: LedSetup) -> None:
    await promote(setup, setup.lead())
    recreated = UUID(int=2)

    setup.lead(topic_id=recreated)

    assert setup.pushes.ends == [PushSessionEndReason.PARTITION_DELETED]
    assert setup.led.find(TOPIC_ID, 0) is None
    assert [each.topic_id for each in announced(setup).partitions or ()] == [recreated]
    assert announced(setup).deleted == ()
