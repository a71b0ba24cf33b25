"""Looks at a log that a broker writes: appends, rolls, torn batches, truncations, cleaning, retention, moves."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.log.logs import records
from tests.replication.tail.broker_log import BrokerLog, epochs
from tests.replication.tail.tail_listening import TailFollowing
from tierd.errors import CorruptRecordError, SegmentChangedError
from tierd.log.records.new_record import NO_PRODUCER, Producer
from tierd.replication.tail.tail_values import TailLimit

Follow = Callable[..., TailFollowing]


@pytest.fixture
def broker(tmp_path: Path) -> BrokerLog:
    return BrokerLog(tmp_path / "a")


@pytest.fixture
def follow() -> Iterator[Follow]:
    begun: list[TailFollowing] = []

    def begin(broker: BrokerLog, **options: object) -> TailFollowing:
        begun.append(TailFollowing(broker, **options))  # type: ignore[arg-type]
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


def test_tail_begins_at_the_log_end(broker: BrokerLog, follow: Follow) -> None:
    broker.append(5)
    broker.roll()
    broker.append(2)
    log = follow(broker).log
    assert (log.log_start_offset, log.log_end_offset, log.lineage) == (0, 7, epochs((0, 0)))


def test_poll_takes_appended_batches_once(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    first, second = broker.append(3), broker.append(1)
    tail.poll()
    assert tail.listener.told == {0: first.data, 3: second.data}
    tail.poll()
    assert tail.listener.taken_events() == [("append", 4)]


def test_poll_takes_nothing_of_a_torn_batch_before_it_is_whole(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    for part in (0.05, 0.3, 0.9):
        batch = broker.begin_append(part)
        assert tail.poll().problem is None
        assert tail.log.log_end_offset == batch.base_offset
        broker.finish_append()
        tail.poll()
        assert tail.listener.told[batch.base_offset] == batch.data


def test_batch_with_a_wrong_checksum_waits_until_it_is_right(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    batch = broker.append()
    broker.active.write_bytes(batch.data[:-1] + b"\xff")
    assert tail.poll().problem is None
    assert not tail.listener.told
    broker.active.write_bytes(batch.data)
    tail.poll()
    assert tail.listener.told == {0: batch.data}


def test_poll_tells_how_much_it_cannot_read(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    batch = broker.append()
    assert tail.poll().unread_bytes == 0
    broker.begin_append(0.5)
    assert tail.poll().unread_bytes == broker.active.stat().st_size - len(batch.data)
    broker.finish_append()
    assert tail.poll().unread_bytes == 0


def test_unused_room_of_a_preallocated_file_is_nothing_that_cannot_be_read(tmp_path: Path, follow: Follow) -> None:
    broker = BrokerLog(tmp_path / "a", room_bytes=1 << 20)
    tail = follow(broker)
    broker.append(3)
    assert tail.poll().unread_bytes == 0


@pytest.mark.spec("push-replication 2.14")
def test_bad_tail_that_persists_over_a_roll_is_an_error(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    batch = broker.append()
    broker.active.write_bytes(batch.data[:-1] + b"\xff")
    damaged = broker.active
    broker.roll()
    broker.append()
    problem = tail.poll().problem
    assert isinstance(problem, CorruptRecordError)
    assert str(damaged) in str(problem)
    assert tail.log.log_end_offset == 0
    damaged.write_bytes(batch.data)
    assert tail.poll_to_the_end().problem is None
    assert tail.log.log_end_offset == 2


def test_zeros_behind_the_data_of_a_preallocated_file_are_no_batch(tmp_path: Path, follow: Follow) -> None:
    broker = BrokerLog(tmp_path / "a", room_bytes=1 << 20)
    broker.append(3)
    tail = follow(broker)
    assert tail.log.log_end_offset == 3
    for _ in range(3):
        for _ in range(40):
            broker.append(10, size=1000)
        broker.begin_append(0.5)
        tail.poll_to_the_end()
        broker.finish_append()
        tail.poll_to_the_end()
        assert tail.log.log_end_offset == broker.next_offset
        broker.roll()
    assert ("truncated", broker.next_offset) not in tail.listener.events


def test_tail_follows_several_rolls_in_one_poll(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    for _ in range(4):
        broker.append(2)
        broker.append(1)
        broker.roll()
    broker.append(1)
    tail.poll()
    assert list(tail.listener.told) == [batch.base_offset for batch in broker.history]
    assert tail.log.position.log == broker.active


def test_poll_ends_at_its_bound_on_bytes_and_goes_on(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker, max_bytes=100_000)
    for _ in range(100):
        broker.append(1, size=10_000)
    done = tail.poll()
    assert done.has_more
    assert sum(len(append.records) for append in done.appends) < 250_000
    tail.poll_to_the_end()
    assert tail.log.log_end_offset == 100


def test_batch_larger_than_the_bound_is_taken_alone(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker, max_bytes=1000)
    broker.append(1, size=9 << 20)
    broker.append(1)
    tail.poll_to_the_end()
    assert tail.log.log_end_offset == 2


def test_claimed_length_beyond_the_file_is_never_read(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    batch = broker.append()
    broker.active.write_bytes(batch.data[:8] + (2**31 - 1).to_bytes(4, "big") + batch.data[12:])
    done = tail.poll()
    assert (done.appends, done.problem) == ((), None)


@pytest.mark.spec("push-replication F18")
@pytest.mark.parametrize("rewritten", [0, 1, 2, 9])
def test_truncation_is_told_with_the_new_log_end(broker: BrokerLog, follow: Follow, rewritten: int) -> None:
    tail = follow(broker)
    for _ in range(5):
        broker.append(2)
    tail.poll()
    broker.truncate(3)
    broker.begin_epoch()
    for _ in range(rewritten):
        broker.append(2)
    tail.poll_to_the_end()
    assert tail.listener.events[1] == ("truncated", 6 + 2 * rewritten)
    assert tail.log.lineage == broker.lineage


@pytest.mark.spec("push-replication F18")
def test_batch_of_the_same_epoch_that_changed_below_the_position_is_a_truncation(
    broker: BrokerLog, follow: Follow
) -> None:
    tail = follow(broker)
    for _ in range(3):
        broker.append(1)
    tail.poll()
    broker.truncate(2)  # a broker that lost its page cache keeps its epoch
    broker.append(1)
    tail.poll_to_the_end()
    assert tail.listener.events[1:] == [("truncated", 3)]


@pytest.mark.spec("push-replication F18")
def test_truncation_over_a_roll_is_found(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    broker.append(4)
    broker.append(4)
    broker.roll()
    broker.append(2)
    tail.poll()
    broker.truncate(1)
    tail.poll_to_the_end()
    assert tail.listener.events[-1] == ("truncated", 4)
    assert tail.log.position.log == broker.active


def test_segment_that_was_cut_off_and_rolled_again_at_the_same_offset_is_found(
    broker: BrokerLog, follow: Follow
) -> None:
    tail = follow(broker)
    broker.append(4)
    broker.roll()
    tail.poll()
    assert tail.log.position.position == 0
    broker.truncate(0)
    broker.append(4)
    broker.roll()
    tail.poll_to_the_end()
    assert tail.listener.events[-1] == ("truncated", 4)


def test_new_leadership_without_records_is_the_leader_epoch(broker: BrokerLog, follow: Follow) -> None:
    broker.append(2)
    tail = follow(broker)
    broker.begin_epoch()
    tail.poll()
    assert tail.log.leader_epoch == 1
    assert tail.log.lineage == epochs((0, 0), (1, 2))
    broker.append(1)
    tail.poll()
    assert tail.listener.taken_events() == [("append", 3)]
    assert tail.log.lineage == epochs((0, 0), (1, 2))


def test_announced_leader_epoch_counts_before_the_broker_writes_it(broker: BrokerLog, follow: Follow) -> None:
    log = follow(broker).log
    log.announce_leader_epoch(7)
    log.announce_leader_epoch(3)
    assert log.leader_epoch == 7


def test_compaction_swap_of_rolled_segments_changes_nothing(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    for _ in range(3):
        broker.append(2)
        broker.append(2)
        broker.roll()
    broker.append(1)
    tail.poll()
    events = tail.listener.taken_events()
    broker.clean()
    broker.append(1)
    tail.poll_to_the_end()
    assert tail.listener.taken_events() == [("append", broker.next_offset)]
    assert all(name == "append" for name, _ in events)


@pytest.mark.parametrize("is_idempotent", [True, False])
def test_last_batch_that_a_cleaner_rewrites_is_known_by_its_producer(
    broker: BrokerLog, follow: Follow, is_idempotent: bool
) -> None:
    """Without a producer id it could be a batch that took the place of the one that was read."""
    tail = follow(broker)
    broker.append(2)
    producer = Producer(7, 0, 30) if is_idempotent else NO_PRODUCER
    broker.append_data(records(3, base_offset=2, value=bytes(50), producer=producer), 3)
    broker.roll()
    tail.poll_to_the_end()
    tail.listener.taken_events()
    rolled = broker.segments[0]
    broker.rewrite(rolled, rolled.batches[0].data + records(3, base_offset=2, value=b"", producer=producer))
    broker.append(1)
    tail.poll_to_the_end()
    assert tail.listener.taken_events() == [("append" if is_idempotent else "truncated", 6)]


def test_tail_that_lags_in_a_compacted_segment_goes_on_behind_the_gap(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker, max_bytes=100)
    for _ in range(6):
        broker.append(2)
        broker.roll()
    tail.poll()
    broker.clean()
    broker.append(1)
    tail.poll_to_the_end()
    assert tail.log.log_end_offset == broker.next_offset
    kept = {batch.base_offset: batch.data for batch in broker.history}
    assert all(kept[offset] == data for offset, data in tail.listener.told.items())


def test_swap_that_is_under_way_does_not_hold_up_the_active_segment(broker: BrokerLog, follow: Follow) -> None:
    broker.append(1)
    broker.roll()
    tail = follow(broker)
    swap = broker.path / "00000000000000000000.log.swap"
    swap.touch()
    broker.append(1)
    done = tail.poll()
    assert not done.is_settled
    assert tail.log.log_end_offset == 2
    swap.unlink()
    assert tail.poll().is_settled


def test_retention_raises_the_log_start(broker: BrokerLog, follow: Follow) -> None:
    broker.append(4)
    broker.roll()
    broker.append(2)
    tail = follow(broker)
    broker.delete_oldest()
    tail.poll()
    assert tail.listener.events == [("high watermark", 4), ("log start", 4)]


def test_records_that_retention_took_before_they_were_read_are_told_as_a_truncation(
    broker: BrokerLog, follow: Follow
) -> None:
    tail = follow(broker)
    broker.append(4)
    broker.roll()
    broker.append(2)
    broker.delete_oldest()
    tail.poll_to_the_end()
    assert tail.listener.events[0] == ("truncated", 6)


def test_delete_records_raises_the_log_start_after_the_watermark(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    broker.append(10)
    tail.poll()
    tail.log.raise_watermark(8, log_start_offset=5)
    assert tail.listener.events[1:] == [("high watermark", 8), ("log start", 5)]


@pytest.mark.parametrize("before", [5, 6, 9, 10, 12])
def test_epochs_that_begin_at_a_raised_log_start_are_no_truncation(
    broker: BrokerLog, follow: Follow, before: int
) -> None:
    tail = follow(broker)
    for _ in range(3):
        broker.append(4)
        broker.begin_epoch()
    tail.poll()
    events = tail.listener.taken_events()
    broker.delete_records(before)
    broker.append(1)
    tail.poll_to_the_end()
    assert tail.listener.taken_events() == [("append", 13)]
    assert [name for name, _ in events] == ["append"] * len(events)
    assert tail.log.lineage.epoch_for(12) == 3


@pytest.mark.spec("push-replication F18")
def test_other_epoch_behind_a_raised_log_start_is_a_truncation(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    broker.append(4)
    broker.append(4)
    tail.poll()
    broker.truncate(1)
    broker.begin_epoch()
    broker.append(4)
    broker.delete_records(6)
    tail.poll_to_the_end()
    assert tail.listener.events[-1] == ("truncated", 8)


def test_watermark_above_the_log_end_waits_for_the_records(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    tail.log.raise_watermark(6)
    assert tail.log.high_watermark == 0
    broker.append(4)
    broker.append(4)
    tail.poll()
    assert tail.listener.events == [("append", 8), ("high watermark", 6)]


def test_limit_at_the_watermark_keeps_back_what_is_above_it(broker: BrokerLog, follow: Follow) -> None:
    broker.append(2)
    broker.append(2)
    tail = follow(broker, limit=TailLimit.HWM, watermark=2)
    assert tail.log.log_end_offset == 2
    broker.append(2)
    tail.poll()
    assert tail.listener.events == []
    assert tail.log.raise_watermark(5)
    tail.poll()
    assert tail.listener.taken_events() == [("append", 4), ("high watermark", 4)]
    tail.log.raise_watermark(6)
    tail.poll()
    assert tail.listener.taken_events() == [("append", 6), ("high watermark", 6)]


def test_log_goes_on_in_another_log_dir(tmp_path: Path, broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    broker.append(3)
    tail.poll()
    (tmp_path / "b").mkdir()
    broker.move_to(tmp_path / "b")
    gone = tail.poll()
    assert gone.is_gone
    assert isinstance(gone.problem, SegmentChangedError)
    tail.log.move(broker.directory)
    broker.append(1)
    tail.poll_to_the_end()
    assert tail.listener.events == [("append", 3), ("append", 4)]


def test_active_file_that_vanishes_is_polled_again(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    broker.append(1)
    hidden = broker.active.rename(broker.path / "hidden")
    assert not tail.poll().is_settled
    hidden.rename(broker.active)
    assert tail.poll().is_settled
    assert tail.log.log_end_offset == 1


def test_unreadable_file_is_an_error_of_the_partition(broker: BrokerLog, follow: Follow) -> None:
    tail = follow(broker)
    broker.append(1)
    hidden = broker.active.rename(broker.path / "hidden")
    broker.active.mkdir()
    problem = tail.poll().problem
    assert problem is not None
    assert str(broker.active) in str(problem)
    broker.active.rmdir()
    hidden.rename(broker.active)
    tail.poll()
    assert tail.log.log_end_offset == 1


@pytest.mark.spec("push-replication 2.14")
def test_polls_leave_the_directory_as_it_is(broker: BrokerLog, follow: Follow) -> None:
    broker.append(3)
    broker.roll()
    broker.append(3)
    os.utime(broker.path, ns=(0, 10**18))
    before = _state(broker.path)
    tail = follow(broker)
    tail.poll_to_the_end()
    assert _state(broker.path) == before


def _state(path: Path) -> dict[str, tuple[int, ...]]:
    files = [path, *path.iterdir()]
    status = {file.name: file.stat() for file in files}
    return {name: (it.st_ino, it.st_size, it.st_mtime_ns, it.st_mode, it.st_nlink) for name, it in status.items()}
