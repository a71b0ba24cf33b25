import asyncio
import errno
import os
import resource
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from asyncinotify import Inotify, Mask, Watch

from tierd.errors import LogDirOfflineError
from tierd.log import CheckpointChanged, LogDirChanged, LogDirWatcher, Overflowed, PartitionChanged, WatchLimitReached
from tierd.log.broker.watcher import LogDirEvent

DEADLINE_S = 60


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "orders-0").mkdir(parents=True)
    return folder


@pytest.fixture
async def watcher(log_dir: Path) -> AsyncIterator[LogDirWatcher]:
    async with LogDirWatcher([log_dir]) as opened:
        yield opened


async def next_events(watcher: LogDirWatcher, count: int) -> list[LogDirEvent]:
    """Return the next ``count`` events; the stream is closed afterwards."""
    found: list[LogDirEvent] = []
    stream = watcher.events()
    try:
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < count:
                found.append(await anext(stream))
    finally:
        await stream.aclose()  # type: ignore[attr-defined]  # an async generator, promised only as an iterator
    return found


async def test_roll_of_a_segment_is_an_event_of_the_partition(watcher: LogDirWatcher, log_dir: Path) -> None:
    assert watcher.watch_partition(log_dir / "orders-0")
    (log_dir / "orders-0" / "00000000000000000010.log").touch()
    assert await next_events(watcher, 1) == [PartitionChanged(log_dir / "orders-0")]


async def test_changes_of_one_partition_that_wait_are_one_event(watcher: LogDirWatcher, log_dir: Path) -> None:
    watcher.watch_partition(log_dir / "orders-0")
    for base in range(300):
        (log_dir / "orders-0" / f"{base:020d}.log").touch()
    (log_dir / "orders-1").mkdir()
    assert await next_events(watcher, 2) == [PartitionChanged(log_dir / "orders-0"), LogDirChanged(log_dir)]


async def test_append_and_temporary_files_are_no_event(watcher: LogDirWatcher, log_dir: Path) -> None:
    log = log_dir / "orders-0" / "00000000000000000000.log"
    log.touch()
    watcher.watch_partition(log_dir / "orders-0")
    log.write_bytes(b"appended")
    (log_dir / "orders-0" / "leader-epoch-checkpoint.tmp").touch()
    (log_dir / "recovery-point-offset-checkpoint.tmp").touch()
    (log_dir / "orders-1").mkdir()
    assert await next_events(watcher, 1) == [LogDirChanged(log_dir)]


async def test_rename_and_deletion_of_a_segment_are_events(watcher: LogDirWatcher, log_dir: Path) -> None:
    log = log_dir / "orders-0" / "00000000000000000000.log"
    log.touch()
    watcher.watch_partition(log_dir / "orders-0")
    log.rename(log.with_suffix(".log.deleted"))
    assert await next_events(watcher, 1) == [PartitionChanged(log_dir / "orders-0")]
    log.with_suffix(".log.deleted").unlink()
    assert await next_events(watcher, 1) == [PartitionChanged(log_dir / "orders-0")]


async def test_new_high_watermark_checkpoint_is_an_event(watcher: LogDirWatcher, log_dir: Path) -> None:
    temporary = log_dir / "replication-offset-checkpoint.tmp"
    temporary.write_text("0\n0\n")
    temporary.rename(log_dir / "replication-offset-checkpoint")
    assert await next_events(watcher, 1) == [CheckpointChanged(log_dir)]


async def test_renamed_partition_is_watched_under_its_new_name(watcher: LogDirWatcher, log_dir: Path) -> None:
    old, new = log_dir / "orders-0", log_dir / "orders-0.abc-delete"
    watcher.watch_partition(old)
    old.rename(new)
    assert await next_events(watcher, 1) == [LogDirChanged(log_dir)]
    watcher.watch_partition(new)
    watcher.unwatch_partition(old)
    (new / "00000000000000000000.log").touch()
    assert await next_events(watcher, 1) == [PartitionChanged(new)]


async def test_deleted_partition_is_an_event_of_the_log_dir(watcher: LogDirWatcher, log_dir: Path) -> None:
    watcher.watch_partition(log_dir / "orders-0")
    shutil.rmtree(log_dir / "orders-0")
    assert await next_events(watcher, 1) == [LogDirChanged(log_dir)]
    watcher.unwatch_partition(log_dir / "orders-0")
    (log_dir / "orders-0").mkdir()
    assert watcher.watch_partition(log_dir / "orders-0")


async def test_partition_that_is_no_longer_watched_has_no_events(watcher: LogDirWatcher, log_dir: Path) -> None:
    watcher.watch_partition(log_dir / "orders-0")
    watcher.unwatch_partition(log_dir / "orders-0")
    watcher.unwatch_partition(log_dir / "orders-7")
    (log_dir / "orders-0" / "00000000000000000000.log").touch()
    (log_dir / "orders-1").mkdir()
    assert await next_events(watcher, 1) == [LogDirChanged(log_dir)]


async def test_missing_partition_is_not_watched(watcher: LogDirWatcher, log_dir: Path) -> None:
    assert not watcher.watch_partition(log_dir / "orders-9")


async def test_limit_of_watches_is_reported_once(
    watcher: LogDirWatcher, log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Inotify, path: Path, mask: Mask) -> Watch:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Inotify, "add_watch", full)
    assert not watcher.watch_partition(log_dir / "orders-0")
    assert not watcher.watch_partition(log_dir / "orders-1")
    (log_dir / "orders-1").mkdir()
    assert await next_events(watcher, 2) == [WatchLimitReached(log_dir / "orders-0"), LogDirChanged(log_dir)]


def queue_limit() -> int:
    return int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())


async def test_lost_events_are_reported_as_overflow(watcher: LogDirWatcher, log_dir: Path) -> None:
    watcher.watch_partition(log_dir / "orders-0")
    one, other = log_dir / "orders-0" / "a", log_dir / "orders-0" / "b"
    one.touch()
    for _ in range(queue_limit() // 4 + 1):
        one.rename(other)
        other.rename(one)
    hints: list[LogDirEvent] = []
    stream = watcher.events()
    async with asyncio.timeout(DEADLINE_S):
        while Overflowed() not in hints:
            hints.append(await anext(stream))
    assert set(hints) == {PartitionChanged(log_dir / "orders-0"), Overflowed()}
    await stream.aclose()  # type: ignore[attr-defined]  # as above


async def test_waiting_reader_receives_the_next_event(watcher: LogDirWatcher, log_dir: Path) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(next_events(watcher, 1))
        await asyncio.sleep(0)
        (log_dir / "orders-1").mkdir()
    assert waiting.result() == [LogDirChanged(log_dir)]


async def test_a_cancelled_reader_leaves_the_stream_usable(watcher: LogDirWatcher, log_dir: Path) -> None:
    waiting = asyncio.create_task(next_events(watcher, 1))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    (log_dir / "orders-1").mkdir()
    assert await next_events(watcher, 1) == [LogDirChanged(log_dir)]


async def test_a_log_dir_that_cannot_be_watched_is_offline(tmp_path: Path) -> None:
    with pytest.raises(LogDirOfflineError, match="gone"):
        async with LogDirWatcher([tmp_path / "gone"]):
            pass


async def test_no_descriptor_for_a_watch_is_an_error_that_callers_poll_after(log_dir: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        with pytest.raises(LogDirOfflineError, match="Too many open files") as raised:
            await LogDirWatcher([log_dir]).__aenter__()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "fs.inotify.max_user_instances" in raised.value.remedy


async def test_watcher_that_is_not_open_refuses_to_watch(log_dir: Path) -> None:
    watcher = LogDirWatcher([log_dir])
    with pytest.raises(RuntimeError, match="async with"):
        watcher.watch_partition(log_dir / "orders-0")
