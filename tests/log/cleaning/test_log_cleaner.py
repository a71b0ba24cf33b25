"""Compacted logs in a LogService: cleaned, kept and expired records, and events that end a round early."""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import Fault, SimulatedDisk
from tests.log.cleaning.cleaners import own_log_rules
from tierd.errors import LogDirOfflineError
from tierd.log.cleaning.cleaned_segment import CleanedSegment
from tierd.log.cleaning.round_rewriter import RoundFacts, RoundRewriter, SourceSegment, StartRewriting
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.files.checkpoints import CLEANER_OFFSET_CHECKPOINT, parse_offset_checkpoint, write_offset_checkpoint
from tierd.log.files.disk import read_file
from tierd.log.log_service import LogService, PartitionWriter, ServiceSettings
from tierd.log.log_writer import WriterLimits
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_builder import encode_batch, encode_end_marker
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import NewRecord, Producer
from tierd.log.records.record import ControlRecordType
from tierd.log.records.record_batch import RecordBatch, iter_batches
from tierd.model import IsolationLevel, TopicPartition

LOG_DIR = Path("/logs")
TOPIC = TopicPartition("topic", 0)
COMPACT, BOTH = frozenset({"compact"}), frozenset({"compact", "delete"})
DAY_MS = 86_400_000


class NoLock:
    def release(self) -> None:
        pass


class ServiceSetup:
    """One log dir on a simulated disk with its service and a clock that the test moves."""

    def __init__(
        self, config: LogConfig, rules: StartRewriting | None = None, limits: WriterLimits | None = None
    ) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk(now_ms=self.clock.now_ms)
        self.disk.make_directory(LOG_DIR)
        self.disk.sync_directory(Path("/"))
        self.config = config
        self.rules = rules or own_log_rules()
        self.settings = ServiceSettings(limits=limits or WriterLimits())

    def service(self) -> LogService:
        self.manager = LogManager(
            [LOG_DIR],
            LogManagerSettings(config_for=lambda _: self.config, clock=self.clock),
            disk=self.disk,
            acquire_lock=lambda _: NoLock(),
        )
        return LogService(self.manager, clock=self.clock, rewriting=self.rules, settings=self.settings)

    async def pass_time(self, seconds: int) -> None:
        """Let ``seconds`` pass, so that all due work is done."""
        for _ in range(seconds):
            self.clock.advance(1)
            await eventually(lambda: self.clock.sleeping > 2 * len(self.manager.live_dirs), what="the duties")

    def cleaned_to(self, partition: TopicPartition = TOPIC) -> int | None:
        path = LOG_DIR / CLEANER_OFFSET_CHECKPOINT
        if self.disk.status(path) is None:
            return None
        return parse_offset_checkpoint(read_file(self.disk, path), name=path.name).get(partition)

    def names(self, suffix: str) -> list[str]:
        return [name for name in self.disk.list_names(LOG_DIR / "topic-0") if name.endswith(suffix)]


def compacted(**settings: object) -> LogConfig:
    given = {"segment_bytes": 400, "index_interval_bytes": 0, "cleanup_policy": COMPACT, **settings}
    return LogConfig(**given)  # type: ignore[arg-type]


async def append(
    writer: PartitionWriter, setup: ServiceSetup, key: bytes | None, value: bytes | None, **batch: object
) -> int:
    data = encode_batch([NewRecord(key, value, setup.clock.now_ms())], base_offset=0, **batch)  # type: ignore[arg-type]
    appended = await writer.append_as_leader(data, leader_epoch=1)
    writer.log.update_high_watermark(appended.last_offset + 1)
    return appended.first_offset


async def end_transaction(writer: PartitionWriter, setup: ServiceSetup, producer: Producer, *, commits: bool) -> int:
    kind = ControlRecordType.COMMIT if commits else ControlRecordType.ABORT
    data = encode_end_marker(
        kind=kind,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        coordinator_epoch=0,
        timestamp_ms=setup.clock.now_ms(),
    )
    appended = await writer.append_as_leader(data, leader_epoch=1, origin=AppendOrigin.COORDINATOR)
    writer.log.update_high_watermark(appended.last_offset + 1)
    return appended.first_offset


async def fill(writer: PartitionWriter, setup: ServiceSetup, count: int, *, keys: int = 3) -> dict[bytes, bytes]:
    """Append records over few keys; return the latest value of each key."""
    latest: dict[bytes, bytes] = {}
    for number in range(count):
        latest[b"key-%d" % (number % keys)] = b"value-%d" % number
        await append(writer, setup, b"key-%d" % (number % keys), b"value-%d" % number)
    return latest


async def batches(writer: PartitionWriter) -> list[RecordBatch]:
    def read(log: UnifiedLog) -> list[RecordBatch]:
        found: list[RecordBatch] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, max_bytes=1 << 20, isolation=None).records
            if not data:
                break
            found += iter_batches(bytes(data), name="log")
            offset = found[-1].last_offset + 1
        return found

    return await writer.read(read)


async def contents(writer: PartitionWriter) -> list[tuple[int, bytes | None, bytes | None]]:
    found = await batches(writer)
    return [(r.offset, r.key, r.value) for batch in found if not batch.is_control for r in batch.records()]


async def test_compacted_log_keeps_the_latest_record_of_every_key() -> None:
    setup = ServiceSetup(compacted())
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        size_bytes, active = writer.log.size_bytes, writer.log.segments[-1].base_offset
        await setup.pass_time(16)
        rolled = [line for line in await contents(writer) if line[0] < active]
        assert [line[0] for line in rolled] == [active - 3, active - 2, active - 1]
        assert writer.log.size_bytes < size_bytes // 4
        assert setup.cleaned_to() == active
        assert (service.cleaner_statistics().rounds, service.uncleanable()) == (1, {})
        await setup.pass_time(62)
        assert not setup.names(".deleted")
        assert not setup.names(".cleaned")


async def test_readers_find_the_same_records_while_and_after_segments_are_replaced() -> None:
    setup = ServiceSetup(compacted())
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        latest = await fill(writer, setup, 200, keys=17)
        await setup.pass_time(16)
        assert {key: value for _, key, value in await contents(writer)} == latest
        for offset in range(200):
            found = writer.log.read(offset, max_bytes=1 << 20, isolation=None).records
            expected = [line[0] for line in await contents(writer) if line[0] >= offset]
            assert next(iter(iter_batches(bytes(found), name="log"))).last_offset == expected[0]
    async with setup.service() as service:
        assert {key: value for _, key, value in await contents(service.writer(TOPIC))} == latest


async def test_active_segment_and_unstable_records_are_not_cleaned() -> None:
    setup = ServiceSetup(compacted())
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 20)
        open_at = await append(writer, setup, b"key-0", b"open", producer=Producer(7, 0, 0), is_transactional=True)
        await fill(writer, setup, 40)
        await setup.pass_time(16)
        left = [line[0] for line in await contents(writer)]
        held = max(segment.base_offset for segment in writer.log.segments if segment.base_offset <= open_at)
        assert setup.cleaned_to() == held
        assert left[-(61 - held) :] == list(range(held, 61))
        assert len(left) < 61


async def test_log_below_the_dirty_ratio_waits_and_an_overdue_one_does_not() -> None:
    setup = ServiceSetup(compacted(min_cleanable_dirty_ratio=1.0))
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        await setup.pass_time(31)
        assert setup.cleaned_to() is None
        await service.reconfigure(lambda _: compacted(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000))
        await setup.pass_time(16)
        assert setup.cleaned_to() is None
        await setup.pass_time(30)
        assert setup.cleaned_to() == writer.log.segments[-1].base_offset


async def test_young_segments_wait_for_the_min_compaction_lag() -> None:
    setup = ServiceSetup(compacted(min_compaction_lag_ms=60_000))
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        await setup.pass_time(31)
        assert len(await contents(writer)) == 60
        await setup.pass_time(45)
        assert len(await contents(writer)) < 20


async def test_tombstones_stay_until_delete_retention_and_hide_what_they_deleted() -> None:
    setup = ServiceSetup(compacted(min_cleanable_dirty_ratio=0.0, delete_retention_ms=60_000))
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await append(writer, setup, b"gone", b"old")
        deleted_at = await append(writer, setup, b"gone", None)
        await fill(writer, setup, 20)
        await setup.pass_time(16)
        assert [line for line in await contents(writer) if line[1] == b"gone"] == [(deleted_at, b"gone", None)]
        horizon_ms = next(b.delete_horizon_ms for b in await batches(writer) if b.base_offset == deleted_at)
        assert horizon_ms is not None
        assert abs(horizon_ms - setup.clock.now_ms() - 60_000) < 20_000
        await setup.pass_time(70)
        await fill(writer, setup, 20)
        await setup.pass_time(16)
        assert [line for line in await contents(writer) if line[1] == b"gone"] == []


async def test_two_rounds_drop_aborted_records_and_keep_committed_ones() -> None:
    setup = ServiceSetup(compacted(min_cleanable_dirty_ratio=0.0))
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await append(writer, setup, b"a", b"committed", producer=Producer(1, 0, 0), is_transactional=True)
        await end_transaction(writer, setup, Producer(1, 0), commits=True)
        await append(writer, setup, b"a", b"aborted", producer=Producer(2, 0, 0), is_transactional=True)
        await append(writer, setup, b"b", b"aborted", producer=Producer(2, 0, 1), is_transactional=True)
        await end_transaction(writer, setup, Producer(2, 0), commits=False)
        for _ in range(2):
            await fill(writer, setup, 20)
            await setup.pass_time(16)
            assert [line[2] for line in await contents(writer) if line[1] == b"a"] == [b"committed"]
            assert [line for line in await contents(writer) if line[1] == b"b"] == []
        committed = writer.log.read(0, max_bytes=1 << 20, isolation=IsolationLevel.READ_COMMITTED)
        assert {entry.producer_id for entry in committed.aborted or ()} <= {2}


async def test_last_sequence_of_a_producer_outlives_its_records_and_a_restart() -> None:
    setup = ServiceSetup(compacted())
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        own = await append(writer, setup, b"key-0", b"mine", producer=Producer(9, 0, 0))
        await fill(writer, setup, 60)
        await setup.pass_time(16)
        assert [b.record_count for b in await batches(writer) if b.base_offset == own] == [0]
    setup.disk.unlink(LOG_DIR / ".kafka_cleanshutdown")
    async with setup.service() as service:
        writer = service.writer(TOPIC)
        before = writer.log.log_end_offset
        assert await append(writer, setup, b"key-0", b"mine", producer=Producer(9, 0, 0)) == own
        assert writer.log.log_end_offset == before


async def test_keys_that_do_not_fit_the_map_are_cleaned_in_later_rounds() -> None:
    setup = ServiceSetup(compacted(min_cleanable_dirty_ratio=0.0), own_log_rules(max_keys=4))
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        latest = await fill(writer, setup, 120, keys=11)
        await setup.pass_time(16)
        assert service.cleaner_statistics().rounds > 5
        assert {key: value for _, key, value in await contents(writer)} == latest
        active = writer.log.segments[-1].base_offset
        assert setup.cleaned_to() == active
        assert len([line for line in await contents(writer) if line[0] < active]) < 60


@pytest.mark.spec("log-format CLM-05")
@pytest.mark.parametrize("policy", [COMPACT, BOTH], ids=lambda policy: ",".join(sorted(policy)))
async def test_segments_of_a_compacted_log_below_the_log_start_are_deleted(policy: frozenset[str]) -> None:
    setup = ServiceSetup(compacted(cleanup_policy=policy, min_cleanable_dirty_ratio=1.0))
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        await writer.run(lambda log: log.increment_log_start_offset(30, reason="test"))
        await setup.pass_time(31)
        assert writer.log.segments[0].base_offset <= 30 < writer.log.segments[1].base_offset


@pytest.mark.parametrize("rule", [{"retention_ms": 20_000}, {"retention_bytes": 800}], ids=["time", "size"])
async def test_log_with_both_policies_expires(rule: dict[str, int]) -> None:
    setup = ServiceSetup(compacted(cleanup_policy=BOTH, min_cleanable_dirty_ratio=1.0, **rule))
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        await setup.pass_time(32)
        assert writer.log.log_start_offset > 0
        assert writer.log.size_bytes < 1300


async def test_log_that_is_only_compacted_does_not_expire() -> None:
    setup = ServiceSetup(compacted(min_cleanable_dirty_ratio=1.0, retention_ms=1, retention_bytes=1))
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        await setup.pass_time(40)
        assert len(await contents(writer)) == 60


async def test_damaged_log_is_counted_as_failed_while_others_are_cleaned() -> None:
    setup = ServiceSetup(compacted())
    other = TopicPartition("other", 0)
    async with setup.service() as service:
        writer, healthy = await service.get_or_create(TOPIC), await service.get_or_create(other)
        await fill(writer, setup, 60)
        await fill(healthy, setup, 30)
        await setup.pass_time(2)
        file = setup.disk.open(writer.log.segments[0].path)
        file.write(80, [b"\xff"])
        file.close()
        await setup.pass_time(31)
        assert list(service.uncleanable()) == [TOPIC]
        assert writer.log.segments[0].path.name in service.uncleanable()[TOPIC]
        assert setup.cleaned_to(other) is not None
        assert setup.cleaned_to() is None
        failed = service.cleaner_statistics().failed
        await setup.pass_time(31)
        assert service.cleaner_statistics().failed == failed == 1  # the damaged log is not tried again and again
        assert len(writer.log.segments) > 5


async def test_disk_that_fails_under_the_cleaner_takes_the_log_dir_offline_and_loses_nothing() -> None:
    setup = ServiceSetup(compacted())
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        latest = await fill(writer, setup, 60)
        await setup.pass_time(2)
        setup.disk.faults.append(Fault("write", (".cleaned",), errno.EIO, times=None))
        for _ in range(16):
            setup.clock.advance(1)
            await asyncio.sleep(0)
        await eventually(lambda: LOG_DIR in setup.manager.offline_dirs, what="the log dir going offline")
        with pytest.raises(LogDirOfflineError):
            await append(writer, setup, b"more", b"x")
        assert service.uncleanable() == {}
    setup.disk.faults.clear()
    async with setup.service() as service:
        writer = service.writer(TOPIC)
        assert {key: value for _, key, value in await contents(writer)} == latest


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("operation", ["write", "create", "sync"])
async def test_full_disk_ends_a_round_while_appends_and_rounds_of_other_logs_go_on(operation: str, number: int) -> None:
    setup = ServiceSetup(compacted())
    other = TopicPartition("other", 0)
    async with setup.service() as service:
        writer, small = await service.get_or_create(TOPIC), await service.get_or_create(other)
        latest = await fill(writer, setup, 60)
        await fill(small, setup, 30)
        setup.disk.faults.append(Fault(operation, ("topic-0", ".cleaned"), number, times=None))
        await setup.pass_time(2)
        await setup.pass_time(31)
        assert setup.manager.offline_dirs == ()
        assert service.uncleanable() == {}
        assert service.cleaner_statistics().aborted == 1, "the log is not tried again every 15 s"
        assert setup.cleaned_to() is None
        assert (setup.cleaned_to(other) or 0) > 20
        if operation != "create":
            assert setup.names(".cleaned") == []
        latest |= await fill(writer, setup, 6)
        setup.disk.faults.clear()
        await setup.pass_time(300)
        assert (setup.cleaned_to() or 0) > 50
        assert {key: value for _, key, value in await contents(writer)} == latest


class Interrupting:
    """Rules that change the log in the middle of a round."""

    def __init__(self) -> None:
        self.begun = 0
        self.interrupt: Callable[[], object] = lambda: None
        self._rules = own_log_rules()

    def __call__(self, facts: RoundFacts) -> RoundRewriter:
        return _InterruptedRound(self, self._rules(facts))


class _InterruptedRound:
    def __init__(self, rules: Interrupting, inner: RoundRewriter) -> None:
        self._rules = rules
        self._inner = inner

    def map_keys(self, dirty: Iterable[SourceSegment]) -> int | None:
        end = self._inner.map_keys(dirty)
        self._rules.begun += 1
        self._rules.interrupt()
        return end

    def rewrite(self, group: Iterable[SourceSegment], output: CleanedSegment) -> None:
        self._inner.rewrite(group, output)


async def test_truncation_ends_a_round_and_records_appended_afterwards_are_dirty() -> None:
    rules = Interrupting()
    setup = ServiceSetup(compacted(), rules)
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        rules.interrupt = lambda: setup.manager.truncate_to({TOPIC: 20}) if rules.begun == 1 else None
        await setup.pass_time(2)
        await setup.pass_time(14)
        assert service.cleaner_statistics().aborted == 1
        assert [line[0] for line in await contents(writer)] == list(range(20))
        assert setup.cleaned_to() is None
        latest = await fill(writer, setup, 60)
        await setup.pass_time(16)
        assert {key: value for _, key, value in await contents(writer)} == latest
        assert service.cleaner_statistics().rounds == 1


@pytest.mark.spec("log-format CLM-09")
async def test_truncation_below_the_cleaner_checkpoint_lowers_it() -> None:
    setup = ServiceSetup(compacted())
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        await setup.pass_time(16)
        assert (setup.cleaned_to() or 0) > 50
        await service.truncate_to(TOPIC, 20)
        assert setup.cleaned_to() == 20
        await service.truncate_fully_and_start_at(TOPIC, 5)
        assert setup.cleaned_to() == 5


@pytest.mark.spec("log-format CLM-09")
async def test_deletion_ends_a_round_and_forgets_its_checkpoint() -> None:
    rules = Interrupting()
    setup = ServiceSetup(compacted(), rules)
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        await setup.pass_time(16)
        assert setup.cleaned_to() is not None
        await service.delete(TOPIC)
        assert setup.cleaned_to() is None
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        await setup.pass_time(16)
        assert service.cleaner_statistics().rounds == 2


async def test_retention_in_the_middle_of_a_round_ends_it_without_an_error() -> None:
    rules = Interrupting()
    setup = ServiceSetup(compacted(cleanup_policy=BOTH, retention_bytes=1500), rules)
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
        rules.interrupt = lambda: writer.log.delete_old_segments(setup.clock.now_ms()) if rules.begun == 1 else None
        await setup.pass_time(32)
        assert service.uncleanable() == {}
        assert (service.cleaner_statistics().aborted, service.cleaner_statistics().rounds) == (1, 1)


@pytest.mark.spec("log-format CLM-03")
async def test_checkpoint_outside_of_the_log_is_written_anew_and_all_is_dirty() -> None:
    setup = ServiceSetup(compacted(min_cleanable_dirty_ratio=1.0))
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await fill(writer, setup, 60)
    path = LOG_DIR / CLEANER_OFFSET_CHECKPOINT
    write_offset_checkpoint(setup.disk, path, {TOPIC: 1000, TopicPartition("gone", 1): 5})
    async with setup.service() as service:
        assert setup.cleaned_to() is None
        assert setup.cleaned_to(TopicPartition("gone", 1)) is None
        setup.config = compacted()
        await service.reconfigure(lambda _: setup.config)
        await setup.pass_time(16)
        assert setup.cleaned_to() == service.log(TOPIC).segments[-1].base_offset


async def test_log_dir_whose_cleaner_checkpoint_is_unreadable_cleans_everything_anew() -> None:
    setup = ServiceSetup(compacted())
    async with setup.service() as service:
        await fill(await service.get_or_create(TOPIC), setup, 60)
        await setup.pass_time(16)
    file = setup.disk.open(LOG_DIR / CLEANER_OFFSET_CHECKPOINT)
    file.write(0, [b"nonsense"])
    file.close()
    async with setup.service() as service:
        await fill(service.writer(TOPIC), setup, 20)
        await setup.pass_time(16)
        assert setup.cleaned_to() == service.log(TOPIC).segments[-1].base_offset


async def test_log_whose_round_hangs_keeps_its_settings_and_the_others_get_theirs() -> None:
    rules, other, go_on = Interrupting(), TopicPartition("topic", 1), threading.Event()
    setup = ServiceSetup(compacted(), rules, limits=WriterLimits(deadline_s=2.0))
    async with setup.service() as service:
        await fill(await service.get_or_create(TOPIC), setup, 60)
        await service.get_or_create(other)
        rules.interrupt = lambda: go_on.wait(60)
        try:
            await setup.pass_time(14)
            setup.clock.advance(1)
            await eventually(lambda: rules.begun == 1, what="a round")
            with capture_logs() as logs:
                await service.reconfigure(lambda _: compacted(cleanup_policy=frozenset({"delete"})))
        finally:
            go_on.set()
        assert service.log(TOPIC).config.is_compacted
        assert not service.log(other).config.is_compacted
        assert [(each["event"], each["partition"]) for each in logs] == [("settings_not_applied", "topic-0")]


async def test_stop_in_the_middle_of_a_round_leaves_the_log_whole() -> None:
    rules = Interrupting()
    setup = ServiceSetup(compacted(), rules)
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        latest = await fill(writer, setup, 60)
        await setup.pass_time(14)
        setup.clock.advance(1)
        await eventually(lambda: rules.begun == 1 or service.cleaner_statistics().rounds == 1, what="a round")
    async with setup.service() as service:
        assert {key: value for _, key, value in await contents(service.writer(TOPIC))} == latest
        assert not setup.names(".cleaned")
        assert not setup.names(".swap")
