"""CopyTask over real segment files, a real metadata manager and a storage that a test can make fail."""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter, SegmentShape
from tests.golden.unpack import golden_cases
from tests.log.batches import legacy
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, HoldModeName, Session, Tier, delete_segment, partition_of
from tierd.config import CopySettings
from tierd.control import Leadership, LeadershipSource, StaticLeadership
from tierd.errors import (
    BackendUnavailableError,
    CorruptRecordError,
    FencedError,
    OutcomeUnknownError,
    RemoteIntegrityError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    SegmentChangedError,
    TierError,
)
from tierd.log import ProducerStateEntry, parse_producer_snapshot, read_producer_snapshot
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.metadata import Batch, MemoryKeyValueStore
from tierd.model import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicPartition,
)
from tierd.remote import SegmentStorage
from tierd.tiering import CopyOutcome

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
SHAPE = SegmentShape()  # 8 records a segment
SINGLE_RECORDS = SegmentShape(batches=8, records_per_batch=1)


class OnlyReplica(StaticLeadership):
    """Leadership of a cluster with no other replicas: this broker leads all partitions."""

    async def changes(self) -> AsyncIterator[Leadership]:
        async for event in super().changes():
            yield replace(event, is_sole_replica=True)


class ScriptedStorage(SegmentStorage):
    """SegmentStorage with scripted failures."""

    def __init__(self, tier: Tier) -> None:
        super().__init__(tier.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)
        self.copied: list[RemoteLogSegmentMetadata] = []
        self.deleted: list[RemoteLogSegmentMetadata] = []
        self.on_copy: Callable[[], object] = lambda: None
        self.on_delete: Callable[[], object] = lambda: None
        self.custom: bytes | None = None
        self.hangs = False

    async def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes:
        self.copied.append(metadata)
        if self.hangs:
            await asyncio.Event().wait()
        stored = await super().copy_log_segment_data(metadata, data)
        self.on_copy()
        return stored if self.custom is None else self.custom

    async def any_object_present(self, metadata: RemoteLogSegmentMetadata) -> bool:
        return self.custom is not None or await super().any_object_present(metadata)

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.deleted.append(metadata)
        self.on_delete()
        if self.custom is None:
            await super().delete_log_segment_data(metadata)


class Setup:
    """Partition with some rolled segments, and a session over scripted storage."""

    def __init__(self, tmp_path: Path, *, rolled: int = 2, shape: SegmentShape = SHAPE) -> None:
        self.tmp_path = tmp_path
        self.log_dir = LogDirWriter(tmp_path / "kafka")
        self.writer: PartitionWriter = self.log_dir.add_partition("orders")
        self.writer.fill(rolled_segments=rolled, shape=shape)
        self.log_dir.write_checkpoints()
        self.path = self.writer.path
        self.partition = partition_of(self.path)
        self.rows = MemoryKeyValueStore()
        self.tier = Tier(tmp_path, [self.log_dir.path], rows=self.rows)
        self.storage = ScriptedStorage(self.tier)
        self.session = self.new_session()
        self.end_offset = self.writer.end_offset

    def new_session(
        self, settings: CopySettings | None = None, *, leadership: LeadershipSource | None = None
    ) -> Session:
        return self.tier.session(storage=lambda _: self.storage, settings=settings, leadership=leadership)

    async def run(self) -> CopyOutcome:
        return (await self.session.copy_once())["orders-0"]

    async def fails_with(self, kind: type[TierError]) -> TierError:
        error = (await self.run()).error
        assert isinstance(error, kind)
        return error

    @property
    def finished(self) -> list[tuple[int, int]]:
        return self.session.finished(self.partition)

    def set_high_watermark(self, offset: int | None) -> None:
        entries = "" if offset is None else f"orders 0 {offset}\n"
        content = f"0\n{0 if offset is None else 1}\n{entries}"
        (self.log_dir.path / "replication-offset-checkpoint").write_text(content)

    def set_log_start(self, offset: int) -> None:
        (self.log_dir.path / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {offset}\n")


def _raise(error: BaseException) -> Callable[[], object]:
    def call() -> object:
        raise error

    return call


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


class TestOneSegment:
    @pytest.mark.spec("remote-tiering 126")
    @pytest.mark.spec("remote-tiering 127")
    @pytest.mark.spec("remote-tiering 128")
    async def test_segment_over_two_epochs_is_copied_with_its_part_of_the_lineage(self, tmp_path: Path) -> None:
        setup = Setup(tmp_path, rolled=0)
        setup.writer.append([b"x"] * 96)  # 100 records of epoch 0, with the four of the fixture
        setup.writer.begin_epoch(1)
        setup.writer.append([b"y"] * 50)
        setup.writer.roll()
        setup.writer.append([b"z"] * 50)
        setup.writer.begin_epoch(2)
        setup.writer.append([b"z"] * 50)
        setup.log_dir.write_checkpoints()

        outcome = await setup.run()

        assert outcome.error is None
        assert outcome.status.copied_through == 149
        (row,) = setup.session.rows(setup.partition)
        assert (row.state, row.start_offset, row.end_offset) == (FINISHED, 0, 149)
        assert [tuple(e) for e in row.segment_leader_epochs] == [(0, 0), (1, 100)]
        assert row.broker_id == BROKER_ID
        epochs = await setup.storage.fetch_index(row, IndexType.LEADER_EPOCH)
        assert epochs == b"0\n2\n0 0\n1 100\n"
        snapshot = await setup.storage.fetch_index(row, IndexType.PRODUCER_SNAPSHOT)
        assert snapshot == (setup.path / f"{150:020d}.snapshot").read_bytes()
        assert (setup.session.recorder.requests, setup.session.recorder.failures) == (1, 0)
        assert setup.session.recorder.copied == [row.size_bytes]

    async def test_segments_are_copied_one_at_a_time_in_ascending_order(self, setup: Setup) -> None:
        assert (await setup.run()).error is None
        assert [m.start_offset for m in setup.storage.copied] == [0, 8]  # remote-tiering 10.8, I3
        assert setup.finished == [(0, 7), (8, 15)]

    async def test_second_pass_copies_nothing(self, setup: Setup) -> None:
        await setup.run()
        assert (await setup.run()).status.state == "idle"
        assert len(setup.storage.copied) == 2

    async def test_later_session_continues_behind_the_last_copied_segment(self, setup: Setup) -> None:
        await setup.run()
        setup.writer.roll()
        setup.log_dir.write_checkpoints()
        setup.session = setup.new_session()
        await setup.run()
        assert setup.finished == [(0, 7), (8, 15), (16, 19)]
        assert len(setup.storage.copied) == 3

    async def test_a_rolled_segment_without_a_byte_is_copied(self, tmp_path: Path) -> None:
        setup = Setup(tmp_path)
        (setup.path / f"{0:020d}.log").write_bytes(b"")  # as compaction leaves it
        assert (await setup.run()).error is None
        assert setup.finished == [(0, 7), (8, 15)]
        assert setup.session.rows(setup.partition)[0].size_bytes == 0

    @pytest.mark.parametrize("suffix", ["index", "timeindex"])
    async def test_a_missing_index_is_rebuilt(self, setup: Setup, suffix: str) -> None:
        (setup.path / f"{0:020d}.{suffix}").unlink()
        assert (await setup.run()).error is None
        assert setup.finished == [(0, 7), (8, 15)]


class TestUncopiedSegments:
    async def test_a_partition_without_a_high_watermark_waits(self, setup: Setup) -> None:
        setup.set_high_watermark(None)
        status = (await setup.run()).status
        assert (status.state, status.copied_through) == ("waiting", -1)
        assert "no high watermark" in status.reason
        assert setup.storage.copied == []

    async def test_a_segment_above_the_high_watermark_waits(self, setup: Setup) -> None:
        setup.set_high_watermark(15)
        status = (await setup.run()).status
        assert setup.finished == [(0, 7)]
        assert "high watermark 15" in status.reason
        assert (status.lag.segments, status.state) == (1, "waiting")

    @pytest.mark.parametrize("new_process", [False, True])
    async def test_snapshot_that_is_written_after_the_hold_of_its_segment_is_copied(
        self, setup: Setup, new_process: bool
    ) -> None:
        """A broker creates the next segment first; until it has written the snapshot, the hold has none."""
        snapshot = setup.path / f"{8:020d}.snapshot"
        entry = ProducerStateEntry(7, 0, 3, 7, 3, 0, -1, -1)  # not what a replay would give
        snapshot.unlink()
        setup.set_high_watermark(0)
        await setup.run()
        snapshot.write_bytes(encode_producer_snapshot((entry,)))
        setup.set_high_watermark(16)
        if new_process:
            setup.session = setup.new_session()
        assert (await setup.run()).error is None
        assert setup.finished == [(0, 7), (8, 15)]
        stored = await setup.storage.fetch_index(setup.session.rows(setup.partition)[0], IndexType.PRODUCER_SNAPSHOT)
        assert parse_producer_snapshot(stored, "stored") == (entry,)

    async def test_segment_with_a_damaged_batch_is_not_uploaded(self, setup: Setup) -> None:
        log = setup.path / f"{8:020d}.log"
        content = bytearray(log.read_bytes())
        content[100] ^= 0xFF
        log.write_bytes(content)
        error = await setup.fails_with(CorruptRecordError)
        assert str(log) in str(error), "the broker's file is named, not the link"
        assert setup.finished == [(0, 7)]
        assert len(setup.session.rows(setup.partition)) == 1
        assert [m.start_offset for m in setup.storage.copied] == [0]

    async def test_missing_epoch_checkpoint_quarantines_the_partition_until_the_file_returns(
        self, setup: Setup
    ) -> None:
        checkpoint = setup.path / "leader-epoch-checkpoint"
        content = checkpoint.read_bytes()
        checkpoint.unlink()
        assert await setup.session.copy_once() == {}
        (status,) = setup.session.manager.status()
        assert status.state == "quarantined"
        assert "leader-epoch-checkpoint" in status.reason
        checkpoint.write_bytes(content)
        assert (await setup.run()).error is None
        assert setup.finished == [(0, 7), (8, 15)]

    async def test_batch_with_an_epoch_at_odds_with_the_lineage_is_refused(self, setup: Setup) -> None:
        (setup.path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 8\n")
        await setup.fails_with(SegmentChangedError)
        assert setup.finished == [(0, 7)]

    async def test_paused_partition_copies_nothing_and_reports_paused(self, setup: Setup) -> None:
        setup.session.manager.pause([TopicPartition("orders", 0)])
        status = (await setup.run()).status
        assert (status.state, status.lag.segments) == ("paused", 2)
        assert setup.storage.copied == []
        setup.session.manager.resume()
        assert (await setup.run()).status.state == "idle"


class TestFailures:
    @pytest.mark.spec("remote-tiering 134")
    @pytest.mark.spec("remote-tiering 138")
    async def test_failed_copy_is_deleted_at_once_and_does_not_count_as_copied(self, setup: Setup) -> None:
        setup.storage.on_copy = _raise(RemoteStorageError("refused"))
        error = await setup.fails_with(RemoteStorageError)
        assert "refused" in str(error)
        assert setup.session.rows(setup.partition) == [], "the delete cycle ran to its end"
        assert [m.segment for m in setup.storage.deleted] == [m.segment for m in setup.storage.copied]
        recorder = setup.session.recorder
        assert (recorder.requests, recorder.failures, recorder.copied) == (1, 1, [])
        (status,) = setup.session.manager.status()
        assert (status.copied_through, status.lag.segments) == (-1, 2)
        assert await setup.storage.list_segment_objects(setup.partition) == {}

    @pytest.mark.spec("remote-tiering 136")
    @pytest.mark.spec("remote-tiering 154")
    @pytest.mark.parametrize("failure", [KeyError("surprise"), MemoryError()], ids=["bug", "memory"])
    async def test_unexpected_exception_of_the_storage_becomes_a_storage_error(
        self, setup: Setup, failure: Exception
    ) -> None:
        setup.storage.on_copy = _raise(failure)
        await setup.fails_with(RemoteStorageError)
        assert setup.session.rows(setup.partition) == []
        setup.storage.on_copy = lambda: None
        assert (await setup.run()).error is None

    @pytest.mark.spec("remote-tiering 154")
    async def test_copy_that_hangs_ends_at_its_deadline(self, setup: Setup) -> None:
        setup.storage.hangs = True
        setup.session = setup.new_session(CopySettings(attempt_timeout_s=0.01))
        error = await setup.fails_with(RetriableRemoteStorageError)
        assert "longer than" in str(error)
        assert setup.session.rows(setup.partition) == []

    @pytest.mark.spec("remote-tiering 141")
    async def test_a_retriable_failure_is_not_counted_as_an_error(self, setup: Setup) -> None:
        setup.storage.on_copy = _raise(RetriableRemoteStorageError("slow down"))
        await setup.fails_with(RetriableRemoteStorageError)
        assert setup.session.recorder.failures == 0

    @pytest.mark.spec("remote-tiering 135")
    async def test_a_failed_cleanup_is_repeated_by_the_next_pass(self, setup: Setup) -> None:
        setup.storage.on_copy = _raise(RemoteStorageError("refused"))
        setup.storage.on_delete = _raise(RemoteStorageError("refused too"))
        error = await setup.fails_with(RemoteStorageError)
        assert str(error) == "refused", "the original error ends the pass"
        (row,) = setup.session.rows(setup.partition)
        assert row.state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED
        setup.storage.on_copy = setup.storage.on_delete = lambda: None
        await setup.run()
        assert [m.state for m in setup.session.rows(setup.partition)] == [FINISHED, FINISHED]

    @pytest.mark.spec("remote-tiering 132")
    async def test_custom_metadata_that_is_too_long_ends_copying(self, setup: Setup) -> None:
        setup.storage.custom = b"x" * 129
        outcome = await setup.run()
        assert outcome.status.state == "quarantined"
        assert "129 bytes" in outcome.status.reason
        assert [m.custom_metadata for m in setup.storage.deleted] == [b"x" * 129]
        assert setup.session.rows(setup.partition) == []
        assert (setup.session.recorder.failures, setup.session.recorder.copied) == (1, [])
        await setup.run()
        assert len(setup.storage.copied) == 1, "not tried again under this leadership"

    @pytest.mark.spec("remote-tiering 133")
    async def test_custom_metadata_of_the_greatest_length_is_stored(self, setup: Setup) -> None:
        setup.storage.custom = b"x" * 128
        assert (await setup.run()).error is None
        assert {m.custom_metadata for m in setup.session.rows(setup.partition)} == {b"x" * 128}

    async def test_copy_is_not_finished_if_its_source_changed_during_the_upload(self, setup: Setup) -> None:
        log = setup.path / f"{0:020d}.log"
        setup.storage.on_copy = lambda: log.write_bytes(log.read_bytes() + b"\0")
        await setup.fails_with(SegmentChangedError)
        assert setup.finished == []
        assert setup.session.rows(setup.partition) == []

    async def test_copy_is_not_finished_if_its_source_was_replaced_during_the_upload(self, setup: Setup) -> None:
        log = setup.path / f"{0:020d}.log"

        def compact() -> None:
            swapped = log.with_suffix(".log.swap")
            swapped.write_bytes(log.read_bytes())
            swapped.rename(log)

        setup.storage.on_copy = compact
        await setup.fails_with(SegmentChangedError)
        assert setup.finished == []
        setup.storage.on_copy = lambda: None
        assert (await setup.run()).error is None
        assert setup.finished == [(0, 7), (8, 15)]

    @pytest.mark.parametrize("is_replaced", [True, False])
    async def test_unexpected_bytes_are_damage_only_if_the_source_is_the_same_file(
        self, setup: Setup, *, is_replaced: bool
    ) -> None:
        log = setup.path / f"{0:020d}.log"

        def differ() -> None:
            if is_replaced:
                log.rename(log.with_suffix(".old"))
                log.write_bytes(log.with_suffix(".old").read_bytes())
            raise RemoteIntegrityError("other bytes than were checked")

        setup.storage.on_copy = differ
        await setup.fails_with(SegmentChangedError if is_replaced else RemoteIntegrityError)
        assert setup.session.rows(setup.partition) == []

    @pytest.mark.parametrize("mode", ["link", "descriptor"])
    async def test_a_segment_that_the_broker_deletes_during_the_upload_is_finished(
        self, setup: Setup, mode: HoldModeName
    ) -> None:
        setup.session = setup.tier.session(storage=lambda _: setup.storage, hold_mode=mode)
        setup.storage.on_copy = lambda: delete_segment(setup.path, 0)
        assert (await setup.run()).error is None
        assert setup.finished == [(0, 7), (8, 15)]
        assert [r.offset for r in await setup.session.read_all(setup.path)] == list(range(20))


ADD_BATCH, FINISH_BATCH = 3, 4  # after the claim and the log start


class _ScriptedRows(MemoryKeyValueStore):
    """Key-value store that answers one batch differently."""

    def __init__(self) -> None:
        super().__init__()
        self.fail_at: tuple[int, TierError, bool] | None = None  # batch number, error, and whether to apply it
        self.failures = 1
        self.batches = 0
        self.silent_after: int | None = None  # no answer after that many batches
        self.on_get: Callable[[], object] = lambda: None

    async def get(self, key: str) -> bytes | None:
        self.on_get()
        return await super().get(key)

    async def apply(self, batch: Batch) -> None:
        self.batches += 1
        if self.silent_after is not None and self.batches > self.silent_after:
            raise BackendUnavailableError("down")
        if self.fail_at is None or not self.fail_at[0] <= self.batches < self.fail_at[0] + self.failures:
            return await super().apply(batch)
        _, error, applied = self.fail_at
        if applied:
            await super().apply(batch)
        raise error


class TestMetadataFailures:
    @staticmethod
    def _setup(tmp_path: Path, *, at: int, error: TierError, applied: bool, times: int = 1) -> Setup:
        setup = Setup(tmp_path, rolled=1)
        rows = _ScriptedRows()
        rows.fail_at, rows.failures = (at, error, applied), times
        setup.tier.rows = rows
        setup.session = setup.new_session()
        return setup

    @pytest.mark.spec("remote-tiering 137")
    async def test_failed_add_of_the_row_uploads_nothing(self, tmp_path: Path) -> None:
        setup = self._setup(tmp_path, at=ADD_BATCH, error=RemoteStorageError("down"), applied=False)
        setup.session.recorder.failures = 0
        assert (await setup.run()).error is not None
        assert setup.storage.copied == []
        assert setup.session.recorder.failures == 1

    @pytest.mark.parametrize("applied", [False, True], ids=["lost", "landed"])
    async def test_an_add_of_unknown_outcome_is_confirmed_before_the_upload(
        self, tmp_path: Path, applied: bool
    ) -> None:
        setup = self._setup(tmp_path, at=ADD_BATCH, error=OutcomeUnknownError("silence"), applied=applied)
        assert (await setup.run()).error is None
        assert setup.finished == [(0, 7)]
        assert len(setup.session.rows(setup.partition)) == 1

    @pytest.mark.parametrize("applied", [False, True], ids=["lost", "landed"])
    async def test_finish_of_unknown_outcome_is_repeated_without_a_second_copy(
        self, tmp_path: Path, applied: bool
    ) -> None:
        setup = self._setup(tmp_path, at=FINISH_BATCH, error=OutcomeUnknownError("silence"), applied=applied)
        assert (await setup.run()).error is None
        assert setup.finished == [(0, 7)]
        assert len(setup.storage.copied) == 1

    @pytest.mark.spec("remote-tiering 151")
    async def test_a_finish_that_fails_leaves_the_row_to_the_sweep_and_the_hold_in_place(self, tmp_path: Path) -> None:
        setup = self._setup(tmp_path, at=FINISH_BATCH, error=BackendUnavailableError("down"), applied=False, times=4)
        outcome = await setup.run()
        assert outcome.error is not None
        assert outcome.status.copied_through == -1
        (row,) = setup.session.rows(setup.partition)
        assert row.state is STARTED
        assert setup.session.hold.statistics().segments == 1
        setup.tier.clock.advance(3600)
        assert (await setup.run()).error is None
        assert [m.state for m in setup.session.rows(setup.partition)] == [FINISHED]
        assert setup.session.recorder.swept == 1

    async def test_finish_whose_answer_was_lost_is_found_by_the_next_pass(self, tmp_path: Path) -> None:
        setup = self._setup(tmp_path, at=FINISH_BATCH, error=OutcomeUnknownError("silence"), applied=True)
        rows = setup.tier.rows
        assert isinstance(rows, _ScriptedRows)
        rows.silent_after = FINISH_BATCH
        await setup.fails_with(BackendUnavailableError)
        rows.silent_after = None
        assert (await setup.run()).status.copied_through == 7
        assert len(setup.storage.copied) == 1
        assert setup.session.hold.statistics().segments == 0

    async def test_finish_whose_answer_was_lost_is_found_although_expiration_loaded_the_rows(
        self, tmp_path: Path
    ) -> None:
        setup = self._setup(tmp_path, at=FINISH_BATCH, error=OutcomeUnknownError("silence"), applied=True)
        rows = setup.tier.rows
        assert isinstance(rows, _ScriptedRows)
        rows.silent_after = FINISH_BATCH
        await setup.fails_with(BackendUnavailableError)
        rows.silent_after = None
        await setup.session.metadata.ensure_ready(setup.partition)
        assert (await setup.run()).status.copied_through == 7
        assert setup.finished == [(0, 7)]

    @pytest.mark.spec("remote-tiering 140")
    @pytest.mark.spec("remote-tiering 141")
    async def test_pass_without_ready_metadata_calls_neither_store(self, tmp_path: Path) -> None:
        setup = self._setup(tmp_path, at=1, error=BackendUnavailableError("down"), applied=False)
        await setup.fails_with(BackendUnavailableError)
        assert (setup.storage.copied, setup.storage.deleted) == ([], [])
        assert setup.session.recorder.failures == 0
        assert setup.session.metadata.statistics().segments == 0
        assert (await setup.run()).error is None
        assert setup.finished == [(0, 7)]

    async def test_a_later_session_fences_the_earlier_one(self, setup: Setup) -> None:
        await setup.run()
        later = setup.new_session()
        await later.copy_once()
        setup.writer.roll()
        setup.log_dir.write_checkpoints()
        assert isinstance((await setup.run()).error, FencedError)
        assert len(setup.storage.copied) == 2


async def test_records_without_timestamps_are_as_old_as_their_file(tmp_path: Path) -> None:
    """Any retention would delete such records at once if their age were that of time 0."""
    setup = Setup(tmp_path, rolled=0)
    setup.writer = setup.log_dir.add_partition("timeless")
    path = setup.writer.active_segment
    setup.writer.append([b"old"], timestamp_ms=-1)
    setup.writer.roll()
    setup.writer.append([b"next"])
    setup.log_dir.write_checkpoints()
    await setup.session.copy_once()
    (row,) = setup.session.rows(partition_of(setup.writer.path))
    assert row.max_timestamp_ms == path.stat().st_mtime_ns // 1_000_000


class TestFormatsWithoutLeaderEpochs:
    """A broker knows leader epochs from the upgrade to 0.11 on: the first one begins at the end that the log had."""

    def upgraded(self, tmp_path: Path, *, magic: int, old_segments: int, mixed: int) -> Setup:
        """Write segments of four old records each, ``mixed`` more and new ones in the next segment, and another one."""
        setup = Setup(tmp_path, rolled=0)
        writer = LogDirWriter(tmp_path / "kafka-2").add_partition("orders", leader_epoch=3)
        for _ in range(old_segments):
            self.append_old(writer, magic, 4)
            writer.roll()
        self.append_old(writer, magic, mixed)
        (writer.path / "leader-epoch-checkpoint").write_text(f"0\n1\n3 {writer.end_offset}\n")
        for _ in range(2):
            writer.append([b"new"] * 3)
            writer.roll()
        writer.append([b"active"])
        shutil.rmtree(setup.path)
        writer.path.rename(setup.path)
        setup.partition = partition_of(setup.path)
        setup.set_high_watermark(writer.end_offset)
        setup.end_offset = writer.end_offset
        return setup

    def append_old(self, writer: PartitionWriter, magic: int, count: int) -> None:
        for _ in range(count):
            with writer.active_segment.open("ab") as file:
                file.write(legacy(magic, writer.end_offset, b"key", b"old"))
            writer.end_offset += 1

    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize(("old_segments", "mixed"), [(2, 0), (0, 2), (1, 2)])
    async def test_records_of_old_formats_are_copied_and_read_in_the_tier(
        self, tmp_path: Path, magic: int, old_segments: int, mixed: int
    ) -> None:
        setup = self.upgraded(tmp_path, magic=magic, old_segments=old_segments, mixed=mixed)
        outcome = await setup.run()
        assert outcome.error is None
        old = old_segments * 4 + mixed
        assert setup.finished[-1] == (old + 3, old + 5)
        for _ in range(2):
            setup.session = setup.new_session()
            assert (await setup.run()).error is None
            assert len(setup.finished) == old_segments + 2
        before = await setup.session.read_all(setup.path)
        assert [record.offset for record in before] == list(range(setup.end_offset))
        assert await setup.session.findings(setup.path) == []
        for base, _ in setup.finished:
            delete_segment(setup.path, base)
        assert (await setup.run()).error is None
        assert await setup.session.read_all(setup.path) == before
        assert await setup.session.findings(setup.path) == []


class TestTopicMadeAnew:
    async def test_log_of_a_new_topic_in_a_directory_of_the_same_inode_leaves_the_tier_of_the_former_alone(
        self, setup: Setup
    ) -> None:
        """A daemon that was stopped for a while has not seen the directory go, and file systems use inodes again."""
        setup.writer.append([b"until the roll"])
        await setup.run()
        before = setup.session.rows(setup.partition)
        (replica,) = setup.session.tiering.replicas.all()
        task, inode = replica.tasks.copy, setup.path.stat().st_ino
        assert task is not None
        other = LogDirWriter(setup.tmp_path / "other").add_partition("orders")
        other.append([b"another"] * 5)
        other.fill(rolled_segments=3, shape=SHAPE)
        for file in setup.path.iterdir():
            file.unlink()
        for file in other.path.iterdir():
            file.rename(setup.path / file.name)
        assert setup.path.stat().st_ino == inode
        setup.set_high_watermark(other.end_offset)
        with pytest.raises(SegmentChangedError, match="another directory has taken its name"):
            await task.run_once()
        assert setup.session.rows(setup.partition) == before
        assert (await setup.run()).status.topic_id != str(setup.partition.topic_id)
        assert setup.session.finished(partition_of(setup.path)) == [(0, 12), (13, 20), (21, 28)]


class TestLogStart:
    @pytest.mark.spec("remote-tiering 125")
    async def test_log_start_of_the_first_leadership_is_the_local_one(self, setup: Setup) -> None:
        delete_segment(setup.path, 0)
        assert (await setup.run()).status.log_start_offset == 8
        assert setup.session.recorder.gaps == []

    async def test_log_start_of_a_former_topic_of_the_name_hides_no_record_of_the_new_one(self, setup: Setup) -> None:
        """A broker that was down while the topic was made anew still has the former log start for half a minute."""
        setup.set_log_start(10)
        made_ns = (setup.path / "partition.metadata").stat().st_mtime_ns
        os.utime(setup.log_dir.path / "log-start-offset-checkpoint", ns=(made_ns - 1, made_ns - 1))
        assert (await setup.run()).status.log_start_offset == 0
        assert setup.finished == [(0, 7), (8, 15)]
        setup.log_dir.write_checkpoints()
        assert (await setup.run()).status.log_start_offset == 0
        setup.set_log_start(10)
        assert (await setup.run()).status.log_start_offset == 10, "a request to delete records of the new one"

    @pytest.mark.spec("remote-tiering 149")
    async def test_deletion_request_raises_the_log_start_and_retention_of_the_broker_does_not(
        self, setup: Setup
    ) -> None:
        await setup.run()
        delete_segment(setup.path, 0)
        assert (await setup.run()).status.log_start_offset == 0
        setup.set_log_start(10)
        assert (await setup.run()).status.log_start_offset == 10
        view = setup.session.metadata.view(setup.partition)
        assert view.log_start_offset == 10, "and it is stored"

    async def test_log_start_that_was_taken_over_from_another_leader_does_not_raise_that_of_the_tier(
        self, tmp_path: Path
    ) -> None:
        """Retention of the other leader put it at a base of its own segments; in the local log it is inside one."""
        setup = Setup(tmp_path, rolled=2, shape=SINGLE_RECORDS)
        setup.writer.begin_epoch(1)  # of this broker; epoch 0 was of another one
        setup.writer.append([b"mine"] * 4)
        setup.log_dir.write_checkpoints()
        delete_segment(setup.path, 0)
        setup.set_log_start(10)
        setup.session.recorder.gaps.clear()
        assert (await setup.run()).error is None
        before = setup.session.metadata.view(setup.partition).log_start_offset
        setup.set_log_start(11)  # known to the broker before, and checkpointed only now
        later_ns = time.time_ns() + 10**9
        os.utime(setup.log_dir.path / "log-start-offset-checkpoint", ns=(later_ns, later_ns))
        assert (await setup.run()).error is None
        assert setup.session.metadata.view(setup.partition).log_start_offset == before
        setup.set_log_start(12)  # a request to this leader
        assert (await setup.run()).status.log_start_offset == 12

    @pytest.mark.parametrize(
        ("shape", "deleted_before"),
        [
            pytest.param(SINGLE_RECORDS, 18, id="a-batch-of-this-leadership"),
            pytest.param(SHAPE, 10, id="within-a-batch-of-an-earlier-leader"),
        ],
    )
    async def test_request_that_batches_prove_is_obeyed_in_the_first_minute_of_a_later_epoch(
        self, tmp_path: Path, shape: SegmentShape, deleted_before: int
    ) -> None:
        setup = Setup(tmp_path, rolled=2, shape=shape)
        setup.writer.begin_epoch(1)
        setup.writer.append_batch(shape.batch(), shape.records_per_batch, times=8)
        setup.log_dir.write_checkpoints()
        assert (await setup.run()).status.log_start_offset == 0
        setup.set_log_start(deleted_before)
        assert (await setup.run()).status.log_start_offset == deleted_before
        assert [record.offset for record in await setup.session.read_all(setup.path)][:1] == [deleted_before]

    async def test_daemon_that_starts_after_a_deletion_request_obeys_the_request(self, tmp_path: Path) -> None:
        setup = Setup(tmp_path, rolled=2, shape=SINGLE_RECORDS)
        setup.writer.begin_epoch(1)
        setup.writer.append_batch(SINGLE_RECORDS.batch(), 1, times=8)
        setup.log_dir.write_checkpoints()
        await setup.run()
        setup.writer.forget_epochs_below(20)  # as a broker does with its lineage
        setup.set_log_start(20)
        setup.session = setup.new_session()
        assert (await setup.run()).status.log_start_offset == 20

    async def test_request_at_a_batch_of_an_earlier_epoch_is_obeyed_by_the_only_replica_after_a_restart(
        self, tmp_path: Path
    ) -> None:
        setup = Setup(tmp_path, rolled=2, shape=SINGLE_RECORDS)
        await setup.run()
        setup.writer.begin_epoch(2)
        setup.log_dir.write_checkpoints()
        setup.set_log_start(10)
        setup.session = setup.new_session()
        assert (await setup.run()).status.log_start_offset == 0, "another replica may have led in between"
        setup.session = setup.new_session(leadership=OnlyReplica())
        assert (await setup.run()).status.log_start_offset == 10

    async def test_retention_of_the_predecessor_is_no_request_to_the_only_replica_that_was_moved_here(
        self, tmp_path: Path
    ) -> None:
        setup = Setup(tmp_path, rolled=2, shape=SINGLE_RECORDS)
        setup.session = setup.tier.session(storage=lambda _: setup.storage, broker_id=BROKER_ID + 1)
        await setup.run()
        setup.writer.begin_epoch(2)
        setup.log_dir.write_checkpoints()
        setup.set_log_start(10)
        setup.session = setup.new_session(leadership=OnlyReplica())
        with capture_logs() as lines:
            assert (await setup.run()).status.log_start_offset == 0
            assert (await setup.run()).status.log_start_offset == 0
        assert [line["log_start_offset"] for line in lines if line["event"] == "log_start_in_doubt"] == [10]

    @pytest.mark.parametrize("leadership", [StaticLeadership, OnlyReplica])
    async def test_retention_of_the_log_dir_that_a_replica_left_is_no_request(
        self, tmp_path: Path, leadership: type[StaticLeadership]
    ) -> None:
        """A replica that moves between log dirs keeps its leader epoch, rolls anew, and takes its log start along."""
        setup = Setup(tmp_path, rolled=2, shape=SINGLE_RECORDS)
        await setup.run()
        first, second = (setup.path / f"{base:020d}.log" for base in (0, 8))
        joined = first.read_bytes() + second.read_bytes()
        for base in (0, 8):
            delete_segment(setup.path, base)
        first.write_bytes(joined)
        for suffix in (".index", ".timeindex"):
            first.with_suffix(suffix).write_bytes(b"")
        setup.set_log_start(8)  # a base before the move
        setup.session = setup.new_session(leadership=leadership())
        with capture_logs() as lines:
            assert (await setup.run()).status.log_start_offset == 0
            assert (await setup.run()).status.log_start_offset == 0
        assert [line["log_start_offset"] for line in lines if line["event"] == "log_start_in_doubt"] == [8]
        setup.set_log_start(9)
        assert (await setup.run()).status.log_start_offset == 9

    async def test_retention_of_a_leader_that_copied_nothing_is_no_request_to_the_only_replica(
        self, tmp_path: Path
    ) -> None:
        setup = Setup(tmp_path, rolled=2, shape=SINGLE_RECORDS)
        await setup.run()
        setup.writer.begin_epoch(1)
        setup.session = setup.tier.session(storage=lambda _: setup.storage, broker_id=BROKER_ID + 1)
        await setup.run()
        setup.writer.begin_epoch(2)
        setup.log_dir.write_checkpoints()
        setup.set_log_start(10)  # a base of the segments of that leader
        setup.session = setup.new_session(leadership=OnlyReplica())
        assert (await setup.run()).status.log_start_offset == 0
        setup.session = setup.new_session(leadership=OnlyReplica())
        assert (await setup.run()).status.log_start_offset == 0

    async def test_log_that_ends_below_the_log_start_of_the_tier_is_copied_from_the_local_log_start(
        self, setup: Setup
    ) -> None:
        """The disk was replaced, or an unclean election cut the log: no local record may be skipped in silence."""
        await setup.run()
        await setup.session.metadata.advance_log_start_offset(setup.partition, 1000)
        setup.session = setup.new_session()
        setup.writer.roll()
        setup.writer.append([b"next"])
        setup.log_dir.write_checkpoints()
        outcome = await setup.run()
        assert outcome.error is None
        assert (outcome.status.log_start_offset, outcome.status.copied_through) == (0, 19)
        assert setup.session.metadata.view(setup.partition).log_start_offset == 0

    async def test_running_retention_of_the_broker_hides_no_records_of_the_tier(self, setup: Setup) -> None:
        await setup.run()
        setup.set_log_start(8)  # raised and checkpointed; the files are renamed next
        assert (await setup.run()).status.log_start_offset == 0
        before = await setup.session.read_all(setup.path)
        delete_segment(setup.path, 0)
        setup.set_log_start(8)
        assert (await setup.run()).status.log_start_offset == 0
        assert await setup.session.read_all(setup.path) == before
        assert [record.offset for record in before] == list(range(20))

    async def test_log_start_at_a_roll_that_the_listing_lacks_is_no_deletion_request(self, setup: Setup) -> None:
        await setup.run()
        (replica,) = setup.session.tiering.replicas.all()
        task = replica.tasks.copy
        assert task is not None
        setup.writer.roll()
        setup.writer.append([b"next"])
        setup.log_dir.write_checkpoints()
        setup.set_log_start(20)  # retention: everything before the new active segment
        await task.run_once()
        assert task.state.log_start_offset == 0

    async def test_segment_that_the_broker_renames_after_the_listing_is_copied(self, setup: Setup) -> None:
        rows = _ScriptedRows()
        setup.tier.rows = rows
        setup.session = setup.new_session()

        def rename() -> None:  # between the listing and the hold
            for file in setup.path.glob(f"{0:020d}.*[!d]"):
                file.rename(f"{file}.deleted")

        rows.on_get = rename
        assert (await setup.run()).error is None
        assert setup.finished == [(0, 7), (8, 15)]
        assert setup.session.recorder.gaps == []

    async def test_segments_deleted_before_they_were_seen_are_reported_once_as_a_gap_and_skipped(
        self, setup: Setup
    ) -> None:
        setup.set_high_watermark(8)
        await setup.run()
        setup.session.hold.close()
        setup.writer.roll()
        for number in range(3):
            setup.writer.append([b"x"] * 4)
            setup.writer.roll()
            assert number < 3
        setup.log_dir.write_checkpoints()
        for held in (setup.tmp_path / "hold").rglob("*.log"):
            held.unlink()
        delete_segment(setup.path, 0)
        delete_segment(setup.path, 8)
        setup.session = setup.new_session()
        await setup.run()
        await setup.run()
        assert setup.session.recorder.gaps == [8]
        assert setup.finished == [(0, 7), (16, 19), (20, 23), (24, 27), (28, 31)]


class TestOpenTransactions:
    @pytest.mark.spec("remote-tiering 150")
    async def test_open_transaction_delays_its_segment_and_all_later_segments(
        self, golden: Path, tmp_path: Path
    ) -> None:
        (case,) = [c for c in golden_cases("clean") if c.partition == "txn-closed-0" and c.broker.endswith("4.3.1")]
        log_dir = tmp_path / "kafka"
        shutil.copytree(golden / case.logdirs[0] / case.partition, log_dir / case.partition)
        path = log_dir / case.partition
        snapshots = {int(file.stem): read_producer_snapshot(file) for file in path.glob("*.snapshot")}
        bases = sorted(int(file.stem) for file in path.glob("*.log"))
        open_at = {base: [e.current_txn_first_offset for e in snapshots.get(base, ())] for base in bases}
        rolled = next(base for base in bases if any(first >= 0 for first in open_at[base]))
        undecided = min(first for first in open_at[rolled] if first >= 0)

        def write_high_watermark(offset: int) -> None:
            (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\ntxn-closed 0 {offset}\n")

        write_high_watermark(rolled)
        session = Tier(tmp_path, [log_dir]).session()
        outcome = (await session.copy_once())["txn-closed-0"]
        partition = partition_of(path)
        assert all(end < undecided for _, end in session.finished(partition))
        assert f"an open transaction keeps the last stable offset at {undecided}" in outcome.status.reason
        write_high_watermark(1 << 40)
        await session.copy_once()
        assert [base for base, _ in session.finished(partition)] == bases[:-1]


class TestMovesAndEpochs:
    @pytest.mark.spec("remote-tiering 139")
    async def test_copying_continues_after_the_log_moved_to_another_log_dir(self, tmp_path: Path) -> None:
        setup = Setup(tmp_path)
        other = LogDirWriter(tmp_path / "kafka2")
        setup.tier.log_dirs.append(other.path)
        setup.session = setup.new_session()
        await setup.run()
        setup.writer.roll()
        setup.path.rename(other.path / setup.path.name)
        setup.log_dir.write_checkpoints()
        (setup.log_dir.path / "replication-offset-checkpoint").rename(other.path / "replication-offset-checkpoint")
        outcome = await setup.run()
        assert outcome.error is None
        assert str(other.path) in outcome.status.directory
        assert setup.finished == [(0, 7), (8, 15), (16, 19)]

    async def test_a_new_leader_epoch_gets_a_task_of_its_own(self, setup: Setup) -> None:
        first = (await setup.run()).status
        setup.writer.begin_epoch(5)
        setup.writer.append([b"x"])
        setup.writer.roll()
        setup.log_dir.write_checkpoints()
        second = (await setup.run()).status
        assert (first.leader_epoch, second.leader_epoch) == (0, 5)
        assert setup.finished == [(0, 7), (8, 15), (16, 20)]

    @pytest.mark.spec("remote-tiering 155")
    async def test_truncated_and_rewritten_log_is_copied_again_from_its_first_difference(self, tmp_path: Path) -> None:
        setup = Setup(tmp_path, rolled=3)
        await setup.run()
        topic_id = setup.writer.topic_id
        for file in setup.path.iterdir():
            file.unlink()
        setup.path.rmdir()
        rewritten = PartitionWriter(setup.log_dir.path, TopicPartition("orders", 0), topic_id=topic_id)
        rewritten.append_batch(SHAPE.batch(), 4, times=3)
        rewritten.begin_epoch(1)
        rewritten.append([b"new"] * 8)
        rewritten.roll()
        rewritten.append([b"new"] * 8)
        setup.log_dir.partitions[TopicPartition("orders", 0)] = rewritten
        setup.log_dir.write_checkpoints()
        setup.session = setup.new_session()
        assert (await setup.run()).status.copied_through == 19
        delete_segment(setup.path, 0)
        read = await setup.session.read_all(setup.path)
        assert [r.offset for r in read] == list(range(28))
        assert [r.leader_epoch for r in read] == [0] * 12 + [1] * 16
        assert all(r.value == b"new" for r in read[12:])
