import asyncio
import shutil
import struct
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from uuid import UUID

import pytest
from rocksdict import Options, Rdict

from tests.fakes.clock import FakeClock
from tests.fakes.small_disk import SmallDisk
from tests.restore.streams.kinds import BATCH, KILLED_IN, PLAIN, TYPES, FlushingClock, log_of, store_of
from tests.restore.streams.states import (
    IDENTITY,
    InterruptedRestoreError,
    ListedChangelog,
    read_store,
    records,
    restore,
)
from tierd.errors import RefusedError
from tierd.model import Lineage
from tierd.restore.changelog.changelog_errors import ChangelogRangeError, OutdatedPositionError, StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogIdentity, ChangelogRecords
from tierd.restore.journal import Journal
from tierd.restore.streams.state_directory import StreamsStateDirectory
from tierd.restore.streams.streams_store import StreamsStoreType

TABLE_FORMAT_OF_STREAMS = 5
TOPIC_ID = UUID("0189c4b5-8d3f-7d31-8f1e-6f0d6f0d6f0d")
FLUSHED = KILLED_IN * BATCH
LOG = log_of(StreamsStoreType.KEY_VALUE)


def identity(
    *, topic_id: UUID | None = None, epochs: tuple[tuple[int, int], ...] = (), delete_retention_ms: int | None = None
) -> ChangelogIdentity:
    return ChangelogIdentity(topic_id=topic_id, lineage=Lineage.of(epochs), delete_retention_ms=delete_retention_ms)


async def stop_half_way(
    state_dir: Path,
    kind: StreamsStoreType = StreamsStoreType.KEY_VALUE,
    *,
    of: ChangelogIdentity = IDENTITY,
    clock: FakeClock | None = None,
) -> None:
    """Leave a stage in which ``FLUSHED`` records are durable."""
    changelog = ListedChangelog(log_of(kind), size=BATCH, stop_after=KILLED_IN)
    with pytest.raises(InterruptedRestoreError):
        await restore(store_of(kind), changelog, state_dir, identity=of, clock=clock or FlushingClock())


@pytest.mark.parametrize("kind", TYPES)
async def test_result_names_place_offset_and_count(tmp_path: Path, kind: StreamsStoreType) -> None:
    restored = await restore(store_of(kind), log_of(kind), tmp_path)

    below = "s" if kind.has_segment_directories else "rocksdb/s"
    assert restored.directory == tmp_path / "app/0_0" / below
    assert (restored.last_offset, restored.record_count, restored.skipped) == (399, 400, 5)
    assert (restored.resumed_after, restored.replaced) == (None, None)
    assert (tmp_path / "app/0_0/.checkpoint").read_text() == "0\n1\nc 0 399\n"


async def test_only_what_streams_knows_is_left(tmp_path: Path) -> None:
    await restore(PLAIN, LOG, tmp_path)

    assert sorted(path.name for path in (tmp_path / "app").iterdir()) == ["0_0"]
    assert sorted(path.name for path in (tmp_path / "app/0_0").iterdir()) == [".checkpoint", "rocksdb"]
    assert not [path for path in (tmp_path / ".tierd-restore").rglob("*") if path.is_file()]


async def test_expired_segments_are_removed(tmp_path: Path) -> None:
    kind = StreamsStoreType.TIMESTAMPED_WINDOW
    restored = await restore(store_of(kind), ListedChangelog(log_of(kind), size=20), tmp_path, clock=FlushingClock())

    starts = sorted(int(path.name.removeprefix("s.")) for path in restored.directory.iterdir())
    assert starts == list(range(1650, 2100, 150))


@pytest.mark.parametrize("kind", TYPES)
async def test_files_are_those_that_streams_opens(tmp_path: Path, kind: StreamsStoreType) -> None:
    restored = await restore(store_of(kind), log_of(kind), tmp_path)

    expected = ["default", "keyValueWithTimestamp"] if kind.is_timestamped else ["default"]
    directories = [path.parent for path in restored.directory.rglob("CURRENT")]
    assert directories
    for directory in directories:
        assert not (directory / "rocksdict-config.json").exists()
        assert sorted(Rdict.list_cf(str(directory), Options(raw_mode=True))) == expected
        tables = list(directory.glob("*.sst"))
        assert tables
        for table in tables:
            (table_format,) = struct.unpack_from("<I", table.read_bytes()[-12:])
            assert table_format == TABLE_FORMAT_OF_STREAMS


@pytest.mark.parametrize("kind", TYPES)
async def test_stopped_run_goes_on_after_its_last_flush(tmp_path: Path, kind: StreamsStoreType) -> None:
    whole = await restore(store_of(kind), log_of(kind), tmp_path / "whole")

    await stop_half_way(tmp_path, kind)
    changelog = ListedChangelog(log_of(kind))
    resumed = await restore(store_of(kind), changelog, tmp_path)

    assert changelog.asked == [FLUSHED]
    assert (resumed.resumed_after, resumed.last_offset, resumed.record_count) == (FLUSHED - 1, 399, 400 - FLUSHED)
    assert read_store(resumed.directory) == read_store(whole.directory)


@pytest.mark.spec("changelog-restore 56")
async def test_killed_run_goes_on_after_its_last_flush(tmp_path: Path) -> None:
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.restore.streams.kinds", "killed", str(tmp_path), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await killed.communicate()
    assert killed.returncode == -9, errors.decode()

    for kind in TYPES:
        whole = await restore(store_of(kind), log_of(kind), tmp_path / "whole" / kind.value)
        changelog = ListedChangelog(log_of(kind))
        resumed = await restore(store_of(kind), changelog, tmp_path / kind.value)
        assert changelog.asked == [FLUSHED]
        assert read_store(resumed.directory) == read_store(whole.directory)


@pytest.mark.spec("changelog-restore 56")
@pytest.mark.parametrize("step", ["half-written", "written", "added"])
async def test_run_that_is_killed_at_a_table_goes_on_after_its_last_flush(tmp_path: Path, step: str) -> None:
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.restore.streams.kinds", "table", step, tmp_path, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await killed.communicate()
    assert killed.returncode == -9, errors.decode()
    assert bool(list(tmp_path.rglob("tierd.table"))) == (step != "added")

    whole = await restore(PLAIN, LOG, tmp_path / "whole")
    changelog = ListedChangelog(LOG)
    resumed = await restore(PLAIN, changelog, tmp_path)

    assert changelog.asked == [FLUSHED]
    assert read_store(resumed.directory) == read_store(whole.directory)
    assert not list(tmp_path.rglob("tierd.table"))


@pytest.mark.parametrize("batch", [0, 2])
async def test_cancelled_run_leaves_a_stage_that_the_next_goes_on_from(tmp_path: Path, batch: int) -> None:
    class Cancelling(ListedChangelog):
        async def read(self, offset: int | None) -> AsyncGenerator[ChangelogRecords]:
            number = 0
            async for rows in super().read(offset):
                if number == batch:
                    running.cancel()  # arrives while the records are applied
                number += 1
                yield rows

    kind = StreamsStoreType.VERSIONED
    changelog = Cancelling(log_of(kind), size=BATCH)
    running = asyncio.create_task(restore(store_of(kind), changelog, tmp_path, clock=FlushingClock()))
    with pytest.raises(asyncio.CancelledError):
        await running
    restored = await restore(store_of(kind), log_of(kind), tmp_path)

    assert restored.record_count == 400 - (restored.resumed_after + 1 if restored.resumed_after is not None else 0)
    whole = await restore(store_of(kind), log_of(kind), tmp_path / "whole")
    assert read_store(restored.directory) == read_store(whole.directory)


def test_full_disk_stops_a_restore_that_goes_on_with_room(tmp_path: Path) -> None:
    run: list[str | Path] = [sys.executable, "-m", "tests.restore.streams.kinds", "large", tmp_path]

    story = SmallDisk(tmp_path, size_kib=6 * 1024).tell(run, then_with_room=[run])

    assert story.exit_codes == [1, 0], story.output
    assert "StoreFailedError: store s: RocksDB:" in story.output
    assert "No space left on device" in story.output
    resumed_after, last_offset, keys = story.lines[-1].split()
    assert int(resumed_after) >= 99
    assert (last_offset, keys) == ("2999", "3000")


async def test_store_is_not_in_place_before_it_is_complete(tmp_path: Path) -> None:
    await stop_half_way(tmp_path)

    assert not (tmp_path / "app/0_0").exists()


async def test_records_that_are_applied_again_change_nothing(tmp_path: Path) -> None:
    for kind in TYPES:
        whole = await restore(store_of(kind), log_of(kind), tmp_path / "whole" / kind.value)
        changelog = ListedChangelog(log_of(kind), size=BATCH, stop_after=KILLED_IN)
        with pytest.raises(InterruptedRestoreError):  # what was applied is on disk, and no journal says so
            await restore(store_of(kind), changelog, tmp_path / kind.value)
        restored = await restore(store_of(kind), log_of(kind), tmp_path / kind.value)
        assert restored.resumed_after is None
        assert read_store(restored.directory) == read_store(whole.directory)


@pytest.mark.spec("changelog-restore 60")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (identity(topic_id=TOPIC_ID), identity(topic_id=UUID(int=TOPIC_ID.int + 1))),
        (identity(epochs=((0, 0),)), identity(epochs=((0, 0), (3, FLUSHED - 1)))),
        (identity(epochs=((0, 0),)), identity(epochs=((3, 0),))),
    ],
    ids=["another-topic-id", "log-cut-below-it", "epoch-gone"],
)
async def test_stage_of_another_log_is_thrown_away(
    tmp_path: Path, before: ChangelogIdentity, after: ChangelogIdentity
) -> None:
    await stop_half_way(tmp_path, of=before)

    changelog = ListedChangelog(LOG)
    restored = await restore(PLAIN, changelog, tmp_path, identity=after)

    assert (changelog.asked, restored.record_count) == ([None], 400)


async def test_stage_of_the_same_log_is_kept(tmp_path: Path) -> None:
    of = identity(topic_id=TOPIC_ID, epochs=((0, 0), (3, FLUSHED)))
    await stop_half_way(tmp_path, of=of)

    changelog = ListedChangelog(LOG)
    await restore(PLAIN, changelog, tmp_path, identity=of)

    assert changelog.asked == [FLUSHED]


@pytest.mark.spec("changelog-restore 59")
@pytest.mark.parametrize(("age_h", "asked"), [(22, FLUSHED), (24, None)])
async def test_stage_older_than_tombstones_are_kept_is_thrown_away(
    tmp_path: Path, age_h: int, asked: int | None
) -> None:
    of = identity(delete_retention_ms=86_400_000)
    clock = FlushingClock()
    await stop_half_way(tmp_path, of=of, clock=clock)

    clock.advance(age_h * 3600)
    changelog = ListedChangelog(LOG)
    await restore(PLAIN, changelog, tmp_path, identity=of, clock=clock)

    assert changelog.asked == [asked]


@pytest.mark.spec("changelog-restore 59")
async def test_stage_of_several_runs_is_as_old_as_the_first_of_them(tmp_path: Path) -> None:
    of = identity(delete_retention_ms=86_400_000)
    clock = FlushingClock()
    await stop_half_way(tmp_path, of=of, clock=clock)
    clock.advance(12 * 3600)
    with pytest.raises(InterruptedRestoreError):
        await restore(PLAIN, ListedChangelog(LOG, size=BATCH, stop_after=1), tmp_path, identity=of, clock=clock)

    clock.advance(12 * 3600)
    changelog = ListedChangelog(LOG)
    await restore(PLAIN, changelog, tmp_path, identity=of, clock=clock)

    assert changelog.asked == [None]


@pytest.mark.spec("changelog-restore 50")
async def test_restore_that_outlasts_the_tombstones_is_refused_and_begins_anew_later(tmp_path: Path) -> None:
    of = identity(delete_retention_ms=86_400_000)
    clock = FakeClock()

    class Slow(ListedChangelog):
        async def read(self, offset: int | None) -> AsyncGenerator[ChangelogRecords]:
            async for batch in super().read(offset):
                yield batch
                clock.advance(12 * 3600)

    with pytest.raises(OutdatedPositionError, match="deleted keys could come back"):
        await restore(PLAIN, Slow(LOG), tmp_path, identity=of, clock=clock)
    changelog = ListedChangelog(LOG)
    restored = await restore(PLAIN, changelog, tmp_path, identity=of, clock=clock)

    assert (changelog.asked, restored.record_count) == ([None], 400)


async def test_stage_of_a_store_with_other_facts_is_thrown_away(tmp_path: Path) -> None:
    await stop_half_way(tmp_path)

    changelog = ListedChangelog(LOG)
    await restore(store_of(StreamsStoreType.TIMESTAMPED_KEY_VALUE), changelog, tmp_path)

    assert changelog.asked == [None]


@pytest.mark.spec("changelog-restore 60")
async def test_stage_beyond_the_end_of_the_log_is_thrown_away(tmp_path: Path) -> None:
    await stop_half_way(tmp_path)

    changelog = ListedChangelog(LOG[:100])
    restored = await restore(PLAIN, changelog, tmp_path)

    assert changelog.asked == [FLUSHED, None]
    assert (restored.resumed_after, restored.last_offset, restored.record_count) == (None, 99, 100)


async def test_stage_that_was_removed_in_part_is_built_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = StreamsStoreType.WINDOW
    await stop_half_way(tmp_path, kind)

    def remove_a_part(path: Path) -> None:
        remove(min((path / "store").iterdir()))
        raise OSError("the disk fails")

    remove = shutil.rmtree
    with monkeypatch.context() as broken:
        broken.setattr(shutil, "rmtree", remove_a_part)
        with pytest.raises(StoreFailedError, match="the disk fails"):
            await restore(store_of(kind), ListedChangelog(log_of(kind)[:100]), tmp_path)
    restored = await restore(store_of(kind), log_of(kind), tmp_path)

    assert restored.resumed_after is None
    whole = await restore(store_of(kind), log_of(kind), tmp_path / "whole")
    assert read_store(restored.directory) == read_store(whole.directory)


async def test_range_error_of_a_fresh_run_is_reported(tmp_path: Path) -> None:
    class Emptied(ListedChangelog):
        async def read(self, offset: int | None) -> AsyncGenerator[ChangelogRecords]:
            async for batch in super().read(offset if offset is not None else 500):
                yield batch

    with pytest.raises(ChangelogRangeError):
        await restore(PLAIN, Emptied(LOG), tmp_path)


@pytest.mark.parametrize("step", ["install", "record_offset"])
async def test_complete_store_is_put_in_place_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(StreamsStateDirectory, step, fail)
        with pytest.raises(StoreFailedError, match="store s: the disk is full"):
            await restore(PLAIN, LOG, tmp_path)
    changelog = ListedChangelog(LOG)
    restored = await restore(PLAIN, changelog, tmp_path)

    assert changelog.asked == []
    assert (restored.last_offset, restored.record_count) == (399, 0)
    assert (tmp_path / "app/0_0/.checkpoint").read_text() == "0\n1\nc 0 399\n"
    whole = await restore(PLAIN, LOG, tmp_path / "whole")
    assert read_store(restored.directory) == read_store(whole.directory)


async def test_finished_files_without_a_journal_line_are_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = StreamsStoreType.VERSIONED
    with monkeypatch.context() as broken:

        def fail(_: object, line: dict[str, object]) -> None:
            if line["step"] == "complete":
                raise OSError("the disk is full")

        broken.setattr(Journal, "append", fail)
        with pytest.raises(StoreFailedError):
            await restore(store_of(kind), log_of(kind), tmp_path)
    restored = await restore(store_of(kind), log_of(kind), tmp_path)

    whole = await restore(store_of(kind), log_of(kind), tmp_path / "whole")
    assert read_store(restored.directory) == read_store(whole.directory)


@pytest.mark.parametrize("kind", TYPES)
async def test_changelog_without_records_leaves_an_empty_store(tmp_path: Path, kind: StreamsStoreType) -> None:
    restored = await restore(store_of(kind), [], tmp_path)

    assert (restored.last_offset, restored.record_count) == (None, 0)
    assert restored.directory.is_dir()
    assert all(not content for content in read_store(restored.directory).values())
    assert (tmp_path / "app/0_0/.checkpoint").read_text() == "0\n1\nc 0 -4\n"


async def test_store_in_the_way_is_moved_aside(tmp_path: Path) -> None:
    first = await restore(PLAIN, LOG[:100], tmp_path)
    content = read_store(first.directory)

    second = await restore(PLAIN, LOG, tmp_path)

    assert second.replaced is not None
    assert read_store(second.replaced / "s") == content
    assert (tmp_path / "app/0_0/.checkpoint").read_text() == "0\n1\nc 0 399\n"


async def test_changelog_of_another_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFailedError, match="too short for a store of type session"):
        await restore(store_of(StreamsStoreType.SESSION), LOG, tmp_path)

    assert not (tmp_path / "app/0_0").exists()


async def test_damaged_checkpoint_of_the_task_is_refused_and_kept(tmp_path: Path) -> None:
    task = tmp_path / "app/0_0"
    task.mkdir(parents=True)
    (task / ".checkpoint").write_text("0\n3\nother 0 1\n")

    with pytest.raises(Exception, match="3 entries are announced"):
        await restore(PLAIN, LOG, tmp_path)

    assert (task / ".checkpoint").read_text() == "0\n3\nother 0 1\n"


async def test_running_application_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    running = StreamsStateDirectory.open(tmp_path, "app")

    with pytest.raises(RefusedError, match="in use"):
        await restore(PLAIN, LOG, tmp_path)

    running.close()
    assert not (tmp_path / ".tierd-restore").exists()


async def test_value_larger_than_the_memory_for_changes_is_written(tmp_path: Path) -> None:
    large = bytes(40 << 20)
    restored = await restore(PLAIN, records((b"a", large, 1), (b"b", b"x", 2)), tmp_path)

    assert read_store(restored.directory)[".:default"] == {b"a": large, b"b": b"x"}


async def test_missing_package_is_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("streams.rocks_writers", "streams.rocks_directory", "stores.rocks_database"):
        monkeypatch.delitem(sys.modules, f"tierd.restore.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "rocksdict", None)

    with pytest.raises(StoreFailedError, match="needs the package rocksdict, which is not installed") as failed:
        await restore(PLAIN, LOG, tmp_path)

    assert "requirements/rocksdb.txt" in failed.value.remedy
