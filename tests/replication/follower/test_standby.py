"""A standby as a whole: logs on a simulated disk, leaders in memory."""

import random
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.replication.follower.following import batch, entry
from tests.replication.follower.leaders import FakeLeaders
from tests.replication.follower.standby_setup import StandbyDisk, StandbyRun
from tierd.errors import LogDirOfflineError
from tierd.log import LogConfig, PartitionWriter
from tierd.log.files.disk import read_file
from tierd.model import TopicPartition
from tierd.replication.follower.standby_memory import FILE_NAME, StandbyMemory
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.replication_state import ReplicationMode

OLD, NEW = UUID(int=1), UUID(int=2)
ORDERS = TopicPartition("orders", 0)
PUSH, PULL = ReplicationMode.PUSH, ReplicationMode.PULL


@pytest.fixture
def disk() -> StandbyDisk:
    return StandbyDisk()


@pytest.fixture
def leaders() -> FakeLeaders:
    return FakeLeaders(1, 2)


async def test_announced_partition_is_fetched_to_the_leaders_end(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7, config=(("segment.bytes", "500"),))
    leader.append_new(20, epoch=7, records=2)
    leader.log.high_watermark = 30
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(40)
        assert await run.content() == leader.log.content
        log = run.service.log(ORDERS)
        assert (log.topic_id, log.config.segment_bytes, log.high_watermark) == (OLD, 500, 30)
        replica = run.replica()
        assert replica is not None
        assert (replica.mode, replica.leader_id, replica.leader_epoch) == (PULL, 1, 7)
        assert (replica.lag_records, replica.last_error) == (0, "")
    assert leaders.open_channels == 0


async def test_partition_that_is_pushed_is_not_fetched_and_falls_back_when_the_leader_is_silent(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7)
    leader.append_new(5, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        pushed = entry(topic_id=OLD, append_offset=5, last_epoch=7, records=batch(5), high_watermark=5)
        answer = (await run.push(pushed)).partitions[0]
        assert (answer.error_code, answer.log_end_offset) == (0, 6)
        assert run.standby.status().pushed_partitions == 1
        leader.append(batch(5))
        leaders.nodes[1].tell()
        fetches = len(leaders.nodes[1].fetches)
        disk.clock.advance(9)
        await disk.pass_time(0)
        assert len(leaders.nodes[1].fetches) == fetches
        leader.append_new(1, epoch=7)
        await run.reaches(7)
        replica = run.replica()
        assert replica is not None
        assert (replica.mode, replica.session_id) == (PULL, 1)


@pytest.mark.spec("push-replication F1")
@pytest.mark.spec("push-replication F16")
async def test_leader_with_the_highest_epoch_is_followed_also_after_a_restart(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    zombie = leaders.nodes[1].announce("orders", OLD, epoch=7)
    zombie.append_new(5, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        leader = leaders.nodes[2].announce("orders", OLD, epoch=8)
        leader.append(*(each.data for each in zombie.log.batches[:3]))
        leader.append_new(4, epoch=8, value=b"of the new leader")
        await run.reaches(7)
        assert await run.content() == leader.log.content
        refused = await run.push(entry(topic_id=OLD, append_offset=7, last_epoch=8, records=batch(7)))
        assert refused.partitions[0].error_code == PushErrorCode.FENCED_LEADER_EPOCH
    leaders.nodes[2].is_away = True
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await eventually(
            lambda: (kept := run.replica()) is not None and kept.log_end_offset == 7, what="the log of before"
        )
        refused = await run.push(entry(topic_id=OLD, append_offset=7, last_epoch=8, records=batch(7)))
        assert refused.partitions[0].error_code == PushErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.spec("push-replication 77")
@pytest.mark.spec("push-replication F12")
async def test_deleted_partition_is_removed_and_later_pushes_make_no_directory(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leaders.nodes[1].announce("orders", OLD, epoch=7).append_new(5, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        leaders.nodes[1].delete(OLD)
        await eventually(lambda: run.replica() is None, what="the deletion")
        await eventually(lambda: not run.service.logs(), what="the deletion of the log")
        answer = await run.push(entry(topic_id=OLD, append_offset=5, last_epoch=7, records=batch(5)))
        assert answer.partitions[0].error_code == PushErrorCode.UNKNOWN_TOPIC_ID
        leaders.nodes[2].announce("orders", OLD, epoch=9)
        leaders.nodes[2].announce("payments", NEW, epoch=1).append_new(1, epoch=1)
        await run.reaches(1, "payments")
        assert run.replica() is None
    assert "orders-0" not in disk.disk.list_names(disk.log_dirs[0])


@pytest.mark.spec("push-replication F13")
async def test_topic_that_is_deleted_and_made_again_never_mixes_with_the_old_one(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leaders.nodes[1].announce("orders", OLD, epoch=7).append_new(5, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        leaders.nodes[1].delete(OLD)
        leader = leaders.nodes[1].announce("orders", NEW, epoch=0)
        leader.append_new(2, epoch=0, value=b"new")
        leaders.nodes[1].tell()
        await run.reaches(2)
        assert await run.content() == leader.log.content
        assert run.service.log(ORDERS).topic_id == NEW
        answer = await run.push(entry(topic_id=OLD, append_offset=5, last_epoch=7, records=batch(5)))
        assert answer.partitions[0].error_code == PushErrorCode.UNKNOWN_TOPIC_ID
        replica = run.replica()
        assert replica is not None
        assert (replica.mode, replica.session_id) == (PULL, 0)


async def test_copy_of_an_incarnation_that_was_replaced_without_a_deletion_stays_on_the_disk(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leaders.nodes[1].announce("orders", OLD, epoch=7).append_new(5, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        leaders.nodes[1].announce("orders", NEW, epoch=0).append_new(2, epoch=0)
        await run.reaches(2)
    names = disk.disk.list_names(disk.log_dirs[0])
    (aside,) = [name for name in names if name.endswith("-stray")]
    assert disk.disk.status(disk.log_dirs[0] / aside / f"{0:020}.log") is not None


async def test_topic_that_is_made_again_on_another_node_is_kept_once_the_old_leader_hears_of_the_deletion(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    """The cluster takes a while to say that a topic id is gone; the new topic is announced before, and only once."""
    leaders.nodes[1].announce("orders", OLD, epoch=7).append_new(3, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(3)
        leaders.nodes[2].announce("orders", NEW, epoch=0).append_new(5, epoch=0)
        await eventually(lambda: "orders-0" in run.standby.status().conflicts, what="the refusal")
        leaders.nodes[1].delete(OLD)
        await run.reaches(5)
        assert run.service.log(ORDERS).topic_id == NEW
        assert not run.standby.status().conflicts


async def test_leader_that_is_away_or_announces_nothing_costs_no_copy(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leaders.nodes[1].announce("orders", OLD, epoch=7).append_new(5, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        leaders.nodes[1].announced = []
        leaders.nodes[1].tell()
        leaders.nodes[1].is_away = True
        for _ in range(100):
            disk.clock.advance(1)
            await disk.pass_time(0)
        assert run.replica() is not None
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)


async def test_several_leaders_are_followed_at_the_same_time(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leaders.nodes[1].announce("orders", OLD, epoch=7).append_new(5, epoch=7)
    leaders.nodes[2].announce("orders", OLD, epoch=3, partition=1).append_new(7, epoch=3)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        await run.reaches(7, partition=1)
        run.standby.set_leaders([1])
        leaders.nodes[1].partitions[OLD, 0].append_new(1, epoch=7)
        leaders.nodes[1].tell()
        await run.reaches(6)
        assert run.replica(partition=1) is not None


async def test_answer_that_the_leader_has_changed_asks_the_other_leaders(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leaders.nodes[2].is_away = True
    leaders.nodes[1].announce("orders", OLD, epoch=7).append_new(5, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        leaders.nodes[2].is_away = False
        leaders.nodes[2].announce("orders", OLD, epoch=8).append(
            *[each.data for each in leaders.nodes[1].partitions[OLD, 0].log.batches]
        )
        leaders.nodes[2].partitions[OLD, 0].append_new(1, epoch=8)
        leaders.nodes[1].refuses[OLD, 0] = PushErrorCode.NOT_LEADER_OR_FOLLOWER
        leaders.nodes[1].tell()
        await run.reaches(6)


@pytest.mark.spec("push-replication F3")
@pytest.mark.spec("push-replication F4")
async def test_restarted_standby_begins_in_pull_mode_and_refuses_its_old_identity(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7)
    leader.append_new(5, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        leader.append_new(1, epoch=7)
        await run.push(entry(topic_id=OLD, append_offset=5, last_epoch=7, records=batch(5)))
    disk.disk.crash(random.Random(1))
    async with StandbyRun(disk, leaders, tmp_path, process_epoch=101) as run:
        await run.reaches(6)
        stale = await run.push(entry(topic_id=OLD, append_offset=6, last_epoch=7, records=batch(6)))
        assert stale.error_code == PushErrorCode.STALE_BROKER_EPOCH
        replica = run.replica()
        assert replica is not None
        assert (replica.mode, replica.session_id) == (PULL, 0)
        assert await run.content() == leader.log.content


COMPACTED = (("cleanup.policy", "compact"), ("delete.retention.ms", "60000"), ("segment.bytes", "500"))


@pytest.mark.parametrize(("away_ms", "is_rebuilt"), [(30_000, False), (600_000, True)])
async def test_compacted_copy_is_built_again_after_an_absence_longer_than_tombstones_stay(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path, away_ms: int, *, is_rebuilt: bool
) -> None:
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7, config=COMPACTED)
    leader.append(batch(0, epoch=7, key=b"a"), batch(1, epoch=7, key=b"b"))
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(2)
        leaders.nodes[1].tell()
        await eventually(lambda: run.replica() is not None and not _is_rebuilding(run), what="a copy in sync")
    leader.log.batches.pop(0)  # the leader has cleaned: key a was deleted, and its tombstone is gone too
    leader.append(batch(3, epoch=7, key=b"c"))
    disk.clock.step_wall_clock(away_ms)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(4)
        assert (await run.content() == leader.log.content) is is_rebuilt


def _is_rebuilding(run: StandbyRun) -> bool:
    replica = run.replica()
    return replica is not None and replica.is_rebuilding


async def test_retention_of_the_standby_keeps_pushes_and_fetches_going(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    config = (("retention.ms", "1000"), ("segment.bytes", "500"))
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7, config=config)
    leader.append_new(20, epoch=7)
    leader.log.high_watermark = 20
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(20)
        await eventually(lambda: run.service.log(ORDERS).high_watermark == 20, what="the high watermark")
        await run.service.writer(ORDERS).run(lambda log: log.delete_old_segments(disk.clock.now_ms()))
        assert run.service.log(ORDERS).log_start_offset == 20
        sent = entry(topic_id=OLD, append_offset=20, last_epoch=7, records=batch(20), high_watermark=20)
        assert (await run.push(sent)).partitions[0].log_end_offset == 21
        again = entry(topic_id=OLD, append_offset=18, records=batch(18) + batch(19) + batch(20))
        assert (await run.push(again)).partitions[0].error_code == 0
        await run.push(entry(topic_id=OLD, end_session=True))
        leader.append(batch(20), batch(21))
        leaders.nodes[1].tell()
        await run.reaches(22)
        assert await run.content() == batch(20) + batch(21)


async def test_copy_of_a_tiered_topic_has_what_its_leader_has_on_local_disk(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    """The leader keeps records beyond the local retention while the tier does not take them, and so does the copy."""
    config = (
        ("remote.storage.enable", "true"),
        ("retention.ms", "9000"),
        ("local.retention.ms", "1000"),
        ("segment.bytes", "500"),
    )
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7, config=config)
    leader.append_new(20, epoch=7)
    leader.log.high_watermark = 20
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(20)
        log = run.service.log(ORDERS)
        await eventually(lambda: log.high_watermark == 20, what="the high watermark")
        await run.service.writer(ORDERS).run(lambda log: log.delete_old_segments(disk.clock.now_ms()))
        assert (log.log_start_offset, len(await run.content())) == (0, len(leader.log.content))
        leader.log.log_start_offset = 12
        leaders.nodes[1].tell()

        def has_deleted() -> bool:
            disk.clock.advance(0.05)
            return log.log_start_offset == 12

        await eventually(has_deleted, what="the log start of the leader")


async def test_cleaning_of_the_standby_keeps_pushes_and_fetches_going(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    config = (("cleanup.policy", "compact"), ("segment.bytes", "500"), ("min.cleanable.dirty.ratio", "0"))
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7, config=config)
    leader.append_new(20, epoch=7)
    leader.log.high_watermark = 20
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(20)
        await eventually(lambda: run.service.log(ORDERS).high_watermark == 20, what="the high watermark")
        before = run.service.log(ORDERS).size_bytes
        await disk.pass_time(40)
        await eventually(lambda: run.service.log(ORDERS).size_bytes < before, what="a cleaning")
        sent = entry(topic_id=OLD, append_offset=20, last_epoch=7, records=batch(20), high_watermark=20)
        assert (await run.push(sent)).partitions[0].log_end_offset == 21
        again = entry(topic_id=OLD, append_offset=0, records=b"".join(batch(each) for each in range(22)))
        assert (await run.push(again)).partitions[0].log_end_offset == 22


async def test_settings_that_the_leader_announces_anew_reach_the_log(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leaders.nodes[1].announce("orders", OLD, epoch=7, config=(("retention.ms", "5000"),)).append_new(1, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(1)
        assert run.service.log(ORDERS).config == LogConfig(retention_ms=5000)
        leaders.nodes[1].announce("orders", OLD, epoch=7, config=(("retention.ms", "7000"),))
        await eventually(lambda: run.service.log(ORDERS).config.retention_ms == 7000, what="the settings")
    async with disk.service() as service:
        assert service.log(ORDERS).topic_id == OLD


async def test_standby_with_push_switched_off_fetches_and_refuses_pushes(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7)
    leader.append_new(5, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path, is_push_enabled=False) as run:
        await run.reaches(5)
        refused = await run.push(entry(topic_id=OLD, append_offset=5, last_epoch=7, records=batch(5)))
        assert refused.partitions[0].error_code == PushErrorCode.STALE_REPLICATION_SESSION
        assert await run.content() == leader.log.content


async def test_copy_is_set_aside_when_its_leader_has_lost_every_record(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7)
    leader.append_new(5, epoch=7)
    leader.log.high_watermark = 5
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        await eventually(lambda: run.service.log(ORDERS).high_watermark == 5, what="the high watermark")
        await run.push(entry(topic_id=OLD, append_offset=5, last_epoch=7))
        await run.push(entry(topic_id=OLD, end_session=True))
        leader.log._restart(0)
        leader.append_new(2, epoch=8, value=b"after the loss of the disk")
        leaders.nodes[1].announce("orders", OLD, epoch=8)
        await run.reaches(2)
        assert await run.content() == leader.log.content
        (stray,) = disk.manager.stray_logs()
        replica = run.replica()
        assert replica is not None
        assert (stray.log_end_offset, replica.session_id) == (5, 2)


async def test_committed_records_that_the_leader_lacks_are_kept_before_they_are_cut(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7)
    leader.append_new(5, epoch=7)
    leader.log.high_watermark = 5
    lost = [each.data for each in leader.log.batches[2:]]
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        await eventually(lambda: run.service.log(ORDERS).high_watermark == 5, what="the high watermark")
    leader.log._truncate(2)  # the image of yesterday
    leader.append_new(1, epoch=8)
    leaders.nodes[1].announce("orders", OLD, epoch=8)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        with capture_logs() as lines:
            await run.reaches(3)
        assert await run.content() == leader.log.content
        (aside,) = disk.manager.stray_logs()
        assert (aside.log_start_offset, aside.log_end_offset, aside.topic_id) == (2, 5, OLD)
        named = {line["event"]: line for line in lines}
        assert named["leader_lost_committed_records"]["offset"] == 2
        assert named["lost_records_kept"]["directory"] == str(aside.directory)
        kept = read_file(disk.disk, aside.directory / "00000000000000000002.log")
        assert kept == b"".join(lost)
    async with StandbyRun(disk, leaders, tmp_path):  # the next start leaves it where it is
        (again,) = disk.manager.stray_logs()
        assert (again.log_start_offset, again.log_end_offset, again.leader_epochs.epoch_for(2)) == (2, 5, 7)


async def test_copy_is_set_aside_where_its_committed_records_cannot_be_copied(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7)
    leader.append_new(5, epoch=7)
    leader.log.high_watermark = 5
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
        await eventually(lambda: run.service.log(ORDERS).high_watermark == 5, what="the high watermark")
        damaged = disk.disk.open(run.service.log(ORDERS).directory / "00000000000000000000.log")
        damaged.write(damaged.size_bytes - 1, [b"\xff"])
        damaged.close()
        leader.log._truncate(2)
        leader.append_new(1, epoch=8)
        leaders.nodes[1].announce("orders", OLD, epoch=8)
        await run.reaches(3)
        assert await run.content() == leader.log.content
        assert 5 in {stray.log_end_offset for stray in disk.manager.stray_logs()}


@pytest.mark.parametrize("topic_id", [OLD, NEW])
async def test_standby_that_has_lost_its_memory_keeps_the_incarnation_that_is_announced(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path, topic_id: UUID
) -> None:
    leaders.nodes[1].announce("orders", OLD, epoch=7).append_new(5, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(5)
    (tmp_path / FILE_NAME).unlink()
    leader = leaders.nodes[1].announce("orders", topic_id, epoch=7)
    leader.append_new(1, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(6 if topic_id == OLD else 1)
        assert await run.content() == leader.log.content
        assert len(disk.manager.stray_logs()) == (0 if topic_id == OLD else 1)


async def test_deletion_that_a_stop_interrupted_is_done_at_the_next_start(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    async with disk.service() as service:
        await service.get_or_create(ORDERS, topic_id=OLD)
    StandbyMemory(retired=(OLD,)).save(tmp_path)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await eventually(lambda: not run.service.logs(), what="the deletion")


async def test_log_that_cannot_be_made_is_tried_again_and_its_leader_is_told_to_wait(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leaders.nodes[1].announce("orders", OLD, epoch=7).append_new(1, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        original, run.service.get_or_create = run.service.get_or_create, _refuse  # type: ignore[method-assign]
        await eventually(lambda: bool(run.replica() and run.standby.status().replicas[0].last_error), what="a failure")
        refused = await run.push(entry(topic_id=OLD, append_offset=0, records=batch(0)))
        assert refused.partitions[0].error_code == PushErrorCode.KAFKA_STORAGE_ERROR
        run.service.get_or_create = original  # type: ignore[method-assign]
        await run.reaches(1)


async def _refuse(*_: object, **__: object) -> PartitionWriter:
    raise LogDirOfflineError("no log dir can take a log")


@pytest.mark.spec("push-replication F25")
async def test_clock_that_is_set_back_or_forward_changes_nothing_while_the_standby_runs(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7, config=COMPACTED)
    leader.append_new(2, epoch=7)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(2)
        pushed = entry(topic_id=OLD, append_offset=2, last_epoch=7, records=batch(2))
        assert (await run.push(pushed)).partitions[0].error_code == 0
        for step_ms in (10**9, -(2 * 10**9)):
            disk.clock.step_wall_clock(step_ms)
            await disk.pass_time(2)
            assert run.standby.status().pushed_partitions == 1
        await run.push(entry(topic_id=OLD, end_session=True))
        leader.append(batch(2), batch(3))
        await run.reaches(4)
        assert run.service.log(ORDERS).log_start_offset == 0
        assert await run.content() == leader.log.content


@pytest.mark.spec("push-replication F24")
async def test_log_whose_start_lies_inside_a_batch_begins_at_the_base_of_the_batch_on_disk(
    disk: StandbyDisk, leaders: FakeLeaders, tmp_path: Path
) -> None:
    leader = leaders.nodes[1].announce("orders", OLD, epoch=7)
    leader.append(batch(0, 5), batch(5, 10), batch(15, 5))
    leader.log.high_watermark = 20
    leader.log._raise_start(9)
    async with StandbyRun(disk, leaders, tmp_path) as run:
        await run.reaches(20)
        await eventually(lambda: run.service.log(ORDERS).log_start_offset == 9, what="the log start")
        assert await run.content() == batch(5, 10) + batch(15, 5)
        sent = entry(topic_id=OLD, append_offset=20, last_epoch=7, records=batch(20), high_watermark=21)
        assert (await run.push(sent)).partitions[0].error_code == 0
    disk.disk.crash(random.Random(2))
    async with StandbyRun(disk, leaders, tmp_path, process_epoch=101) as run:
        leader.append(batch(20))
        await run.reaches(21)
        assert run.service.log(ORDERS).log_start_offset == 9
