"""Long polls of standbys for records: what wakes them, what they bring, and what they may cost."""

import asyncio
import gc
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.replication.leader.led import NODE, PEER, LedSetup, fetch_of
from tierd.errors import LogError, SegmentChangedError
from tierd.replication.leader.fetch_polls import StandbyFetchLimits
from tierd.replication.leader.logs.record_memory import batch_bounds
from tierd.replication.model.messages import FetchRecordsResponse, PartitionFetchResult
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PeerIdentity, PeerNode, PushSessionEndReason


@pytest.fixture
async def setup() -> LedSetup:
    return LedSetup()


def offsets(result: PartitionFetchResult) -> list[int]:
    return [each.base_offset for piece in result.records for each in batch_bounds(bytes(piece))]


def all_offsets(response: FetchRecordsResponse) -> list[list[int]]:
    return [offsets(result) for result in response.partitions]


async def test_records_below_the_log_end_are_answered_at_once(setup: LedSetup) -> None:
    log = setup.lead()
    log.append()
    log.append()

    response = await setup.fetch(fetch_of(), max_wait_ms=5000)

    (result,) = response.partitions
    assert offsets(result) == [0, 1]
    assert (result.high_watermark, result.log_end_offset, result.push_started) == (0, 2, False)


async def test_poll_at_the_log_end_waits_for_an_append(setup: LedSetup) -> None:
    log = setup.lead()
    await setup.fetch(fetch_of())
    polling = await setup.begin_poll(fetch_of())

    log.append()

    assert all_offsets(await polling) == [[0]]
    assert setup.clock.sleeping == 0


async def test_poll_without_news_is_answered_after_its_time(setup: LedSetup) -> None:
    setup.lead().append()
    await setup.fetch(fetch_of(offset=1))
    polling = await setup.begin_poll(fetch_of(offset=1))

    setup.clock.advance(5)

    (result,) = (await polling).partitions
    assert (result.error_code, result.records, result.log_end_offset) == (0, (), 1)


async def test_poll_is_answered_when_the_watermark_rises_above_the_one_the_standby_knows(setup: LedSetup) -> None:
    log = setup.lead(0, NODE, PeerNode(2, "host2", 9406))
    log.append()
    await setup.fetch(fetch_of(offset=1), peer=PeerIdentity(2, 100))
    await setup.fetch(fetch_of(offset=1))
    log.append()
    await setup.fetch(fetch_of(offset=2))
    polling = await setup.begin_poll(fetch_of(offset=2))

    await setup.fetch(fetch_of(offset=2), peer=PeerIdentity(2, 100))

    (result,) = (await polling).partitions
    assert result.high_watermark == 2


async def test_poll_for_more_bytes_waits_until_they_are_there(setup: LedSetup) -> None:
    log = setup.lead(0, NODE, PeerNode(2, "host2", 9406))
    await setup.fetch(fetch_of(), peer=PeerIdentity(2, 100))
    await setup.fetch(fetch_of())
    polling = await setup.begin_poll(fetch_of(), min_bytes=250)

    log.append()
    log.append()
    await setup.fetch(fetch_of(partition=9))
    assert not polling.done()
    log.append()

    assert all_offsets(await polling) == [[0, 1, 2]]


async def test_poll_of_many_partitions_brings_what_each_of_them_has(setup: LedSetup) -> None:
    logs = [setup.lead(partition) for partition in range(3)]
    logs[0].append()
    logs[2].append()

    response = await setup.fetch(*(fetch_of(partition) for partition in range(3)))

    assert all_offsets(response) == [[0], [], [0]]
    assert [result.partition for result in response.partitions] == [0, 1, 2]


async def test_answer_stops_at_its_limit_and_brings_one_batch_at_least(setup: LedSetup) -> None:
    for partition in range(3):
        log = setup.lead(partition)
        log.append(size=600)
        log.append(size=600)

    response = await setup.fetch(*(fetch_of(partition) for partition in range(3)), max_bytes=700)

    assert all_offsets(response) == [[0], [0], []]


async def test_records_of_one_partition_stop_at_the_limit_of_the_partition(setup: LedSetup) -> None:
    log = setup.lead()
    for _ in range(4):
        log.append(size=100)

    assert all_offsets(await setup.fetch(fetch_of(max_bytes=250))) == [[0, 1]]


@pytest.mark.spec("push-replication 87")
async def test_promotion_is_answered_at_once_and_without_records(setup: LedSetup) -> None:
    setup.lead(0)
    log = setup.lead(1)
    log.append()

    response = await setup.fetch(fetch_of(0, session_id=0), fetch_of(1), max_wait_ms=5000)

    assert [result.push_started for result in response.partitions] == [True, False]
    assert all_offsets(response) == [[], [0]]


async def test_partition_that_is_not_led_here_is_unknown(setup: LedSetup) -> None:
    (result,) = (await setup.fetch(fetch_of(), max_wait_ms=5000)).partitions

    assert result.error_code == PushErrorCode.UNKNOWN_TOPIC_ID


async def test_standby_that_a_partition_is_not_sent_to_gets_nothing_of_it(setup: LedSetup) -> None:
    setup.lead().append()

    (result,) = (await setup.fetch(fetch_of(), peer=PeerIdentity(9, 1))).partitions

    assert result.error_code == PushErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (result.records, result.log_end_offset, result.high_watermark) == ((), -1, -1)


async def test_poll_ends_with_an_error_when_the_leader_resigns(setup: LedSetup) -> None:
    log = setup.lead()
    await setup.fetch(fetch_of())
    polling = await setup.begin_poll(fetch_of())

    setup.led.resign(log.partition)

    (result,) = (await polling).partitions
    assert result.error_code == PushErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.spec("push-replication F5")
async def test_poll_ends_with_an_error_when_the_leader_epoch_rises(setup: LedSetup) -> None:
    log = setup.lead()
    await setup.fetch(fetch_of())
    polling = await setup.begin_poll(fetch_of())

    log.leader_epoch = 2
    log.append()

    (result,) = (await polling).partitions
    assert (result.error_code, result.records) == (PushErrorCode.FENCED_LEADER_EPOCH, ())


async def test_records_that_were_read_before_a_new_epoch_are_left_out(setup: LedSetup) -> None:
    log = setup.lead()
    log.append()
    replicator = setup.led.find(UUID(int=1), 0)
    assert replicator is not None
    read = log.read

    async def read_and_move(offset: int, max_bytes: int) -> bytes:
        data = await read(offset, max_bytes)
        log.leader_epoch = 2
        replicator.check_leader_epoch()
        return data

    log.read = read_and_move  # type: ignore[method-assign]

    (result,) = (await setup.fetch(fetch_of())).partitions
    assert (result.error_code, result.records) == (PushErrorCode.FENCED_LEADER_EPOCH, ())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SegmentChangedError("cut", remedy="read again"), PushErrorCode.REQUEST_TIMED_OUT),
        (LogError("the disk failed", remedy="look"), PushErrorCode.KAFKA_STORAGE_ERROR),
    ],
)
async def test_read_that_fails_is_an_error_of_its_partition_only(
    setup: LedSetup, error: LogError, code: PushErrorCode
) -> None:
    broken, sound = setup.lead(0), setup.lead(1)
    broken.append()
    sound.append()

    async def fail(offset: int, max_bytes: int) -> bytes:
        raise error

    broken.read = fail  # type: ignore[method-assign]

    response = await setup.fetch(fetch_of(0), fetch_of(1))

    assert [result.error_code for result in response.partitions] == [code, 0]
    assert all_offsets(response) == [[], [0]]


async def test_answers_that_are_not_sent_yet_hold_back_further_reads() -> None:
    setup = LedSetup(StandbyFetchLimits(memory_max_bytes=1000))
    log = setup.lead()
    for _ in range(20):
        log.append(size=100)
    memory = setup.server.polls.memory

    held = await setup.fetch(fetch_of(), peer=PEER)
    assert memory.used_bytes == 1000
    waiting = await setup.begin_poll(fetch_of())
    assert not waiting.done()
    assert len(offsets(held.partitions[0])) == 10

    del held
    gc.collect()
    assert len(offsets((await waiting).partitions[0])) == 10


async def test_answer_without_memory_for_its_records_comes_after_its_time_and_has_none() -> None:
    setup = LedSetup(StandbyFetchLimits(memory_max_bytes=100))
    setup.lead().append(size=500)

    held = await setup.fetch(fetch_of())
    assert setup.server.polls.memory.used_bytes == 500
    waiting = await setup.begin_poll(fetch_of())
    setup.clock.advance(5)

    assert all_offsets(await waiting) == [[]]
    assert all_offsets(held) == [[0]]


async def test_memory_is_free_again_after_every_answer(setup: LedSetup) -> None:
    log = setup.lead()
    for _ in range(5):
        log.append()
        await setup.fetch(fetch_of(), max_bytes=150)
    gc.collect()

    await eventually(lambda: setup.server.polls.memory.used_bytes == 0, what="the memory of the answers")


async def test_standby_with_too_many_polls_at_a_time_is_refused() -> None:
    setup = LedSetup(StandbyFetchLimits(polls_per_peer=1))
    log = setup.lead()
    await setup.fetch(fetch_of())
    polling = await setup.begin_poll(fetch_of())

    refused = await setup.fetch(fetch_of())

    assert refused.error_code == PushErrorCode.THROTTLING_QUOTA_EXCEEDED
    log.append()
    await polling
    assert (await setup.fetch(fetch_of())).error_code == 0


async def test_cancelled_poll_leaves_no_waiter_and_no_memory(setup: LedSetup) -> None:
    log = setup.lead()
    await setup.fetch(fetch_of())
    polling = await setup.begin_poll(fetch_of())

    polling.cancel()
    await eventually(polling.done, what="the poll to end")
    log.append()

    assert setup.server.polls.memory.used_bytes == 0
    assert all_offsets(await setup.fetch(fetch_of())) == [[0]]


@pytest.mark.spec("push-replication F13")
async def test_topic_that_was_made_again_answers_under_its_new_id_only(setup: LedSetup) -> None:
    old = setup.lead()
    old.append()
    await setup.fetch(fetch_of(offset=1, session_id=0))
    setup.led.delete(old.partition)
    setup.lead(topic_id=UUID(int=2)).append()

    response = await setup.fetch(fetch_of(offset=1, session_id=0), fetch_of(topic_id=UUID(int=2)))

    assert [result.error_code for result in response.partitions] == [PushErrorCode.UNKNOWN_TOPIC_ID, 0]
    assert setup.pushes.ends == [PushSessionEndReason.PARTITION_DELETED]
    assert all_offsets(response) == [[], [0]]


async def test_fetch_of_many_partitions_lets_other_tasks_have_turns(setup: LedSetup) -> None:
    for partition in range(450):
        setup.lead(partition).append()
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(take_turns(), name="other")
    response = await setup.fetch(*(fetch_of(partition, 1) for partition in range(450)))
    other.cancel()

    assert len(response.partitions) == 450
    assert turns >= 2
