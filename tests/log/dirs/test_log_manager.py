import errno
import multiprocessing
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from tests.coded import coded
from tests.fakes.clock import FakeClock
from tests.fakes.failing_disk import FailingDisk
from tests.log.batches import TOPIC_ID
from tests.log.logs import NOW_MS, clean_up, housekeep, lead, read_all, records
from tierd.errors import (
    LogDirLockedError,
    LogDirOfflineError,
    LogError,
    PartitionNameError,
    TierErrorCode,
    UnknownPartitionError,
)
from tierd.log import read_offset_checkpoint
from tierd.log.dirs.log_dir_start import RemainingLoad
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings, is_stray, lacks_topic_id
from tierd.log.files.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_topic_id,
    write_offset_checkpoint,
)
from tierd.log.files.clean_shutdown import CLEAN_SHUTDOWN_FILE
from tierd.log.files.directory import DirectoryKind, directory_name
from tierd.log.files.disk import Disk, OsDisk
from tierd.log.files.log_dir_lock import LOCK_FILE, LogDirLock, require_unlocked
from tierd.log.files.offline import StorageFailure
from tierd.log.log_errors import CheckpointError, LogClosedError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition

ORDERS = TopicPartition("orders", 0)
ID = "0123456789abcdef0123456789abcdef"
SMALL = LogConfig(segment_bytes=5 * len(records()), segment_index_bytes=1000)


def managed(
    *log_dirs: Path,
    config: LogConfig = SMALL,
    disk: Disk | None = None,
    clock: FakeClock | None = None,
    is_stray: Callable[[UnifiedLog], bool] = lambda _: False,
    on_offline: Callable[[Path, StorageFailure], None] = lambda _dir, _cause: None,
    threads: int = 1,
    config_for: Callable[[str], LogConfig] | None = None,
) -> LogManager:
    return LogManager(
        log_dirs,
        LogManagerSettings(
            config_for=config_for or (lambda _: config),
            clock=clock or FakeClock(now_ms=NOW_MS),
            is_stray=is_stray,
            recovery_threads_per_dir=threads,
        ),
        disk=disk,
        on_offline=on_offline,
    )


def die(manager: LogManager) -> None:
    """End the process: no file is written any more, and the locks are free."""
    for log_dir in manager._dirs:
        log_dir.close_handles()


def fill(log: UnifiedLog, count: int) -> None:
    for _ in range(count):
        lead(log, records())


def filled(log_dir: Path, *partitions: TopicPartition, count: int = 12) -> None:
    """Make a log dir after a clean stop."""
    with managed(log_dir) as manager:
        for partition in partitions or (ORDERS,):
            fill(manager.get_or_create(partition, topic_id=TOPIC_ID), count)


def get(manager: LogManager, partition: TopicPartition = ORDERS) -> UnifiedLog:
    log = manager.get(partition)
    assert log is not None
    return log


# Start and stop


@pytest.mark.spec("log-format LOAD-01")
def test_start_after_a_clean_stop_skips_recovery_and_deletes_the_marker(tmp_path: Path) -> None:
    filled(tmp_path)
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    with capture_logs() as events:
        manager = managed(tmp_path)
        manager.start()
    assert "recovery_skipped" in [e["event"] for e in events]
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
    die(manager)
    with capture_logs() as events:
        manager = managed(tmp_path)
        manager.start()
    assert "recovering_logs" in [e["event"] for e in events]
    assert get(manager).log_end_offset == 12
    manager.shutdown()


@pytest.mark.spec("log-format LOAD-01")
@pytest.mark.parametrize("error", [RuntimeError("a bug"), LogDirOfflineError("of no disk")])
def test_error_that_is_no_disk_failure_ends_the_start(tmp_path: Path, error: Exception) -> None:
    filled(tmp_path)

    def fail(_: UnifiedLog) -> bool:
        raise error

    with pytest.raises(type(error), match=str(error)):
        managed(tmp_path, is_stray=fail).start()
    LogDirLock.acquire(tmp_path).release()  # no lock is left


@pytest.mark.spec("log-format LOAD-01")
def test_a_failing_disk_takes_its_log_dir_offline_and_the_others_load(tmp_path: Path) -> None:
    filled(tmp_path / "a", ORDERS, TopicPartition("orders", 2))
    filled(tmp_path / "b", TopicPartition("orders", 1))
    disk = FailingDisk()
    disk.fails = lambda _, path: path.parent == tmp_path / "a" / "orders-0"
    found: list[tuple[Path, StorageFailure]] = []
    manager = managed(tmp_path / "a", tmp_path / "b", disk=disk, on_offline=lambda *args: found.append(args))
    manager.start()
    assert manager.offline_dirs == (tmp_path / "a",)
    assert manager.live_dirs == (tmp_path / "b",)
    assert [(path, isinstance(cause, OSError) and cause.errno) for path, cause in found] == [
        (tmp_path / "a", errno.EIO)
    ]
    assert [log.topic_partition.partition for log in manager.logs()] == [1]
    manager.shutdown()
    assert not (tmp_path / "a" / CLEAN_SHUTDOWN_FILE).exists()
    assert (tmp_path / "b" / CLEAN_SHUTDOWN_FILE).exists()
    with managed(tmp_path / "a", tmp_path / "b") as manager:
        assert len(manager.logs()) == 3


@pytest.mark.spec("log-format LOAD-27")
def test_remaining_load_counts_down_and_ends_empty(tmp_path: Path) -> None:
    partitions = [TopicPartition("orders", number) for number in range(6)]
    filled(tmp_path, *partitions)
    (tmp_path / CLEAN_SHUTDOWN_FILE).unlink()
    (tmp_path / RECOVERY_POINT_CHECKPOINT).unlink()
    seen: list[RemainingLoad] = []

    def look(_: UnifiedLog) -> bool:
        seen.append(manager.remaining)
        return False

    manager = managed(tmp_path, is_stray=look, threads=3)
    assert manager.remaining == RemainingLoad({}, {})
    manager.start()
    assert {*(each.logs[tmp_path] for each in seen)} <= {1, 2, 3, 4, 5, 6}
    assert [each.logs[tmp_path] for each in seen] == sorted((each.logs[tmp_path] for each in seen), reverse=True)
    threads = {thread for each in seen for _, thread in each.segments}
    assert 1 <= len(threads) <= 3
    assert 0 in {count for each in seen for count in each.segments.values()}
    assert manager.remaining == RemainingLoad({}, {})
    manager.shutdown()


@pytest.mark.spec("log-format DIR-13")
@pytest.mark.parametrize("name", ["non_kafka_dir", "lost+found", "orders-0.x-delete-me"])
def test_unknown_directory_in_a_log_dir_ends_the_start(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    (tmp_path / name).mkdir()
    with pytest.raises(PartitionNameError):
        managed(tmp_path).start()
    (tmp_path / name).rmdir()
    (tmp_path / name).touch()  # a file is ignored
    with managed(tmp_path) as manager:
        assert len(manager.logs()) == 1


@pytest.mark.spec("log-format DIR-14")
def test_start_skips_directories_of_kafka_itself(tmp_path: Path) -> None:
    filled(tmp_path)
    for name in ("remote-log-index-cache", "__cluster_metadata-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "anything").write_text("not ours")
    with managed(tmp_path) as manager:
        assert len(manager.logs()) == 1
    assert (tmp_path / "__cluster_metadata-0" / "anything").read_text() == "not ours"


@pytest.mark.spec("log-format DIR-17")
def test_second_manager_of_a_log_dir_is_refused_until_the_first_shuts_down(tmp_path: Path) -> None:
    first = managed(tmp_path)
    first.start()
    with pytest.raises(LogDirLockedError):
        managed(tmp_path).start()
    assert (tmp_path / LOCK_FILE).exists()
    first.shutdown()
    assert not (tmp_path / LOCK_FILE).exists()
    with managed(tmp_path):
        pass


@pytest.mark.spec("log-format DIR-20")
@pytest.mark.parametrize("spelling", ["{0}/", "{0}/../{1}", "./{1}"])
def test_checkpoints_are_found_however_the_log_dir_is_spelled(
    tmp_path: Path, spelling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log_dir = tmp_path / "logs"
    with managed(log_dir) as manager:
        fill(manager.get_or_create(ORDERS), 12)
        get(manager).flush(up_to=7)
        manager.checkpoint_recovery_points()
        before = read_offset_checkpoint(log_dir / RECOVERY_POINT_CHECKPOINT)
        assert before == {ORDERS: 7}
    with managed(Path(spelling.format(log_dir, "logs"))) as manager:
        assert get(manager).recovery_point == 12


@pytest.mark.spec("log-format DIR-25")
@pytest.mark.parametrize("had_marker", [True, False])
def test_shutdown_before_loading_ended_keeps_a_marker_that_was_there(tmp_path: Path, had_marker: bool) -> None:
    filled(tmp_path)
    if not had_marker:
        (tmp_path / CLEAN_SHUTDOWN_FILE).unlink()
    manager = managed(tmp_path)
    manager.start()
    for log_dir in manager._dirs:
        log_dir.is_loaded = False  # as if the shutdown came in between
    manager.shutdown()
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists() == had_marker


@pytest.mark.spec("log-format DIR-26")
def test_log_that_cannot_be_closed_leaves_its_log_dir_without_a_clean_marker(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = managed(tmp_path / "a", tmp_path / "b", disk=disk)
    manager.start()
    fill(manager.get_or_create(ORDERS, preferred_dir=tmp_path / "a"), 3)
    fill(manager.get_or_create(TopicPartition("orders", 1), preferred_dir=tmp_path / "b"), 3)
    disk.fails = lambda operation, path: operation == "sync" and path.parent.name == "orders-0"
    manager.shutdown()
    manager.shutdown()
    assert not (tmp_path / "a" / CLEAN_SHUTDOWN_FILE).exists()
    assert (tmp_path / "b" / CLEAN_SHUTDOWN_FILE).exists()
    with managed(tmp_path / "a", tmp_path / "b") as manager:
        assert [log.log_end_offset for log in manager.logs()] == [3, 3]


@pytest.mark.parametrize("name", [RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT])
def test_an_unreadable_checkpoint_counts_as_empty(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    (tmp_path / name).write_text("garbage")
    with capture_logs() as events, managed(tmp_path) as manager:
        assert get(manager).log_end_offset == 12
    assert "checkpoint_unreadable" in [e["event"] for e in events]


@pytest.mark.spec("log-format DIR-22")
@pytest.mark.parametrize("content", ["1\n0\n", "0\n2\norders 0 5\n"])
def test_an_unreadable_high_watermark_takes_the_log_dir_offline(tmp_path: Path, content: str) -> None:
    filled(tmp_path / "a")
    filled(tmp_path / "b", TopicPartition("orders", 1))
    (tmp_path / "a" / REPLICATION_OFFSET_CHECKPOINT).write_text(content)
    causes: list[StorageFailure] = []
    with managed(tmp_path / "a", tmp_path / "b", on_offline=lambda _, cause: causes.append(cause)) as manager:
        assert manager.offline_dirs == (tmp_path / "a",)
    assert [type(cause) for cause in causes] == [CheckpointError]


def test_a_manager_without_any_usable_log_dir_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a file")
    with pytest.raises(LogDirOfflineError):
        managed(tmp_path / "a").start()


@pytest.mark.parametrize("log_dirs", [[], ["a", "a"], ["a", "b/../a"]])
def test_manager_refuses_no_log_dir_or_one_named_twice(tmp_path: Path, log_dirs: list[str]) -> None:
    with pytest.raises(ValueError, match="each of them once"):
        managed(*(tmp_path / name for name in log_dirs))


def test_restored_high_watermark_is_clipped_to_the_bounds_of_the_log(tmp_path: Path) -> None:
    filled(tmp_path)
    for written, expected in ((7, 7), (99, 12), (0, 0)):
        (tmp_path / REPLICATION_OFFSET_CHECKPOINT).write_text(f"0\n1\norders 0 {written}\n")
        with managed(tmp_path) as manager:
            assert get(manager).high_watermark == expected
        assert read_offset_checkpoint(tmp_path / REPLICATION_OFFSET_CHECKPOINT) == {ORDERS: expected}


# Stray, future and double directories


@pytest.mark.spec("log-format DIR-15")
def test_stray_log_is_renamed_and_kept(tmp_path: Path) -> None:
    filled(tmp_path, ORDERS, TopicPartition("orders", 1))
    with managed(tmp_path, is_stray=lambda log: log.topic_partition == ORDERS) as manager:
        assert manager.get(ORDERS) is None
        assert [log.topic_partition.partition for log in manager.logs()] == [1]
        (stray,) = manager.stray_logs()
        assert re.fullmatch(r"orders-0\.[0-9a-f]{32}-stray", stray.directory.name)
        assert len(read_all(stray)) == 12
        fill(manager.get_or_create(ORDERS), 1)
    assert ORDERS in read_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT)
    with managed(tmp_path) as manager:  # the log stays stray under its new name
        assert [log.directory for log in manager.stray_logs()] == [stray.directory]
        assert get(manager).log_end_offset == 1


@pytest.mark.spec("log-format DIR-16")
def test_log_is_stray_when_the_cluster_assigns_it_to_other_brokers(tmp_path: Path) -> None:
    with managed(tmp_path) as manager:
        log = manager.get_or_create(ORDERS)
        assert lacks_topic_id(log)
        assert is_stray(log, node_id=1, replicas=lambda _id, _partition: [1])
        log.assign_topic_id(TOPIC_ID)
        assert not lacks_topic_id(log)
        for nodes, expected in (([1, 2, 3], False), ([2, 3], True), ([], True)):
            assert is_stray(log, node_id=1, replicas=partial(_replicas_of, {(TOPIC_ID, 0): nodes})) == expected
        recreated = {(UUID(int=99), 0): [1]}
        assert is_stray(log, node_id=1, replicas=partial(_replicas_of, recreated))


def _replicas_of(known: dict[tuple[UUID, int], list[int]], topic_id: UUID, partition: int) -> list[int] | None:
    return known.get((topic_id, partition))


def test_two_directories_of_one_replica_end_the_start(tmp_path: Path) -> None:
    filled(tmp_path / "a")
    filled(tmp_path / "b")
    with pytest.raises(LogError, check=coded(TierErrorCode.DUPLICATE_LOG)) as caught:
        managed(tmp_path / "a", tmp_path / "b").start()
    assert str(tmp_path / "a" / "orders-0") in str(caught.value)
    assert str(tmp_path / "b" / "orders-0") in str(caught.value)


def future_directory(log_dir: Path, number: int = 1) -> Path:
    """Make a directory of a replica that a broker was moving to ``log_dir``, with records."""
    filled(log_dir / "elsewhere")
    directory = log_dir / directory_name(ORDERS, DirectoryKind.FUTURE, directory_id=f"{number:032x}")
    (log_dir / "elsewhere" / "orders-0").rename(directory)
    shutil.rmtree(log_dir / "elsewhere")
    return directory


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_future_directories_are_logged_and_left_as_they_are(tmp_path: Path) -> None:
    directories = [future_directory(tmp_path, number) for number in (1, 2)]
    before = [content(directory) for directory in directories]
    for config in (LogConfig(), LogConfig(retention_ms=0, cleanup_policy=frozenset({"compact", "delete"}))):
        with capture_logs() as lines, managed(tmp_path, config=config) as manager:
            assert manager.logs() == ()
            clean_up(manager, now_ms=NOW_MS)
            housekeep(manager, now_ms=NOW_MS)
        noted = [line["directory"] for line in lines if line["event"] == "future_log_left_alone"]
        assert sorted(noted) == [str(directory) for directory in directories]
        assert [content(directory) for directory in directories] == before


def test_checkpoints_keep_the_entry_of_a_future_directory(tmp_path: Path) -> None:
    future_directory(tmp_path)
    for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
        write_offset_checkpoint(OsDisk(), tmp_path / name, {ORDERS: 2})
    other = TopicPartition("other", 0)
    with managed(tmp_path) as manager:
        fill(manager.get_or_create(other), 3)
        get(manager, other).flush()
        manager.checkpoint_recovery_points()
        assert read_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT) == {ORDERS: 2, other: 3}
    assert read_offset_checkpoint(tmp_path / LOG_START_OFFSET_CHECKPOINT) == {ORDERS: 2}


def test_unclean_log_dir_with_a_future_directory_gets_no_clean_marker(tmp_path: Path) -> None:
    future_directory(tmp_path)
    with managed(tmp_path):
        pass
    assert not (tmp_path / CLEAN_SHUTDOWN_FILE).exists()  # the broker that goes on with the move recovers its log
    (tmp_path / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":1}')
    with managed(tmp_path):
        pass
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()


# Finding and creating


@pytest.mark.spec("log-format DIR-18")
def test_new_log_is_created_in_the_log_dir_with_the_fewest_partitions(tmp_path: Path) -> None:
    with managed(tmp_path / "a", tmp_path / "b", tmp_path / "c") as manager:
        for number in range(9):
            manager.get_or_create(TopicPartition("orders", number))
            counts = [len([*(tmp_path / name).glob("orders-*")]) for name in "abc"]
            assert max(counts) - min(counts) <= 1


@pytest.mark.spec("log-format DIR-19")
def test_new_log_is_created_in_the_next_log_dir_when_the_first_fails(tmp_path: Path) -> None:
    disk = FailingDisk()
    manager = managed(tmp_path / "a", tmp_path / "b", disk=disk)
    manager.start()
    disk.fails = lambda _, path: tmp_path / "a" in path.parents
    assert manager.get_or_create(ORDERS).directory.parent == tmp_path / "b"
    assert manager.offline_dirs == (tmp_path / "a",)
    disk.fails = lambda _operation, _path: True
    with pytest.raises(LogDirOfflineError):
        manager.get_or_create(TopicPartition("orders", 1))
    manager.shutdown()


def test_log_that_may_be_in_an_offline_log_dir_is_not_created_anew(tmp_path: Path) -> None:
    disk = FailingDisk()
    with managed(tmp_path / "a", tmp_path / "b", disk=disk) as manager:
        disk.fails = lambda _, path: tmp_path / "a" in path.parents
        manager.get_or_create(ORDERS)
        with pytest.raises(LogDirOfflineError):
            manager.get_or_create(TopicPartition("orders", 1), is_new=False)


@pytest.mark.spec("log-format DIR-30")
def test_log_opened_with_another_topic_id_is_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    with managed(tmp_path) as manager:
        assert manager.get_or_create(ORDERS, topic_id=TOPIC_ID) is manager.get_or_create(ORDERS)
        with pytest.raises(LogError, check=coded(TierErrorCode.INCONSISTENT_TOPIC_ID)):
            manager.get_or_create(ORDERS, topic_id=UUID(int=99))


@pytest.mark.spec("log-format DIR-27")
@pytest.mark.spec("log-format DIR-28")
@pytest.mark.parametrize("appends", [True, False])
def test_a_topic_id_is_on_disk_after_the_first_append_or_the_stop(tmp_path: Path, appends: bool) -> None:
    with managed(tmp_path) as manager:
        log = manager.get_or_create(ORDERS, topic_id=TOPIC_ID)
        assert not (log.directory / "partition.metadata").exists()
        if appends:
            fill(log, 1)
            assert read_topic_id(log.directory) == TOPIC_ID
    with managed(tmp_path) as manager:
        assert get(manager).topic_id == TOPIC_ID


def test_manager_after_shutdown_refuses_to_create_a_log(tmp_path: Path) -> None:
    manager = managed(tmp_path)
    manager.start()
    manager.shutdown()
    with pytest.raises(LogClosedError):
        manager.get_or_create(ORDERS)


# Deleting and moving


@pytest.mark.spec("log-format DIR-09")
@pytest.mark.parametrize("kind", [DirectoryKind.DELETE, DirectoryKind.STRAY, DirectoryKind.FUTURE])
def test_name_with_a_suffix_contains_a_directory_id(kind: DirectoryKind) -> None:
    name = directory_name(TopicPartition("foo", 3), kind, directory_id=ID)
    assert re.fullmatch(rf"foo-3\.[a-z0-9]{{32}}{kind.value}", name)
    assert len(name) <= 255


@pytest.mark.spec("log-format DIR-10")
def test_long_topic_is_cut_in_a_deleted_name_and_not_in_a_future_name() -> None:
    partition = TopicPartition("t" * 249, 5)
    name = directory_name(partition, DirectoryKind.DELETE, directory_id=ID)
    assert len(name) == 255
    assert name == "t" * 213 + f"-5.{ID}-delete"
    assert len(directory_name(partition, DirectoryKind.FUTURE, directory_id=ID)) == 249 + 2 + 33 + 7


@pytest.mark.spec("log-format DIR-11")
def test_an_over_long_topic_is_created_and_deleted(tmp_path: Path) -> None:
    partition = TopicPartition("t" * 253, 0)
    with managed(tmp_path) as manager:
        fill(manager.get_or_create(partition), 3)
        deleted = manager.delete(partition)
        assert len(deleted.directory.name) == 255
        assert deleted.directory.is_dir()


def test_deleted_log_is_removed_after_its_delay(tmp_path: Path) -> None:
    clock = FakeClock(now_ms=NOW_MS)
    with managed(tmp_path, clock=clock) as manager:
        fill(manager.get_or_create(ORDERS), 12)
        deleted = manager.delete(ORDERS)
        assert manager.get(ORDERS) is None
        assert read_offset_checkpoint(tmp_path / RECOVERY_POINT_CHECKPOINT) == {}
        clock.advance(59.9)
        assert manager.remove_due_directories() == 0
        assert len(read_all(deleted)) == 12  # readers may go on
        fill(manager.get_or_create(ORDERS), 1)  # and the topic may be created again
        clock.advance(0.1)
        assert manager.remove_due_directories() == 1
        assert not deleted.directory.exists()
        with pytest.raises(UnknownPartitionError):
            manager.delete(TopicPartition("orders", 1))
    assert [path.name for path in tmp_path.glob("orders-*")] == ["orders-0"]


def test_deletion_of_a_log_continues_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock(now_ms=NOW_MS)
    with managed(tmp_path, clock=clock) as manager:
        fill(manager.get_or_create(ORDERS), 12)
        manager.delete(ORDERS)
    with managed(tmp_path, clock=clock) as manager:
        assert manager.logs() == ()
        assert [path.name for path in tmp_path.glob("orders-*-delete")]
        clock.advance(60)
        manager.remove_due_directories()
    assert not [*tmp_path.glob("orders-*")]


def test_shutdown_that_finishes_deletions_removes_waiting_files_and_directories(tmp_path: Path) -> None:
    manager = managed(tmp_path)
    manager.start()
    manager.get_or_create(TopicPartition("orders", 1))
    manager.delete(TopicPartition("orders", 1))
    log = manager.get_or_create(ORDERS)
    fill(log, 12)
    log.update_high_watermark(12)
    log.increment_log_start_offset(10, reason="client delete records request")
    assert manager.get(ORDERS) is log
    assert log.delete_old_segments(NOW_MS) == 2
    assert [*log.directory.glob("*.deleted")]
    manager.shutdown(finish_deletions=True)
    assert [path.name for path in tmp_path.glob("orders-*")] == ["orders-0"]
    assert not [*log.directory.glob("*.deleted")]


# Truncation, checkpoints, duties


@pytest.mark.spec("log-format DIR-33")
def test_a_truncation_rewrites_the_recovery_points_of_its_log_dir_alone(tmp_path: Path) -> None:
    with managed(tmp_path / "a", tmp_path / "b") as manager:
        for name, partition in (("a", ORDERS), ("b", TopicPartition("orders", 1))):
            log = manager.get_or_create(partition, preferred_dir=tmp_path / name)
            fill(log, 12)
            log.flush()
        manager.truncate_to({ORDERS: 5, TopicPartition("missing", 0): 3})
        assert read_offset_checkpoint(tmp_path / "a" / RECOVERY_POINT_CHECKPOINT) == {ORDERS: 5}
        assert not (tmp_path / "b" / RECOVERY_POINT_CHECKPOINT).exists()
        manager.truncate_fully_and_start_at(TopicPartition("orders", 1), 100, log_start_offset=50)
        assert read_offset_checkpoint(tmp_path / "b" / RECOVERY_POINT_CHECKPOINT) == {TopicPartition("orders", 1): 12}


def test_truncations_before_a_failed_one_are_checkpointed(tmp_path: Path) -> None:
    with managed(tmp_path / "a", tmp_path / "b") as manager:
        for name, partition in (("a", ORDERS), ("b", TopicPartition("orders", 1))):
            log = manager.get_or_create(partition, preferred_dir=tmp_path / name)
            fill(log, 12)
            log.flush()
        log.close_handles()
        with pytest.raises(LogDirOfflineError):
            manager.truncate_to({ORDERS: 5, TopicPartition("orders", 1): 5})
        assert read_offset_checkpoint(tmp_path / "a" / RECOVERY_POINT_CHECKPOINT) == {ORDERS: 5}


@pytest.mark.spec("log-format DIR-34")
@pytest.mark.parametrize(("tiered", "log_start", "is_listed"), [(False, 0, False), (False, 3, True), (True, 0, True)])
def test_log_start_is_checkpointed_when_tiered_or_above_the_first_segment(
    tmp_path: Path, tiered: bool, log_start: int, is_listed: bool
) -> None:
    config = LogConfig(remote_storage_enable=tiered)
    with managed(tmp_path, config=config) as manager:
        log = manager.get_or_create(ORDERS)
        fill(log, 5)
        log.update_high_watermark(5)
        log.increment_log_start_offset(log_start, reason="client delete records request")
        manager.checkpoint_log_start_offsets()
        expected = {ORDERS: log_start} if is_listed else {}
        assert read_offset_checkpoint(tmp_path / LOG_START_OFFSET_CHECKPOINT) == expected
    with managed(tmp_path, config=config) as manager:
        assert get(manager).log_start_offset == log_start


@pytest.mark.parametrize(
    "name", [RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT]
)
def test_a_checkpoint_that_cannot_be_written_takes_its_log_dir_offline_alone(tmp_path: Path, name: str) -> None:
    disk = FailingDisk()
    with managed(tmp_path / "a", tmp_path / "b", disk=disk) as manager:
        manager.get_or_create(ORDERS, preferred_dir=tmp_path / "a")
        log = manager.get_or_create(TopicPartition("orders", 1), preferred_dir=tmp_path / "b")
        disk.fails = lambda operation, path: operation == "sync" and path.parent == tmp_path / "a"
        manager.checkpoint_recovery_points()
        manager.checkpoint_log_start_offsets()
        manager.checkpoint_high_watermarks()
        assert manager.offline_dirs == (tmp_path / "a",)
        assert (tmp_path / "b" / name).exists()
        with pytest.raises(LogDirOfflineError):
            fill(get(manager), 1)
        fill(log, 1)


# The lock


def _hold(log_dir: Path, held: object, release: object) -> None:
    lock = LogDirLock.acquire(log_dir)
    held.set()  # type: ignore[attr-defined]  # an Event of multiprocessing, whose class is not public
    release.wait()  # type: ignore[attr-defined]
    lock.release()


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[Callable[[], None]]:
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, held, release))
    process.start()

    def end() -> None:
        release.set()
        process.join(30)

    assert held.wait(30)
    yield end
    end()


@pytest.mark.spec("log-format DIR-17")
def test_lock_of_another_process_is_respected_until_it_ends(tmp_path: Path, other_process: Callable[[], None]) -> None:
    acquire = partial(LogDirLock.acquire, tmp_path)
    with pytest.raises(LogDirLockedError):
        acquire()
    assert (tmp_path / LOCK_FILE).exists()
    other_process()
    acquire().release()
    assert not (tmp_path / LOCK_FILE).exists()


def test_lock_file_of_a_dead_process_does_not_refuse_a_new_lock(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).touch()
    lock = LogDirLock.acquire(tmp_path)
    with pytest.raises(LogDirLockedError):
        LogDirLock.acquire(tmp_path / ".." / tmp_path.name)
    lock.release()
    lock.release()


def test_log_dir_is_locked_once_under_each_of_its_names(tmp_path: Path) -> None:
    log_dir, other = tmp_path / "data", tmp_path / "other"
    log_dir.mkdir()
    other.mkdir()
    lock = LogDirLock.acquire(log_dir)
    (other / LOCK_FILE).hardlink_to(log_dir / LOCK_FILE)  # as a bind mount would: another name of the same file
    with pytest.raises(LogDirLockedError):
        LogDirLock.acquire(other)
    with pytest.raises(LogDirLockedError):
        require_unlocked(other)
    assert is_locked_for_others(log_dir)
    lock.release()


def is_locked_for_others(log_dir: Path) -> bool:
    probe = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    command = [sys.executable, "-c", probe, str(log_dir / LOCK_FILE)]
    return subprocess.run(command, check=False, capture_output=True).returncode != 0
