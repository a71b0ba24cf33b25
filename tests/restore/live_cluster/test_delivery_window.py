"""The window of one partition: order, failures of a flight, acknowledgements."""

import asyncio

import pytest

from tierd.errors import KafkaError, RefusedError
from tierd.model import TopicPartition
from tierd.restore.live_cluster.batch_transform import OffsetRun, OutgoingBatch
from tierd.restore.live_cluster.delivery_window import MAX_IN_FLIGHT, Acknowledged, DeliveryWindow
from tierd.restore.live_cluster.sent_batches import OwnBatch, SentBatches

NAME = TopicPartition("orders", 0)


def numbered(sequence: int, *, size: int = 39) -> OutgoingBatch:
    return OutgoingBatch(
        header=b"\0" * 61,
        payload=b"\0" * size,
        base_sequence=sequence,
        record_count=1,
        runs=(OffsetRun(sequence, 1),),
        end_offset=sequence + 1,
        ends_source_batch=True,
        max_timestamp_ms=0,
    )


def window(*, max_bytes: int = 10_000, is_remembered: bool = True) -> DeliveryWindow:
    return DeliveryWindow(NAME, max_bytes=max_bytes, wake=lambda: None, is_remembered=lambda _: is_remembered)


async def filled(count: int, *, is_remembered: bool = True) -> DeliveryWindow:
    """Return a window with batches, whose leader has taken one before them."""
    one = window(is_remembered=is_remembered)
    await one.put(numbered(-1))
    (first,) = taken(one, 1)
    one.acknowledge(first, 0)
    await one.acknowledged()
    for sequence in range(count):
        await one.put(numbered(sequence))
    return one


def in_target(*sequences: int) -> SentBatches:
    """Return batches that the target has at offsets that are as much larger than their sequence numbers."""
    found = [OwnBatch(100 + each, each, 1, 1, 0) for each in sequences]
    return SentBatches(NAME, found, end_offset=100)


def taken(one: DeliveryWindow, count: int, *, now_s: float = 0.0) -> list[OutgoingBatch]:
    found = [one.next_batch(now_s) for _ in range(count)]
    return [each for each in found if each is not None]


async def test_no_more_batches_are_in_flight_than_a_leader_recognizes() -> None:
    one = await filled(8)

    sent = taken(one, 8)

    assert [each.base_sequence for each in sent] == list(range(MAX_IN_FLIGHT))
    one.acknowledge(sent[0], 100)
    assert [each.base_sequence for each in taken(one, 8)] == [MAX_IN_FLIGHT]


async def test_acknowledgements_are_taken_in_the_order_of_the_log() -> None:
    one = await filled(3)
    first, second, third = taken(one, 3)

    one.acknowledge(second, 101)
    one.acknowledge(first, 100)

    assert await one.acknowledged() == [Acknowledged(first, 100), Acknowledged(second, 101)]
    one.acknowledge(third, 102)
    one.finish()
    assert await one.acknowledged() == [Acknowledged(third, 102)]
    assert await one.acknowledged() == []


async def test_failed_flight_is_sent_again_as_it_was_once_nothing_is_in_flight() -> None:
    one = await filled(4)
    first, second, third = taken(one, 3)

    assert one.refuse(first, "not_leader_or_follower") is None
    assert taken(one, 1) == []  # a later batch must not overtake
    one.acknowledge(second, 101)
    assert one.settle() is None
    failure = one.refuse(third, "out_of_order_sequence_number")

    assert failure == "not_leader_or_follower"
    (again,) = taken(one, 8)
    assert again is first
    one.acknowledge(again, 100)
    assert [each.base_sequence for each in taken(one, 8)] == [1, 2, 3]


async def test_first_batch_is_in_flight_alone_until_the_leader_has_taken_it() -> None:
    one = window()
    for sequence in range(3):
        await one.put(numbered(sequence))

    (first,) = taken(one, 3)
    assert first.base_sequence == 0
    one.refuse(first, "not_leader_or_follower")
    assert taken(one, 3) == [first]
    one.acknowledge(first, 100)

    assert [each.base_sequence for each in taken(one, 3)] == [1, 2]


async def test_batches_that_a_leader_may_have_forgotten_are_looked_for_before_they_are_sent_again() -> None:
    one = await filled(4, is_remembered=False)
    first, second, third = taken(one, 3)
    looking = asyncio.ensure_future(one.uncertain())

    one.refuse(first, "network_exception")
    one.refuse(second, "network_exception")
    assert one.refuse(third, "network_exception") == "network_exception"

    assert await looking is first
    assert one.has_work
    assert taken(one, 8) == []
    one.resolve(in_target(0, 1))
    assert await one.acknowledged() == [Acknowledged(first, 100), Acknowledged(second, 101)]
    assert one.acknowledged_offset == 101
    assert taken(one, 8) == [third]


async def test_batches_that_are_not_in_the_target_are_all_sent_again() -> None:
    one = await filled(2, is_remembered=False)
    first, second = taken(one, 2)
    one.refuse(first, "network_exception")
    one.refuse(second, "network_exception")

    one.resolve(in_target())

    assert taken(one, 8) == [first]
    one.acknowledge(first, 100)
    assert taken(one, 8) == [second]


async def test_batch_that_is_in_the_target_without_the_one_before_it_is_an_error() -> None:
    one = await filled(2, is_remembered=False)
    first, second = taken(one, 2)
    one.acknowledge(second, 100)
    one.refuse(first, "network_exception")

    with pytest.raises(RefusedError, match="without the 1 before"):
        one.resolve(SentBatches(NAME, [OwnBatch(100, 1, 1, 1, 0)], end_offset=100))


async def test_nothing_is_sent_before_the_wait_after_a_failure_is_over() -> None:
    one = await filled(1)
    one.not_before_s = 5.0

    assert taken(one, 1, now_s=4.0) == []
    assert len(taken(one, 1, now_s=5.0)) == 1


async def test_full_window_holds_its_source_back() -> None:
    one = window(max_bytes=150)
    await one.put(numbered(0))
    await one.put(numbered(1))
    waiting = asyncio.ensure_future(one.put(numbered(2)))
    await asyncio.sleep(0)
    assert not waiting.done()

    taken(one, 1)

    await waiting


async def test_error_ends_both_sides_behind_what_was_acknowledged() -> None:
    one = await filled(2)
    first, _ = taken(one, 2)
    one.acknowledge(first, 7)

    one.fail(KafkaError("no leader"))

    assert await one.acknowledged() == [Acknowledged(first, 7)]
    with pytest.raises(KafkaError, match="no leader"):
        await one.acknowledged()
    with pytest.raises(KafkaError, match="no leader"):
        await one.put(numbered(2))
    assert not one.has_work


async def test_batches_of_an_earlier_run_are_acknowledged_without_being_sent() -> None:
    one = window()
    one.found(numbered(0), 40)
    one.finish()

    assert [each.base_offset for each in await one.acknowledged()] == [40]
    assert await one.acknowledged() == []
