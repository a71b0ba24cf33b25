"""TailFollower over real directories: growth wakes it, and nothing but a change of the files does."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.fakes.open_files import open_files
from tests.replication.tail.broker_log import BrokerLog
from tests.replication.tail.tail_listening import PARTITION, RecordingListener
from tierd.clock import Clock, SystemClock
from tierd.errors import CorruptRecordError, OffsetOutOfRangeError, UnknownPartitionError
from tierd.log import encode_offset_checkpoint
from tierd.model import TopicIdPartition, TopicPartition
from tierd.replication.tail.growth_watch import GrowthWatch
from tierd.replication.tail.tail_follower import TailFollower
from tierd.replication.tail.tail_values import TailLimit, TailSettings
from tierd.replication.tail.tailed_log import TailedLog

OTHER_ID = UUID("87654321-9abc-def0-fedc-ba9876543210")
# No check within a test: only events, or the time of an unwatched log, lead to a poll.
SETTINGS = TailSettings(interval_s=0.005, check_interval_s=3600.0)


@pytest.fixture
def log_dirs(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "a", tmp_path / "b"]
    for each in found:
        each.mkdir()
    return found


@asynccontextmanager
async def following(
    log_dirs: list[Path], settings: TailSettings = SETTINGS, *, clock: Clock | None = None
) -> AsyncIterator[TailFollower]:
    follower = TailFollower(log_dirs, settings, clock=clock or SystemClock())
    task = asyncio.create_task(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None, task.exception()


def listened(log: TailedLog) -> RecordingListener:
    listener = RecordingListener(log.log_end_offset)
    log.listen(listener)
    return listener


async def reaches(log: TailedLog, offset: int) -> None:
    await eventually(lambda: log.log_end_offset == offset, what=f"log end {offset}")


def partition_of(name: str, topic_id: UUID = PARTITION.topic_id) -> TopicIdPartition:
    named = TopicPartition.parse(name)
    return TopicIdPartition(topic_id, named.topic, named.partition)


async def test_growth_and_rolls_are_told_as_they_happen(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    broker.append(2)
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        listener = listened(log)
        for _ in range(4):
            broker.append(3, size=500)
            broker.append(1)
            await reaches(log, broker.next_offset)
            broker.roll()
            broker.append(1)
            await reaches(log, broker.next_offset)
        assert listener.told == {batch.base_offset: batch.data for batch in broker.history[1:]}
        assert follower.statistics().watched == 1
        assert follower.statistics().taken_bytes == sum(map(len, listener.told.values()))


async def test_truncation_is_told(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        listener = listened(log)
        broker.append(5)
        broker.append(5)
        await reaches(log, 10)
        broker.truncate(1)
        await reaches(log, 5)
        assert listener.events[-1] == ("truncated", 5)
        assert follower.statistics().restarts == 1


async def test_partition_is_found_in_another_log_dir_after_a_move(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        listener = listened(log)
        broker.append(3)
        await reaches(log, 3)
        broker.move_to(log_dirs[1])
        broker.append(2)
        await reaches(log, 5)
        assert await log.read(0, 1 << 20) == b"".join(batch.data for batch in broker.history)
        assert [name for name, _ in listener.events] == ["append", "append"]


async def test_recreated_topic_is_not_the_topic_that_was_followed(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        broker.append(3)
        await reaches(log, 3)
        broker.delete()
        again = BrokerLog(log_dirs[0], topic_id=OTHER_ID)
        again.append(7)
        await eventually(
            lambda: isinstance(follower.problem_of(PARTITION), UnknownPartitionError), what="the loss of the log"
        )
        assert log.log_end_offset == 3
        assert follower.statistics().missing == 1
        follower.unfollow(PARTITION)
        newer = await follower.follow(partition_of("orders-0", OTHER_ID))
        assert newer.log_end_offset == 7
        assert follower.statistics().broken == 0


async def test_unknown_partition_is_refused_and_not_followed(log_dirs: list[Path]) -> None:
    async with following(log_dirs) as follower:
        with pytest.raises(UnknownPartitionError, match="orders-0"):
            await follower.follow(PARTITION)
        assert follower.statistics().partitions == 0


class SkippingClock(SystemClock):
    """The system's clock, and what a test adds to it."""

    added_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.added_s


async def test_batch_that_does_not_become_sound_is_a_problem_of_its_partition(log_dirs: list[Path]) -> None:
    """A damaged batch of the active segment keeps all behind it from the standbys until the broker rolls."""
    broker, clock = BrokerLog(log_dirs[0]), SkippingClock()
    async with following(log_dirs, clock=clock) as follower:
        log = await follower.follow(PARTITION)
        batch = broker.append(1)
        broker.active.write_bytes(batch.data[:-1] + b"\xff")
        for _ in range(3):
            broker.append(2)
        polls = follower.statistics().polls
        broker.append(2)
        await eventually(lambda: follower.statistics().polls > polls, what="a poll")
        assert (follower.problem_of(PARTITION), log.log_end_offset) == (None, 0)
        with capture_logs() as events:
            clock.added_s = 11.0
            problem = follower.problem_of(PARTITION)
            await eventually(lambda: bool(events), what="the line in the log")
        assert problem is not None
        assert [(event["event"], event["partition"]) for event in events] == [("tail_failed", "orders-0")]
        assert f"{broker.active}: no whole and sound batch for 11 s" in str(problem)
        assert "run tierd inspect" in follower.statistics().problems[PARTITION]

        content = broker.active.read_bytes()
        broker.active.write_bytes(batch.data + content[len(batch.data) :])
        await reaches(log, broker.next_offset)
        assert follower.problem_of(PARTITION) is None


async def test_broken_partition_does_not_hold_up_others(log_dirs: list[Path]) -> None:
    broken, sound = BrokerLog(log_dirs[0], name="orders-0"), BrokerLog(log_dirs[0], name="orders-1")
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        other = await follower.follow(partition_of("orders-1"))
        with capture_logs() as events:
            batch = broken.append(1)
            broken.active.write_bytes(batch.data[:-1] + b"\xff")
            damaged = broken.active
            broken.roll()
            await eventually(
                lambda: isinstance(follower.problem_of(PARTITION), CorruptRecordError), what="the error of orders-0"
            )
            sound.append(4)
            await reaches(other, 4)
        statistics = follower.statistics()
        assert (statistics.broken, list(statistics.problems)) == (1, [PARTITION])
        assert "00000000000000000000.log" in statistics.problems[PARTITION]
        assert [event["partition"] for event in events if event["event"] == "tail_failed"] == ["orders-0"]
        damaged.write_bytes(batch.data)
        await reaches(log, 1)
        assert follower.statistics().broken == 0


async def test_checkpoints_of_the_broker_raise_watermark_and_log_start(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    broker.append(10)
    name = TopicPartition("orders", 0)
    write_checkpoint(log_dirs[0] / "replication-offset-checkpoint", {name: 4})
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        assert log.high_watermark == 4
        write_checkpoint(log_dirs[0] / "log-start-offset-checkpoint", {name: 2})
        write_checkpoint(log_dirs[0] / "replication-offset-checkpoint", {name: 8})
        await eventually(lambda: (log.high_watermark, log.log_start_offset) == (8, 2), what="the offsets")
        with pytest.raises(OffsetOutOfRangeError):
            await log.read(1, 100)


async def test_watermark_of_a_former_topic_with_the_same_name_is_ignored(log_dirs: list[Path]) -> None:
    checkpoint = log_dirs[0] / "replication-offset-checkpoint"
    write_checkpoint(checkpoint, {TopicPartition("orders", 0): 500})
    broker = BrokerLog(log_dirs[0])
    later_ns = checkpoint.stat().st_mtime_ns + 1_000_000
    (broker.path / "partition.metadata").touch()
    os.utime(broker.path / "partition.metadata", ns=(later_ns, later_ns))
    broker.append(3)
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        assert log.high_watermark == 0


async def test_log_start_of_a_former_topic_with_the_same_name_is_ignored(log_dirs: list[Path]) -> None:
    """A broker that starts writes its watermarks within 5 s, and its log starts only after 30 s."""
    broker, name = BrokerLog(log_dirs[0]), TopicPartition("orders", 0)
    broker.append(10)
    starts = log_dirs[0] / "log-start-offset-checkpoint"
    write_checkpoint(starts, {name: 4})
    os.utime(starts, (1, 1))
    os.utime(broker.path / "partition.metadata", (2, 2))
    write_checkpoint(log_dirs[0] / "replication-offset-checkpoint", {name: 8})
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        assert (log.high_watermark, log.log_start_offset) == (8, 0)
        write_checkpoint(starts, {name: 2})
        write_checkpoint(log_dirs[0] / "replication-offset-checkpoint", {name: 9})
        await eventually(lambda: (log.high_watermark, log.log_start_offset) == (9, 2), what="the offsets of this topic")


async def test_told_watermark_lets_the_limited_tail_go_on(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    broker.append(2)
    async with following(log_dirs, replace(SETTINGS, limit=TailLimit.HWM)) as follower:
        log = await follower.follow(PARTITION)
        assert log.log_end_offset == 0
        broker.append(2)
        follower.take_watermark(PARTITION, 2)
        await reaches(log, 2)
        assert log.high_watermark == 2
        follower.take_watermark(PARTITION, 4)
        await reaches(log, 4)


async def test_logs_are_polled_where_no_watch_is_left(log_dirs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: GrowthWatch, path: Path) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(GrowthWatch, "add", refused)
    broker = BrokerLog(log_dirs[0])
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        for _ in range(3):
            broker.append(2)
            await reaches(log, broker.next_offset)
            broker.roll()
        statistics = follower.statistics()
        assert statistics.watched == 0
        assert "fs.inotify.max_user_watches" in statistics.watch_problem


async def test_records_of_a_transition_stay_readable_after_the_segment_is_deleted(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    broker.append(1)
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        listened(log)
        broker.append(1)
        await reaches(log, 2)
        batches = [broker.append(2, size=100) for _ in range(5)]
        await reaches(log, 12)
        records = log.file_records(4, 12)
        assert records is not None
        assert (records.first_offset, records.next_offset) == (4, 12)
        broker.roll()
        broker.append(1)
        broker.delete_oldest()
        await reaches(log, 13)
        first = await records.read(0, 1)
        assert first == batches[1].data
        rest = await records.read(len(first), 1 << 20)
        assert rest == b"".join(batch.data for batch in batches[2:])
        assert await records.read(records.size_bytes, 1 << 20) == b""
        records.close()


async def test_range_inside_a_batch_or_of_an_old_segment_has_no_open_file(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    broker.append(2)
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        listened(log)
        broker.append(4)
        await reaches(log, 6)
        assert log.file_records(0, 6) is None
        assert log.file_records(3, 6) is None
        empty = log.file_records(6, 6)
        assert empty is not None
        assert (empty.size_bytes, await empty.read(0, 100)) == (0, b"")


async def test_read_returns_whole_batches_from_any_segment(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    batches = []
    for _ in range(3):
        batches += [broker.append(2, size=100), broker.append(2, size=100)]
        broker.roll()
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        assert await log.read(1, 1) == batches[0].data
        assert await log.read(0, 1 << 20) == batches[0].data + batches[1].data
        assert await log.read(9, 1 << 20) == batches[4].data + batches[5].data
        broker.clean(keep_each=2)
        assert await log.read(3, 1 << 20) == batches[2].data + batches[4].data
        assert await log.read(log.log_end_offset, 100) == b""
        with pytest.raises(OffsetOutOfRangeError, match="orders-0"):
            await log.read(log.log_end_offset + 1, 100)


@pytest.mark.spec("push-replication 2.14")
async def test_following_changes_nothing_in_the_log_dir(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    broker.append(2)
    broker.roll()
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        listened(log)
        broker.append(2)
        broker.roll()
        broker.append(2)
        before = state_below(log_dirs[0])
        await reaches(log, 6)
        assert await log.read(0, 1 << 20)
        follower.unfollow(PARTITION)
        assert state_below(log_dirs[0]) == before


async def test_end_closes_every_file(log_dirs: list[Path]) -> None:
    broker = BrokerLog(log_dirs[0])
    async with following(log_dirs) as follower:
        log = await follower.follow(PARTITION)
        listened(log)
        broker.append(2)
        await reaches(log, 2)
        broker.append(2)  # The first poll may have begun before anybody listened; this one keeps its file.
        await eventually(lambda: bool(open_files(log_dirs[0])), what="an open file")
    await eventually(lambda: not open_files(log_dirs[0]), what="closed files")


async def test_no_more_files_stay_open_than_allowed(log_dirs: list[Path]) -> None:
    brokers = [BrokerLog(log_dirs[0], name=f"orders-{number}") for number in range(6)]
    async with following(log_dirs, replace(SETTINGS, open_files=2)) as follower:
        logs = [await follower.follow(partition_of(f"orders-{number}")) for number in range(6)]
        for log, broker in zip(logs, brokers, strict=True):
            listened(log)
            broker.append(2)
        for log, broker in zip(logs, brokers, strict=True):
            await reaches(log, 2)
            broker.append(2)  # The first poll may have begun before anybody listened; this one keeps its file.
        for log in logs:
            await reaches(log, 4)
        assert follower.statistics().open_files == 2


def state_below(log_dir: Path) -> dict[Path, tuple[int, ...]]:
    status = {path: path.stat() for path in [log_dir, *log_dir.rglob("*")]}
    return {path: (it.st_ino, it.st_size, it.st_mtime_ns, it.st_ctime_ns, it.st_nlink) for path, it in status.items()}


def write_checkpoint(path: Path, offsets: dict[TopicPartition, int]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(encode_offset_checkpoint(offsets))
    temporary.rename(path)
