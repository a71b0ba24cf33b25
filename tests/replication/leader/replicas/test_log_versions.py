"""Versions of a led log: a standby gets records, and a session, once it has compared its log with the present one."""

import asyncio

from tests.replication.leader.led import NODE, LedSetup, fetch_of
from tests.replication.leader.memory_leader_log import MemoryLeaderLog
from tierd.replication.leader.led_replicators import LedReplicators
from tierd.replication.leader.replicas.replicator_settings import ReplicatorSettings
from tierd.replication.model.messages import PartitionFetchResult

COMPARES_NOTHING = -1


async def fetched(
    setup: LedSetup, offset: int, *, compared: int, is_comparison: bool = False, session_id: int = 0
) -> PartitionFetchResult:
    """Return the answer to a fetch that does not wait."""
    fetch = fetch_of(0, offset, session_id=session_id, compared_version=compared, is_comparison=is_comparison)
    (result,) = (await setup.fetch(fetch)).partitions
    return result


def version(setup: LedSetup, log: MemoryLeaderLog) -> int:
    replicator = setup.led.find(log.partition.topic_id, log.partition.partition)
    assert replicator is not None
    return replicator._leadership.log_version


async def test_standby_that_has_not_compared_its_log_gets_the_version_and_no_records() -> None:
    setup = LedSetup()
    log = setup.lead()
    log.append(count=5)
    result = await fetched(setup, 0, compared=0)
    assert (result.error_code, result.log_version, result.records) == (0, version(setup, log), ())
    assert not result.push_started
    result = await fetched(setup, 0, compared=version(setup, log))
    assert (result.log_version, bool(result.records or result.push_started)) == (0, True)


async def test_standby_of_an_earlier_tierd_gets_records() -> None:
    setup = LedSetup()
    setup.lead().append(count=5)
    result = await fetched(setup, 0, compared=COMPARES_NOTHING, session_id=1)
    assert (result.log_version, result.push_started or bool(result.records)) == (0, True)


async def test_comparison_gets_records_and_begins_no_session() -> None:
    setup = LedSetup()
    log = setup.lead()
    log.append(count=5)
    log.append(count=5)
    result = await fetched(setup, 5, compared=0, is_comparison=True)
    assert result.records == (log.batches[1],)
    assert (result.log_version, result.log_end_offset, result.push_started) == (version(setup, log), 10, False)
    assert setup.pushes.started == []
    (status,) = setup.led.statuses()
    assert not status.is_in_sync


async def test_comparison_is_answered_at_once_beside_a_partition_without_records() -> None:
    setup = LedSetup()
    setup.lead().append(count=5)
    quiet = setup.lead(1)
    comparing = fetch_of(0, 0, compared_version=0, is_comparison=True)
    waiting = fetch_of(1, 0, compared_version=version(setup, quiet))
    async with asyncio.timeout(10):
        response = await setup.fetch(comparing, waiting, max_wait_ms=5000)
    assert [bool(each.records) for each in response.partitions] == [True, False]


async def test_log_that_was_cut_back_has_another_version_and_ends_the_wait_of_a_fetch() -> None:
    setup = LedSetup()
    log = setup.lead()
    log.append(count=5)
    log.append(count=5)
    before = version(setup, log)
    await setup.fetch(fetch_of(0, 10, compared_version=before))  # which raises the watermark
    polling = await setup.begin_poll(fetch_of(0, 10, compared_version=before))

    log.lose_and_grow(5, count=7)

    (result,) = (await polling).partitions
    assert (result.log_version, result.records) == (version(setup, log), ())
    assert result.log_version > before


async def test_versions_of_a_process_are_above_those_of_the_processes_before() -> None:
    setup = LedSetup()
    log = setup.lead()
    first = version(setup, log)
    for _ in range(100):
        log.truncate(0)
    later = LedReplicators(setup.pushes, setup.assignments, ReplicatorSettings(), process_epoch=2, clock=setup.clock)
    again = later.lead(MemoryLeaderLog(log.partition), [NODE])
    assert 0 < first < version(setup, log) < again._leadership.log_version
