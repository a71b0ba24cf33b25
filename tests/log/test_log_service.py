"""LogService: the logs of several log dirs in use, with disks that fill up, fail and hang."""

import asyncio
import errno
import random
import threading
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import Fault, SimulatedDisk
from tests.log.cleaning.cleaners import own_log_rules
from tierd.errors import LogDirOfflineError, LogError, UnknownPartitionError
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.files.checkpoints import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_offset_checkpoint,
)
from tierd.log.files.clean_shutdown import CLEAN_SHUTDOWN_FILE
from tierd.log.files.disk import read_file
from tierd.log.log_errors import LogClosedError, LogTimeoutError
from tierd.log.log_service import LogService, PartitionWriter, ServiceSettings
from tierd.log.log_writer import WriterLimits
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.batch_builder import encode_batch
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import NewRecord
from tierd.log.records.record_batch import iter_batches
from tierd.model import TopicPartition
from tierd.testing import cancel_at

ONE, TWO = Path("/one"), Path("/two")
FIRST, SECOND = TopicPartition("topic", 0), TopicPartition("topic", 1)


class NoLock:
    def release(self) -> None:
        pass


class ServiceSetup:
    """Two log dirs on one simulated disk, and the parts of a service on them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk(now_ms=self.clock.now_ms)
        for path in (ONE, TWO):
            self.disk.make_directory(path)
        self.disk.sync_directory(Path("/"))
        self.config = LogConfig(segment_bytes=1000, index_interval_bytes=0, segment_index_bytes=240)
        self.limits = WriterLimits()

    def service(self) -> LogService:
        self.manager = manager = LogManager(
            [ONE, TWO],
            LogManagerSettings(config_for=lambda _: self.config, clock=self.clock),
            disk=self.disk,
            acquire_lock=lambda _: NoLock(),
        )
        return LogService(
            manager, clock=self.clock, rewriting=own_log_rules(), settings=ServiceSettings(limits=self.limits)
        )

    def is_clean(self, log_dir: Path) -> bool:
        return self.disk.status(log_dir / CLEAN_SHUTDOWN_FILE) is not None

    def checkpointed(self, name: str, log_dir: Path = ONE) -> dict[TopicPartition, int]:
        if self.disk.status(log_dir / name) is None:
            return {}
        return parse_offset_checkpoint(read_file(self.disk, log_dir / name), name=name)

    async def pass_time(self, seconds: float) -> None:
        """Let ``seconds`` pass in steps, so that all due work is done."""
        for _ in range(round(seconds)):
            self.clock.advance(1)
            await eventually(lambda: self.clock.sleeping > 2 * len(self.manager.live_dirs), what="the duties")


@pytest.fixture
def setup() -> ServiceSetup:
    return ServiceSetup()


def records(value: bytes, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    return encode_batch([NewRecord(b"key", value, timestamp_ms)], base_offset=0)


def batch_of(count: int) -> bytes:
    return encode_batch([NewRecord(b"key", b"value", 1_700_000_000_000)] * count, base_offset=0)


async def read_from(writer: PartitionWriter, offset: int) -> bytes:
    """Return the batches from the one that has ``offset`` on, across all segments."""
    found = b""

    def read(log: UnifiedLog) -> None:
        nonlocal found
        at = offset
        while data := log.read(at, max_bytes=1 << 20, isolation=None).records if at < log.log_end_offset else b"":
            found += data
            at = [batch.last_offset + 1 for batch in iter_batches(data, name="read")][-1]

    await writer.read(read)
    return found


async def append(writer: PartitionWriter, value: bytes, *, durable: bool = False) -> int:
    return (await writer.append_as_leader(records(value), leader_epoch=1, durable=durable)).first_offset


async def values(writer: PartitionWriter) -> list[int]:
    """Return the base offsets of the batches in the log."""
    found: list[int] = []

    def read(log: UnifiedLog) -> None:
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, max_bytes=1 << 20, isolation=None).records
            while data:
                found.append(int.from_bytes(data[:8], "big"))
                size = int.from_bytes(data[8:12], "big") + 12
                data = data[size:]
            offset = found[-1] + 1

    await writer.read(read)
    return found


async def open_both(service: LogService) -> tuple[PartitionWriter, PartitionWriter]:
    return (
        await service.get_or_create(FIRST, preferred_dir=ONE),
        await service.get_or_create(SECOND, preferred_dir=TWO),
    )


async def test_records_are_read_after_a_clean_stop_without_recovery(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        for writer in await open_both(service):
            for number in range(30):
                await append(writer, b"%d" % number)
    assert setup.is_clean(ONE)
    assert setup.is_clean(TWO)
    assert not setup.disk.open_files
    setup.disk.crash(random.Random(1))
    async with setup.service() as service:
        assert await values(service.writer(FIRST)) == list(range(30))
        assert service.log(SECOND).log_end_offset == 30


async def test_many_tasks_append_to_one_log_without_a_gap(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        writer, _ = await open_both(service)
        offsets = await asyncio.gather(*(append(writer, b"x", durable=True) for _ in range(200)))
        assert sorted(offsets) == list(range(200))
        assert writer.statistics().jobs < 20
        assert service.log(FIRST).recovery_point == 200


async def test_rolled_segments_are_flushed_shortly_after_the_roll(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        writer, _ = await open_both(service)
        for number in range(30):
            await append(writer, b"%d" % number)
        assert service.log(FIRST).recovery_point == 0
        await setup.pass_time(1)
        assert service.log(FIRST).recovery_point == service.log(FIRST).segments[-1].base_offset > 0


async def test_checkpoints_are_written_at_the_intervals_of_a_broker(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        writer, _ = await open_both(service)
        await append(writer, b"x", durable=True)
        service.log(FIRST).update_high_watermark(1)
        await setup.pass_time(5)
        assert setup.checkpointed(REPLICATION_OFFSET_CHECKPOINT) == {FIRST: 1}
        assert setup.checkpointed(RECOVERY_POINT_CHECKPOINT) == {}
        await setup.pass_time(56)
        assert setup.checkpointed(RECOVERY_POINT_CHECKPOINT) == {FIRST: 1}
        assert setup.checkpointed(RECOVERY_POINT_CHECKPOINT, TWO) == {SECOND: 0}


async def test_retention_runs_after_half_a_minute(setup: ServiceSetup) -> None:
    setup.config = LogConfig(segment_bytes=1000, retention_bytes=1000)
    async with setup.service() as service:
        writer, _ = await open_both(service)
        for number in range(60):
            await append(writer, b"%d" % number)
        log = service.log(FIRST)
        log.update_high_watermark(60)
        await setup.pass_time(29)
        assert log.log_start_offset == 0
        await setup.pass_time(2)
        assert log.log_start_offset > 0
        assert log.size_bytes < 2000


async def test_unflushed_records_are_flushed_after_flush_ms(setup: ServiceSetup) -> None:
    setup.config = LogConfig(flush_ms=3000)
    async with setup.service() as service:
        writer, _ = await open_both(service)
        await append(writer, b"x")
        await setup.pass_time(2)
        assert service.log(FIRST).recovery_point == 0
        await setup.pass_time(3)
        assert service.log(FIRST).recovery_point == 1


async def test_truncation_between_appends_lowers_log_end_and_recovery_point(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        writer, _ = await open_both(service)
        for number in range(30):
            await append(writer, b"%d" % number, durable=True)
        await service.truncate_to(FIRST, 7)
        assert setup.checkpointed(RECOVERY_POINT_CHECKPOINT)[FIRST] == 7
        assert await append(writer, b"again") == 7
        await service.truncate_fully_and_start_at(FIRST, 100)
        assert await append(writer, b"again") == 100


async def test_deleted_log_refuses_calls_and_its_directory_is_removed_later(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        writer, _ = await open_both(service)
        await append(writer, b"x")
        await service.delete(FIRST)
        with pytest.raises(LogClosedError):
            await append(writer, b"y")
        with pytest.raises(UnknownPartitionError):
            service.writer(FIRST)
        assert any(name.endswith("-delete") for name in setup.disk.list_names(ONE))
        await setup.pass_time(121)
        assert not any(name.startswith("topic") for name in setup.disk.list_names(ONE))


FAULTS = [
    pytest.param("write", ".log", id="append"),
    pytest.param("write", ".index", id="index"),
    pytest.param("write", ".snapshot", id="snapshot"),
    pytest.param("create", ".log", id="roll"),
    pytest.param("truncate", ".index", id="trim"),
    pytest.param("sync", ".log", id="flush"),
    pytest.param("sync_directory", "topic", id="flush of the names"),
    pytest.param("write", RECOVERY_POINT_CHECKPOINT, id="recovery point"),
    pytest.param("rename", REPLICATION_OFFSET_CHECKPOINT, id="high watermark"),
    pytest.param("write", "leader-epoch-checkpoint", id="leader epoch"),
]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(("operation", "name"), FAULTS)
async def test_failing_disk_takes_only_its_log_dir_offline_and_a_restart_has_acknowledged_records(
    setup: ServiceSetup, operation: str, name: str, number: int
) -> None:
    acknowledged: list[int] = []
    async with setup.service() as service:
        writer, other = await open_both(service)
        acknowledged.append(await append(writer, b"before", durable=True))
        setup.disk.faults.append(Fault(operation, (f"{ONE}/", name), number, times=None))

        async def append_on() -> None:
            for step in range(200):
                done = await writer.append_as_leader(records(b"x"), leader_epoch=2 + step, durable=True)
                acknowledged.append(done.first_offset)
                await setup.pass_time(1)

        with pytest.raises(LogDirOfflineError):
            await append_on()
        with pytest.raises(LogDirOfflineError):
            await append(writer, b"after")
        assert await append(other, b"not concerned", durable=True) == 0
        setup.clock.advance(60)
    assert setup.is_clean(TWO)
    assert not setup.is_clean(ONE)
    setup.disk.faults.clear()
    setup.disk.crash(random.Random(number))
    async with setup.service() as service:
        writer, other = await open_both(service)
        found = await values(writer)
        assert found[: len(acknowledged)] == acknowledged
        assert len(found) <= len(acknowledged) + 1
        assert await append(writer, b"goes on", durable=True) == found[-1] + 1
        assert await values(other) == [0]


async def test_stop_with_a_hanging_disk_is_an_error_and_leaves_no_clean_marker(setup: ServiceSetup) -> None:
    setup.limits = WriterLimits(deadline_s=2.0)
    gate = threading.Event()
    hanging: list[asyncio.Task[bool]] = []

    async def stop_while_it_hangs() -> None:
        async with setup.service() as service:
            writer, _ = await open_both(service)
            await append(writer, b"x", durable=True)
            hanging.append(asyncio.ensure_future(writer.run(lambda _: gate.wait(timeout=10))))
            await asyncio.sleep(0)

    with pytest.raises(LogTimeoutError):
        await stop_while_it_hangs()
    with pytest.raises(LogTimeoutError):
        await hanging[0]
    gate.set()
    assert not setup.is_clean(ONE)
    setup.limits = WriterLimits()
    async with setup.service() as service:
        assert await values(service.writer(FIRST)) == [0]


async def test_failed_start_releases_its_locks_and_a_later_start_succeeds(setup: ServiceSetup) -> None:
    setup.disk.faults.append(Fault("list_names", times=2))
    with pytest.raises(LogError):
        async with setup.service():
            raise AssertionError("it has no log dir")
    async with setup.service() as service:
        await open_both(service)


@pytest.mark.parametrize("suspension", range(1, 25))
async def test_cancellation_at_any_await_leaves_logs_with_all_acknowledged_records(
    setup: ServiceSetup, suspension: int
) -> None:
    acknowledged = []

    async def story() -> None:
        async with setup.service() as service:
            writer, _ = await open_both(service)
            for number in range(12):
                offset = await append(writer, b"%d" % number, durable=number % 3 == 0)
                acknowledged.append(offset)
            await writer.run(lambda log: log.roll(now_ms=setup.clock.now_ms()))
            await append(writer, b"last", durable=True)

    await cancel_at(suspension, story)
    await eventually(lambda: not setup.disk.open_files, what="the stop that goes on behind the cancellation")
    async with setup.service() as service:
        writer, _ = await open_both(service)
        found = await values(writer)
        assert found[: len(acknowledged)] == acknowledged
        assert await append(writer, b"goes on") == len(found)


async def test_partition_created_again_during_its_deletion_has_a_new_log(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        writer, _ = await open_both(service)
        await append(writer, b"x")
        await asyncio.gather(service.get_or_create(FIRST), service.delete(FIRST))
        again = await service.get_or_create(FIRST)
        assert again.log is setup.manager.get(FIRST)
        assert await append(again, b"y") == 0


@pytest.mark.parametrize("offset", [0, 7, 8, 19])
async def test_records_that_are_copied_aside_are_a_log_that_the_next_start_leaves_alone(
    setup: ServiceSetup, offset: int
) -> None:
    async with setup.service() as service:
        writer = await service.get_or_create(FIRST, topic_id=UUID(int=1))
        for _ in range(10):
            await writer.append_as_leader(batch_of(2), leader_epoch=3)
        before = await read_from(writer, 0)
        directory = await service.copy_aside(FIRST, offset)
        assert directory is not None
        assert directory.name.endswith("-stray")
        assert await read_from(writer, 0) == before  # the log itself stays
    async with setup.service() as service:
        (aside,) = setup.manager.stray_logs()
        start = offset - offset % 2  # whole batches
        assert aside.directory == directory
        assert (aside.log_start_offset, aside.log_end_offset, aside.topic_id) == (start, 20, UUID(int=1))
        assert aside.leader_epochs.epoch_for(start) == 3
        kept = b"".join(
            read_file(setup.disk, directory / name)
            for name in sorted(setup.disk.list_names(directory))
            if name.endswith(".log")
        )
        assert kept == await read_from(service.writer(FIRST), start)


async def test_nothing_is_made_where_there_are_no_records_to_copy_aside(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        writer = await service.get_or_create(FIRST)
        await writer.append_as_leader(batch_of(4), leader_epoch=3)
        assert await service.copy_aside(FIRST, 4) is None
        await service.truncate_to(FIRST, 2)  # inside of the batch: the log ends behind a gap
        assert await service.copy_aside(FIRST, 1) is None
        assert not setup.manager.stray_logs()
        with pytest.raises(UnknownPartitionError):
            await service.copy_aside(SECOND, 0)


@pytest.mark.parametrize("operation", ["make_directory", "open", "write", "sync"])
async def test_copies_aside_that_a_full_disk_ends_leave_the_log_as_it_was(setup: ServiceSetup, operation: str) -> None:
    async with setup.service() as service:
        writer = await service.get_or_create(FIRST)
        for _ in range(3):
            await append(writer, b"record")
        before = await read_from(writer, 0)
        setup.disk.faults.append(Fault(operation, ("-stray",), errno.ENOSPC, times=None))
        with pytest.raises(LogDirOfflineError):
            await service.copy_aside(FIRST, 1)
        assert not service.is_online(FIRST)
        setup.disk.faults.clear()
    async with setup.service() as service:
        assert await read_from(service.writer(FIRST), 0) == before


async def test_log_that_is_set_aside_keeps_its_files_and_a_new_log_takes_its_place(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        writer, _ = await open_both(service)
        await append(writer, b"x")
        directory = await service.set_aside(FIRST)
        assert directory.name.endswith("-stray")
        with pytest.raises(LogClosedError):
            await append(writer, b"y")
        assert not service.is_online(FIRST)
        again = await service.get_or_create(FIRST, preferred_dir=ONE)
        assert await append(again, b"new") == 0
        await setup.pass_time(121)
    async with setup.service() as service:
        assert service.log(FIRST).log_end_offset == 1
        (stray,) = setup.manager.stray_logs()
        assert (stray.directory, stray.log_end_offset) == (directory, 1)


async def test_log_is_offline_after_its_disk_has_failed(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        writer, _ = await open_both(service)
        assert service.is_online(FIRST)
        setup.disk.faults.append(Fault("write", (f"{ONE}/", ".log"), errno.EIO, times=None))
        with pytest.raises(LogDirOfflineError):
            await append(writer, b"x")
        assert not service.is_online(FIRST)
        assert service.is_online(SECOND)
        assert not service.is_online(TopicPartition("topic", 7))


async def test_cleaner_offset_is_that_of_the_checkpoint(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        await open_both(service)
        assert await service.cleaner_offset(FIRST) is None
        setup.manager.set_cleaner_offset(FIRST, 7)
        assert await service.cleaner_offset(FIRST) == 7


async def test_batch_of_a_leader_above_segment_bytes_gets_a_segment_of_its_own(setup: ServiceSetup) -> None:
    async with setup.service() as service:
        writer, _ = await open_both(service)
        for offset, size in ((0, 10), (1, 5000), (2, 10)):
            record = NewRecord(b"key", bytes(size), 1)
            await writer.append_as_follower(encode_batch([record], base_offset=offset, leader_epoch=1))
        assert [segment.base_offset for segment in service.log(FIRST).segments] == [0, 1, 2]
        two = encode_batch([NewRecord(b"key", bytes(600), 1)], base_offset=3, leader_epoch=1)
        with pytest.raises(LogError):
            await writer.append_as_follower(two + encode_batch([NewRecord(None, bytes(600), 1)], base_offset=4))
    async with setup.service() as service:
        assert await values(service.writer(FIRST)) == [0, 1, 2]
