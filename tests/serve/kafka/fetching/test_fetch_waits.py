"""Long polls: fetches that wait for bytes, woken by changes, on a clock that only the test moves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.served_log import FakeServedLog
from tests.serve.kafka.fetching.fetch_endpoint import (
    TOPIC_ID,
    FetchEndpoint,
    Kio,
    Told,
    Want,
    errors,
    fetch_request,
)
from tierd.errors import BackendUnavailableError
from tierd.serve.kafka.fetching.fetch_round import FetchLimits

Answer = asyncio.Task[Mapping[tuple[str | UUID, int], Told]]


@pytest.fixture
def endpoint() -> FetchEndpoint:
    return FetchEndpoint()


@pytest.fixture
def log(endpoint: FetchEndpoint, tmp_path: Path) -> FakeServedLog:
    """Return a log whose records are in a file, as those of a local log."""
    return local_log(endpoint, "orders", tmp_path)


def local_log(endpoint: FetchEndpoint, topic: str, directory: Path) -> FakeServedLog:
    [log] = endpoint.served.add_topic(topic)
    log.keep_in(directory / f"{topic}.log")
    return log


@asynccontextmanager
async def waiting(
    endpoint: FetchEndpoint, *wants: Want, max_wait_ms: int = 500, **fields: Kio
) -> AsyncIterator[Answer]:
    """Yield a fetch that waits; nothing of it is left behind."""
    fetch = asyncio.create_task(endpoint.fetch(*wants, max_wait_ms=max_wait_ms, **fields))
    await rest()
    assert not fetch.done()
    assert endpoint.clock.sleeping == 1
    assert endpoint.budget.used_bytes == 0, "a wait holds no memory"
    yield fetch
    await fetch
    assert endpoint.clock.sleeping <= 1


async def rest() -> None:
    """Let all tasks go as far as they can."""
    for _ in range(30):
        await asyncio.sleep(0)


async def test_fetch_at_the_end_is_answered_when_a_record_comes(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    async with waiting(endpoint, Want(TOPIC_ID)) as fetch:
        batch = log.append()
        assert (await fetch)[TOPIC_ID, 0].records == bytes(batch.data)
    assert log.listener_count == 0


async def test_fetch_at_the_end_is_answered_empty_when_its_time_is_over(
    endpoint: FetchEndpoint, log: FakeServedLog
) -> None:
    async with waiting(endpoint, Want(TOPIC_ID)) as fetch:
        endpoint.clock.advance(0.499)
        await rest()
        assert not fetch.done()
        endpoint.clock.advance(0.001)
        assert errors(await fetch) == ["none"]
    assert log.listener_count == 0
    assert log.calls["read"] == 0


async def test_wait_is_told_apart_from_work(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    fetch = asyncio.create_task(endpoint.ask(fetch_request([Want(TOPIC_ID)], max_wait_ms=500)))
    await rest()
    endpoint.clock.advance(0.3)
    log.append()
    assert (await fetch).waited_s == pytest.approx(0.3)


async def test_fetch_without_a_wait_is_answered_at_once(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    assert errors(await endpoint.fetch(Want(TOPIC_ID), max_wait_ms=0)) == ["none"]
    assert errors(await endpoint.fetch(Want(TOPIC_ID), max_wait_ms=500, min_bytes=0)) == ["none"]
    assert errors(await endpoint.fetch(max_wait_ms=500)) == []
    assert log.calls["listen"] == 0


async def test_change_without_records_wakes_nobody_up(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    async with waiting(endpoint, Want(TOPIC_ID)) as fetch:
        log.changed()
        await rest()
        assert not fetch.done()
        assert log.calls["read"] == 0
        log.append()


async def test_change_between_the_look_and_the_wait_is_not_missed(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    listen = log.listen

    def append_then_listen(on_change: Callable[[], None]) -> Callable[[], None]:
        log.append()
        return listen(on_change)

    log.listen = append_then_listen  # type: ignore[method-assign]
    assert (await endpoint.fetch(Want(TOPIC_ID), max_wait_ms=500))[TOPIC_ID, 0].records


async def test_committed_fetch_waits_for_the_marker(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    log.append(transaction_of=7)
    async with waiting(endpoint, Want(TOPIC_ID), isolation=1) as fetch:
        log.append()
        await rest()
        assert not fetch.done()
        log.end_transaction(7, commit=True)
        assert (await fetch)[TOPIC_ID, 0].fields.last_stable_offset == 3


async def test_fetch_of_several_partitions_is_answered_by_the_first_that_has_records(
    endpoint: FetchEndpoint, tmp_path: Path
) -> None:
    logs = endpoint.served.add_topic("orders", partitions=20)
    for number, each in enumerate(logs):
        each.keep_in(tmp_path / f"{number}.log")
    async with waiting(endpoint, *(Want(TOPIC_ID, number) for number in range(20))) as fetch:
        logs[13].append()
        assert [number for (_, number), each in (await fetch).items() if each.records] == [13]
    assert sum(each.calls["read"] for each in logs) == 1
    assert [each.calls["bounds"] for each in logs[12:14]] == [2, 3], "only what changed is looked at"


async def test_fetch_waits_for_its_smallest_size_over_all_partitions(endpoint: FetchEndpoint, tmp_path: Path) -> None:
    orders, payments = (local_log(endpoint, name, tmp_path) for name in ("orders", "payments"))
    batch = orders.append([b"x" * 100])
    wants = (Want("orders"), Want("payments"))
    async with waiting(endpoint, *wants, version=12, min_bytes=batch.size_bytes * 2) as fetch:
        payments.append([b"x" * 90])
        await rest()
        assert not fetch.done()
        orders.append([b"x" * 100])
        answers = await fetch
        assert [bool(each.records) for each in answers.values()] == [True, True]
        assert sum(len(each.records) for each in answers.values()) >= batch.size_bytes * 2


async def test_fetch_that_lacks_bytes_returns_what_there_is_when_its_time_is_over(
    endpoint: FetchEndpoint, log: FakeServedLog
) -> None:
    log.append()
    async with waiting(endpoint, Want(TOPIC_ID), min_bytes=10_000) as fetch:
        log.append()
        await rest()
        endpoint.clock.advance(0.5)
        assert (await fetch)[TOPIC_ID, 0].records == b"".join(bytes(batch.data) for batch in log.batches)


async def test_fetch_that_waits_for_many_bytes_reads_few_times(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    size = log.append([b"x" * 100]).size_bytes
    async with waiting(endpoint, Want(TOPIC_ID), min_bytes=size * 100) as fetch:
        for _ in range(98):
            log.append([b"x" * 100])
            await rest()
        assert not fetch.done()
        log.append([b"x" * 100])
        assert len((await fetch)[TOPIC_ID, 0].records) == size * 100
    assert log.calls["read"] < 12


async def test_bytes_of_the_tier_and_of_a_segment_that_ended_are_answered_though_more_are_wanted(
    endpoint: FetchEndpoint, log: FakeServedLog, tmp_path: Path
) -> None:
    [remote] = endpoint.served.add_topic("payments")
    for each in (log, remote):
        each.append()
        each.append()
    log.segment_starts = {1}
    for topic in ("orders", "payments"):
        [one] = (await endpoint.fetch(Want(topic), version=12, max_wait_ms=500, min_bytes=10_000)).values()
        assert one.records


async def test_partition_whose_own_bound_ended_a_read_is_answered_though_more_bytes_are_wanted(
    endpoint: FetchEndpoint, log: FakeServedLog
) -> None:
    size = log.append([b"x" * 100]).size_bytes
    for _ in range(3):
        log.append([b"x" * 100])
    bound = 3 * size - 1  # whole batches never fill it
    [one] = (await endpoint.fetch(Want(TOPIC_ID, max_bytes=bound), max_wait_ms=500, min_bytes=bound)).values()
    assert len(one.records) == 2 * size


async def test_client_that_wants_more_bytes_than_an_answer_has_waits_for_as_many_as_it_has(
    endpoint: FetchEndpoint, log: FakeServedLog
) -> None:
    size = log.append([b"x" * 100]).size_bytes
    endpoint.quotas.largest_bytes = 2 * size
    async with waiting(endpoint, Want(TOPIC_ID), min_bytes=10 * size) as fetch:
        log.append([b"x" * 100])
        assert len((await fetch)[TOPIC_ID, 0].records) == 2 * size


async def test_error_of_one_partition_ends_the_wait(endpoint: FetchEndpoint, tmp_path: Path) -> None:
    orders, payments = (local_log(endpoint, name, tmp_path) for name in ("orders", "payments"))
    async with waiting(endpoint, Want("orders"), Want("payments"), version=12) as fetch:
        orders.log_start_offset = 5
        orders.changed()
        assert errors(await fetch) == ["offset_out_of_range", "none"]
    assert payments.listener_count == 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda endpoint: endpoint.served.lead("orders", leader_epoch=6), "fenced_leader_epoch"),
        (lambda endpoint: endpoint.served.remove_topic("orders"), "unknown_topic_id"),
    ],
)
async def test_change_of_the_cluster_ends_the_wait(
    endpoint: FetchEndpoint, log: FakeServedLog, change: Callable[[FetchEndpoint], None], error: str
) -> None:
    endpoint.served.lead("orders", leader_epoch=5)
    async with waiting(endpoint, Want(TOPIC_ID, epoch=5)) as fetch:
        change(endpoint)
        log.changed()
        await rest()
        endpoint.clock.advance(0.5)
        await rest()
        endpoint.clock.advance(0.1)
        assert errors(await fetch) == [error]


async def test_offset_above_the_end_is_waited_for_before_it_is_an_error(
    endpoint: FetchEndpoint, log: FakeServedLog
) -> None:
    async with waiting(endpoint, Want(TOPIC_ID, offset=2)) as fetch:
        log.append()
        await rest()
        assert not fetch.done(), "the client is ahead of a watermark that is some seconds old"
        log.append()
        log.append()
        assert (await fetch)[TOPIC_ID, 0].records
    async with waiting(endpoint, Want(TOPIC_ID, offset=9)) as fetch:
        endpoint.clock.advance(0.5)
        assert errors(await fetch) == ["offset_not_available"]


async def test_read_of_the_tier_that_is_not_in_time_is_answered_empty(endpoint: FetchEndpoint) -> None:
    [remote] = endpoint.served.add_topic("orders")
    remote.append()
    remote.is_pending = True
    assert errors(await endpoint.fetch(Want(TOPIC_ID), max_wait_ms=500)) == ["none"]
    assert remote.waits_s == [0.5]
    await endpoint.fetch(Want(TOPIC_ID), max_wait_ms=300)
    await endpoint.fetch(Want(TOPIC_ID), max_wait_ms=0)
    assert remote.waits_s == [0.5, pytest.approx(0.3), 0.1]


async def test_read_that_a_quota_holds_back_is_tried_again_when_its_time_has_come(endpoint: FetchEndpoint) -> None:
    [remote] = endpoint.served.add_topic("orders")
    remote.append()
    remote.throttled_ms = 200
    async with waiting(endpoint, Want(TOPIC_ID)) as fetch:
        remote.throttled_ms = 0
        endpoint.clock.advance(0.2)
        assert (await fetch)[TOPIC_ID, 0].records
    remote.throttled_ms = 2000
    async with waiting(endpoint, Want(TOPIC_ID)) as fetch:
        endpoint.clock.advance(0.5)
        assert errors(await fetch) == ["none"]
    assert remote.calls["read"] == 3


async def test_held_back_partition_does_not_hold_the_others_back(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    [remote] = endpoint.served.add_topic("payments")
    remote.append()
    remote.throttled_ms = 200
    log.append()
    answers = await endpoint.fetch(Want("payments"), Want("orders"), version=12, max_wait_ms=500)
    assert [bool(each.records) for each in answers.values()] == [False, True]


async def test_answer_that_has_only_a_passing_error_is_paused(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    log.fail("bounds", BackendUnavailableError("the store is away"))
    async with waiting(endpoint, Want(TOPIC_ID)) as fetch:
        endpoint.clock.advance(0.1)
        assert errors(await fetch) == ["kafka_storage_error"]


async def test_error_that_a_client_acts_on_is_not_paused(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    log.log_start_offset = 5
    assert errors(await endpoint.fetch(Want(TOPIC_ID), max_wait_ms=500)) == ["offset_out_of_range"]


async def test_wait_is_bounded_by_the_endpoint() -> None:
    endpoint = FetchEndpoint(FetchLimits(max_wait_s=60.0))
    endpoint.served.add_topic("orders")
    async with waiting(endpoint, Want(TOPIC_ID), max_wait_ms=2**31 - 1) as fetch:
        endpoint.clock.advance(60.0)
        assert errors(await fetch) == ["none"]


async def test_stopping_endpoint_answers_what_it_has(endpoint: FetchEndpoint, log: FakeServedLog) -> None:
    batch = log.append()
    async with waiting(endpoint, Want(TOPIC_ID), min_bytes=10_000) as fetch:
        endpoint.closing.set()
        assert (await fetch)[TOPIC_ID, 0].records == bytes(batch.data)
    assert log.listener_count == 0


async def test_client_that_goes_away_leaves_no_listener_memory_or_task(
    endpoint: FetchEndpoint, log: FakeServedLog
) -> None:
    tasks = len(asyncio.all_tasks())
    fetch = asyncio.create_task(endpoint.fetch(Want(TOPIC_ID), max_wait_ms=500))
    await rest()
    assert log.listener_count == 1
    fetch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetch
    assert log.listener_count == 0
    assert endpoint.budget.used_bytes == 0
    assert len(asyncio.all_tasks()) == tasks
    assert endpoint.sessions.statistics().sessions == 0


async def test_client_that_goes_away_during_reads_ends_them(endpoint: FetchEndpoint) -> None:
    logs = endpoint.served.add_topic("orders", partitions=3)
    for each in logs:
        each.append()
        each.hold("read")
    tasks = len(asyncio.all_tasks())
    request = fetch_request([Want(TOPIC_ID, number) for number in range(3)])
    fetch = asyncio.create_task(endpoint.ask(request))
    await eventually(lambda: all(each.calls["read"] for each in logs), what="three reads")
    fetch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetch
    assert len(asyncio.all_tasks()) == tasks
