"""Answers of a standby to AppendRecords requests: whole requests, memory, disks that fill up and fail."""

import asyncio
import errno
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.simulated_disk import Fault
from tests.replication.follower.following import batch, entry
from tests.replication.follower.leaders import FakeLeaders
from tests.replication.follower.standby_setup import LOG_DIRS, StandbyDisk, StandbyRun
from tierd.errors import LogDirOfflineError
from tierd.model import TopicPartition
from tierd.replication.follower.follower_appender import FollowerAppender
from tierd.replication.follower.record_intake import RecordIntake
from tierd.replication.follower.rules.log_facts import LogChange, LogChangedError
from tierd.replication.follower.service_log import ServiceFollowerLog
from tierd.replication.follower.standby_identity import StandbyIdentity
from tierd.replication.follower.standby_replicas import StandbyReplicas
from tierd.replication.model.messages import AppendRecordsRequest, PartitionAppend
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity

TOPIC_ID = UUID(int=1)


def records_for(partition: int, *, end: int = 0) -> PartitionAppend:
    return entry(topic_id=TOPIC_ID, partition=partition, append_offset=end, last_epoch=-1, records=batch(end))


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[StandbyRun]:
    """Yield a standby with partitions 0 and 1 of a topic, in two log dirs."""
    leaders = FakeLeaders(1)
    for partition in (0, 1):
        leaders.nodes[1].announce("orders", TOPIC_ID, epoch=7, partition=partition)
    async with StandbyRun(StandbyDisk(log_dirs=LOG_DIRS), leaders, tmp_path, max_memory_bytes=1000) as started:
        for partition in (0, 1):
            await started.reaches(0, partition=partition)
        yield started


def codes(response: object) -> list[int]:
    return [each.error_code for each in response.partitions]  # type: ignore[attr-defined]


@pytest.mark.spec("push-replication 69")
async def test_damaged_batch_of_one_partition_does_not_disturb_its_neighbour(run: StandbyRun) -> None:
    damaged = bytearray(batch(0))
    damaged[-1] ^= 1
    sent = entry(topic_id=TOPIC_ID, append_offset=0, records=bytes(damaged))
    answer = await run.push(sent, records_for(1))
    assert codes(answer) == [PushErrorCode.CORRUPT_MESSAGE, 0]
    assert await run.content() == b""
    assert await run.content(partition=1) == batch(0)


@pytest.mark.spec("push-replication 78")
async def test_second_entry_of_a_partition_is_refused(run: StandbyRun) -> None:
    answer = await run.push(records_for(0), records_for(1), records_for(0, end=1))
    assert codes(answer) == [0, 0, PushErrorCode.INVALID_REQUEST]
    assert [each.partition for each in answer.partitions] == [0, 1, 0]
    assert await run.content() == batch(0)


async def test_partition_of_a_known_topic_that_is_not_here_is_unknown(run: StandbyRun) -> None:
    assert codes(await run.push(records_for(5))) == [PushErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(
    ("cluster_id", "leader_id", "sender_id", "replica_epoch", "code"),
    [
        ("cluster", 1, 2, 100, PushErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("other", 1, 1, 100, PushErrorCode.INCONSISTENT_CLUSTER_ID),
        ("cluster", 5, 5, 100, PushErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ("cluster", 1, 1, 99, PushErrorCode.STALE_BROKER_EPOCH),
        ("cluster", 1, 1, 100, PushErrorCode.NONE),
    ],
)
async def test_request_is_checked_as_a_whole_first(
    cluster_id: str, leader_id: int, sender_id: int, replica_epoch: int, code: PushErrorCode
) -> None:
    identity = StandbyIdentity(cluster_id="cluster", node_id=9, process_epoch=100, leaders=[1])
    intake = RecordIntake(max_bytes=1000)
    appender = FollowerAppender(identity, StandbyReplicas(), intake, clock=StandbyDisk().clock)
    request = AppendRecordsRequest(
        cluster_id=cluster_id,
        leader_id=leader_id,
        leader_process_epoch=1,
        replica_epoch=replica_epoch,
        partitions=(records_for(0),),
    )
    response = await appender.append_records(request, PeerIdentity(sender_id, 1))
    assert response.error_code == code
    assert len(response.partitions) == (0 if code else 1)


async def test_records_above_the_memory_of_the_standby_are_to_be_sent_again_later(run: StandbyRun) -> None:
    large = entry(topic_id=TOPIC_ID, append_offset=0, records=batch(0, value=bytes(900)))
    assert codes(await run.push(large, records_for(1))) == [0, PushErrorCode.FOLLOWER_BUSY]
    assert run.standby.status().memory_bytes == 0
    assert codes(await run.push(records_for(1))) == [0]
    assert run.standby.status().append_errors == {PushErrorCode.FOLLOWER_BUSY: 1}


async def test_memory_is_counted_while_records_wait_for_the_disk() -> None:
    intake = RecordIntake(max_bytes=1000)
    assert intake.admits(5000)
    with intake.holding(600):
        assert intake.admits(400)
        assert not intake.admits(401)
        may_fetch = [intake.may_fetch]
        with intake.holding(400):
            may_fetch.append(intake.may_fetch)
    assert may_fetch == [True, False]
    assert intake.used_bytes == 0


async def test_nearly_full_disk_takes_no_records_until_it_has_room_again() -> None:
    free = [10]
    intake = RecordIntake(max_bytes=1000, reserve_bytes=100, free_bytes=lambda: free[0])
    await intake.check_disk()
    assert intake.is_disk_full
    assert not intake.admits(1)
    assert not intake.may_fetch
    free[0] = 200
    await intake.check_disk()
    assert intake.admits(1)


@pytest.mark.spec("push-replication F19")
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_failed_disk_of_one_log_dir_is_answered_and_the_other_partitions_go_on(
    run: StandbyRun, number: int
) -> None:
    assert codes(await run.push(records_for(0), records_for(1))) == [0, 0]
    failed = run.service.log(TopicPartition("orders", 0)).directory.parent
    run.disk.disk.faults.append(Fault("write", (f"{failed}/", ".log"), number, times=None))
    for _ in range(2):
        after = entry(topic_id=TOPIC_ID, append_offset=1, last_epoch=7, records=batch(1))
        assert codes(await run.push(after)) == [PushErrorCode.KAFKA_STORAGE_ERROR]
    other = entry(topic_id=TOPIC_ID, partition=1, append_offset=1, last_epoch=7, records=batch(1))
    assert codes(await run.push(other)) == [0]
    replica = run.replica()
    assert replica is not None
    assert (replica.is_online, replica.mode.name) == (False, "PULL")
    assert replica.last_error


@pytest.mark.spec("push-replication F8")
async def test_request_that_is_sent_again_changes_nothing(run: StandbyRun) -> None:
    for _ in range(2):
        answer = await run.push(records_for(0))
        assert (answer.partitions[0].error_code, answer.partitions[0].log_end_offset) == (0, 1)
    assert await run.content() == batch(0)
    assert run.standby.status().duplicate_appends == 1


@pytest.mark.spec("push-replication F9")
async def test_requests_in_the_wrong_order_leave_no_hole(run: StandbyRun) -> None:
    assert codes(await run.push(records_for(0))) == [0]
    late = entry(topic_id=TOPIC_ID, append_offset=2, last_epoch=7, records=batch(2))
    assert codes(await run.push(late)) == [PushErrorCode.APPEND_OFFSET_MISMATCH]
    next_one = entry(topic_id=TOPIC_ID, append_offset=1, last_epoch=7, records=batch(1))
    assert codes(await run.push(next_one)) == [0]
    assert codes(await run.push(late)) == [0]
    assert await run.content() == batch(0) + batch(1) + batch(2)


async def test_change_that_was_decided_for_another_log_end_is_void() -> None:
    disk, partition = StandbyDisk(), TopicPartition("orders", 0)
    async with disk.service() as service:
        await service.get_or_create(partition)
        log = ServiceFollowerLog(service, partition, clock=disk.clock)
        await log.apply(LogChange(expected_end=0, end_offset=1, records=(batch(0),)))
        with pytest.raises(LogChangedError):
            await log.apply(LogChange(expected_end=0, end_offset=6, records=(batch(5),)))
        assert log.facts.log_end_offset == 1


async def test_records_are_on_stable_storage_before_the_answer_where_that_is_asked_for() -> None:
    disk, partition = StandbyDisk(), TopicPartition("orders", 0)
    async with disk.service() as service:
        await service.get_or_create(partition)
        log = ServiceFollowerLog(service, partition, clock=disk.clock, is_flushed_at_once=True)
        await log.apply(LogChange(expected_end=0, end_offset=1, records=(batch(0),)))
        assert service.log(partition).recovery_point == 1


async def test_request_whose_connection_ends_leaves_the_partition_usable(run: StandbyRun) -> None:
    sending = asyncio.create_task(run.push(records_for(0)))
    await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait({sending})
    await eventually(
        lambda: run.service.writer(TopicPartition("orders", 0)).statistics().waiting_calls == 0, what="the writer"
    )
    for _ in range(3):
        answer = await run.push(records_for(0))
    assert answer.partitions[0].log_end_offset == 1
    assert await run.content() == batch(0)
    assert run.standby.status().memory_bytes == 0


async def test_offline_log_dir_answers_keepalives_with_a_storage_error(run: StandbyRun) -> None:
    await run.push(records_for(0))
    failed = run.service.log(TopicPartition("orders", 0)).directory.parent
    run.disk.disk.faults.append(Fault("write", (f"{failed}/", ".log"), errno.EIO, times=None))
    with pytest.raises(LogDirOfflineError):
        await run.service.writer(TopicPartition("orders", 0)).append_as_follower(batch(1))
    assert codes(await run.push(entry(topic_id=TOPIC_ID))) == [PushErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.spec("push-replication F2")
async def test_session_of_a_leader_that_has_restarted_ends_and_its_earlier_process_is_refused(run: StandbyRun) -> None:
    assert codes(await run.push(records_for(0), leader_process=1)) == [0]
    later = entry(topic_id=TOPIC_ID, append_offset=1, last_epoch=7, records=batch(1))
    answer = await run.push(later, leader_process=2)
    assert (codes(answer), answer.partitions[0].session_id) == ([PushErrorCode.STALE_REPLICATION_SESSION], 1)
    refused = await run.push(later, leader_process=1)
    assert refused.error_code == PushErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await run.content() == batch(0)


async def test_cancellation_at_any_point_of_a_request_leaves_the_log_whole(run: StandbyRun) -> None:
    end, is_finished = 0, False
    for steps in range(1, 30):
        sent = entry(topic_id=TOPIC_ID, append_offset=end, last_epoch=7 if end else -1, records=batch(end, 2))
        sending = asyncio.create_task(run.push(sent))
        for _ in range(steps):
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.wait({sending})
        is_finished = is_finished or not sending.cancelled()
        writer = run.service.writer(TopicPartition("orders", 0))
        await writer.run(lambda _: None)
        assert codes(await run.push(sent)) == [0]
        end += 2
        assert writer.log.log_end_offset == end
    assert await run.content() == b"".join(batch(offset, 2) for offset in range(0, end, 2))
    assert run.standby.status().memory_bytes == 0
