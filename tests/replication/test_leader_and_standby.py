"""Stories of a leader with owned logs and a standby, each with its whole side of push replication."""

import asyncio
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.replication.joined import TOPIC_ID, JoinedPair
from tierd.errors import UnknownPartitionError
from tierd.model import TopicPartition
from tierd.replication.leader.replicas.replicator_status import UnprotectedRecords, unprotected

ORDERS = TopicPartition("orders", 0)


@pytest.mark.spec("push-replication 87")
async def test_standby_copies_what_is_there_and_then_gets_every_append(tmp_path: Path) -> None:
    async with JoinedPair(tmp_path) as pair:
        log = await pair.lead()
        await pair.append(log, 300)
        await pair.same_content(log)
        await pair.pushed(log)

        for _ in range(20):
            await pair.append(log, 10)
        await pair.same_content(log)

        assert unprotected(pair.led.statuses()) == UnprotectedRecords()
        assert pair.push.statistics().session_starts == 1
        assert log.high_watermark == 500


async def test_standby_keeps_up_with_a_log_that_never_rests(tmp_path: Path) -> None:
    async with JoinedPair(tmp_path) as pair:
        log = await pair.lead()
        running = True

        async def append_on() -> None:
            while running:
                await pair.append(log, 5, size=500)

        appending = asyncio.create_task(append_on(), name="appends")
        await pair.pushed(log)
        running = False
        await appending

        await pair.same_content(log)


async def test_session_goes_on_after_a_cut_of_the_link(tmp_path: Path) -> None:
    async with JoinedPair(tmp_path) as pair:
        log = await pair.lead()
        await pair.append(log, 5)
        await pair.same_content(log)
        await pair.pushed(log)

        pair.link.cut()
        await pair.append(log, 5)
        assert unprotected(pair.led.statuses()).size_bytes > 0
        assert log.high_watermark == 5
        pair.link.is_up = True

        await pair.same_content(log)
        assert log.high_watermark == 10


@pytest.mark.spec("push-replication F28")
async def test_standby_that_is_too_slow_for_the_memory_goes_on_by_fetching(tmp_path: Path) -> None:
    async with JoinedPair(
        tmp_path,
        request_max_bytes=10_000,
        partition_max_bytes=5000,
        file_chunk_bytes=5000,
        buffer_max_bytes=20_000,
        session_buffer_max_bytes=10_000,
    ) as pair:
        log = await pair.lead()
        await pair.append(log, 5)
        await pair.same_content(log)
        await pair.pushed(log)

        await pair.append(log, 300, size=1000)

        await pair.same_content(log)
        await pair.pushed(log)
        assert pair.push.statistics().memory_peak_bytes <= 20_000


@pytest.mark.spec("push-replication F24")
async def test_log_start_of_the_leader_reaches_the_copy(tmp_path: Path) -> None:
    async with JoinedPair(tmp_path) as pair:
        log = await pair.lead()
        await pair.append(log, 100)
        await pair.same_content(log)
        await pair.pushed(log)

        await pair.leader_logs.writer(ORDERS).run(lambda log: log.delete_records(70))

        await eventually(
            lambda: pair.standby_logs.writer(ORDERS).log.log_start_offset == 70, what="the log start of the copy"
        )


@pytest.mark.spec("push-replication F5")
async def test_new_leader_epoch_begins_the_session_anew(tmp_path: Path) -> None:
    async with JoinedPair(tmp_path) as pair:
        log = await pair.lead()
        await pair.append(log, 5)
        await pair.same_content(log)
        await pair.pushed(log)

        log.begin_leadership(4)
        pair.led.confirm_leadership(log.partition)
        await pair.append(log, 5)

        await pair.same_content(log)
        await pair.pushed(log)
        assert pair.standby_logs.writer(ORDERS).log.leader_epochs.latest == (4, 5)


@pytest.mark.spec("push-replication F18")
async def test_copy_follows_a_truncation_of_its_leader(tmp_path: Path) -> None:
    async with JoinedPair(tmp_path) as pair:
        log = await pair.lead()
        await pair.append(log, 10)
        await pair.same_content(log)
        await pair.pushed(log)

        log.begin_leadership(2)
        await pair.leader_logs.truncate_to(ORDERS, 6)
        pair.led.confirm_leadership(log.partition)
        await pair.append(log, 1)

        await pair.same_content(log)
        await pair.pushed(log)


async def test_copy_follows_records_that_its_leader_lost_and_wrote_anew_in_one_epoch(tmp_path: Path) -> None:
    async with JoinedPair(tmp_path) as pair:
        log = await pair.lead()
        await pair.append(log, 10)
        await pair.same_content(log)
        await pair.pushed(log)

        pair.link.cut()
        await pair.leader_logs.truncate_to(ORDERS, 6)
        await pair.append(log, 8, size=50)
        pair.link.is_up = True

        await pair.same_content(log)
        await pair.pushed(log)


@pytest.mark.spec("push-replication F12")
async def test_copy_of_a_deleted_topic_is_deleted(tmp_path: Path) -> None:
    async with JoinedPair(tmp_path) as pair:
        log = await pair.lead()
        await pair.append(log, 5)
        await pair.same_content(log)
        await pair.pushed(log)

        pair.led.delete(log.partition)
        await log.close()
        await pair.leader_logs.delete(ORDERS)

        def is_gone() -> bool:
            try:
                pair.standby_logs.writer(ORDERS)
            except UnknownPartitionError:
                return True
            return False

        await eventually(is_gone, what="the deletion of the copy")


async def test_many_partitions_are_pushed_side_by_side(tmp_path: Path) -> None:
    async with JoinedPair(tmp_path) as pair:
        logs = [await pair.lead(partition=partition, topic_id=TOPIC_ID) for partition in range(12)]
        for log in logs:
            await pair.append(log, 3)
        for log in logs:
            await pair.same_content(log)
        await pair.pushed(logs[0])

        await asyncio.gather(*(pair.append(log, 20) for log in logs))
        for log in logs:
            await pair.same_content(log)
