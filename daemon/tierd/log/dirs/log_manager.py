"""LogManager: the log dirs of one owner and the logs in them (log-format 1, 6.2, 10; Kafka: LogManager).

Every call blocks. One lock guards the calls that find, create and delete logs. The calls that change a log itself
(appends, flushes, retention) belong to the writer of the log, one thread at a time. A log dir whose disk fails goes
offline: its logs refuse every call, and the logs of other log dirs go on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import Self
from uuid import UUID

import structlog

from tierd.errors import LogDirOfflineError
from tierd.log.dirs.copied_records import first_batch_from
from tierd.log.dirs.dir_checkpoints import DirCheckpoints
from tierd.log.dirs.log_dir import DirLock, LogDir, make_directories
from tierd.log.dirs.log_dir_start import DirStart, LoadProgress, RemainingLoad
from tierd.log.dirs.log_dirs import LogDirs, create_log_in, one_log_alone, remove_directories
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.files.directory import DirectoryKind, directory_name, partition_fields
from tierd.log.files.disk import Disk, OsDisk
from tierd.log.files.log_dir_lock import LogDirLock
from tierd.log.files.offline import OfflineFlag, StorageFailure
from tierd.log.log_errors import LogClosedError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.model import TopicPartition

log = structlog.get_logger()

_CLOSE_THREADS = 8  # per log dir: they wait for the disk


class LogManager:
    """Owner of its log dirs from ``start`` until ``shutdown``. The context manager starts, and always shuts down."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        settings: LogManagerSettings,
        *,
        disk: Disk | None = None,
        acquire_lock: Callable[[Path], DirLock] = LogDirLock.acquire,
        on_offline: Callable[[Path, StorageFailure], None] = lambda _dir, _cause: None,
    ) -> None:
        """Prepare; nothing is touched before ``start``.

        Args:
            log_dirs: ``start`` makes those that are missing.
            settings: the same for every log dir.
            disk: the disk of the log dirs; the operating system's by default.
            acquire_lock: keeps other processes out of a log dir, or raises ``LogDirLockedError``.
            on_offline: called once when a log dir fails, by the thread that met the failure.

        Raises:
            ValueError: no log dir, or one twice.
        """
        if not log_dirs or len({path.resolve() for path in log_dirs}) < len(log_dirs):
            raise ValueError("a manager needs log dirs, each of them once")
        self._clock = settings.clock
        self._disk = disk or OsDisk()
        self._settings = settings
        self._acquire_lock = acquire_lock
        self._progress = LoadProgress()
        self._lock = RLock()
        self._is_shut_down = False
        self._on_offline = on_offline
        self._dirs = LogDirs(
            LogDir(path, self._disk, OfflineFlag(path, on_offline=self._went_offline)) for path in log_dirs
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    # Start and stop

    def start(self) -> None:
        """Lock every log dir, and load every log in them.

        Raises:
            LogDirLockedError: another process holds a log dir; this manager then holds no log dir.
            LogDirOfflineError: no log dir can be used.
            PartitionNameError: the name of a directory in a log dir is not the name of a partition.
            LogError: two directories for one replica.
            LogError: a log that cannot be loaded although the disk does its work.
        """
        begun_s = self._clock.monotonic_s()
        try:
            for log_dir in self._dirs:
                self._lock_dir(log_dir)
            self._load_all()
            self._dirs.check()
        except BaseException:
            for log_dir in self._dirs:
                log_dir.close_handles()
            raise
        finally:
            self._progress.end()
        log.info(
            "logs_loaded",
            logs=len(self.logs()),
            unclean_log_dirs=[str(d.path) for d in self._dirs if not d.had_clean_marker and d.logs],
            duration_ms=round((self._clock.monotonic_s() - begun_s) * 1000),
        )

    def shutdown(self, *, finish_deletions: bool = False) -> None:
        """Close every log cleanly, write the checkpoints and the clean markers, unlock. A second time does nothing.

        A log dir that fails raises no error. It gets no clean marker, and the next start recovers its logs.

        Args:
            finish_deletions: unlink at once the files that otherwise wait for their time, or for the next start.
        """
        with self._lock:
            if self._is_shut_down:
                return
            self._is_shut_down = True
            if finish_deletions:
                self._finish_deletions()
            with ThreadPoolExecutor(len(self._dirs), thread_name_prefix="log-dir-close") as pool:
                close = partial(LogDir.close, threads=_CLOSE_THREADS, broker_epoch=self._settings.broker_epoch)
                list(pool.map(close, self._dirs))
        log.info("logs_closed", offline_log_dirs=[str(path) for path in self.offline_dirs])

    @property
    def remaining(self) -> RemainingLoad:
        """Return the logs and segments that this start has yet to load and recover. Safe in any thread."""
        return self._progress.remaining

    @property
    def live_dirs(self) -> tuple[Path, ...]:
        """Return the log dirs that are in use."""
        return tuple(log_dir.path for log_dir in self._dirs.live)

    @property
    def offline_dirs(self) -> tuple[Path, ...]:
        """Return the log dirs that failed."""
        return tuple(log_dir.path for log_dir in self._dirs if log_dir.offline.is_offline)

    # Logs

    def logs(self) -> tuple[UnifiedLog, ...]:
        """Return the logs of the live log dirs."""
        with self._lock:
            return self._dirs.logs

    def stray_logs(self) -> tuple[UnifiedLog, ...]:
        """Return the logs that were set aside."""
        with self._lock:
            return tuple(each for log_dir in self._dirs for each in log_dir.stray)

    def get(self, partition: TopicPartition) -> UnifiedLog | None:
        """Return the log of a partition, even one whose log dir went offline; None for an unknown partition."""
        with self._lock:
            found = self._dirs.find(partition)
            return None if found is None else found[1]

    def get_or_create(
        self,
        partition: TopicPartition,
        *,
        topic_id: UUID | None = None,
        is_new: bool = True,
        preferred_dir: Path | None = None,
    ) -> UnifiedLog:
        """Return the log of a partition; make it in ``preferred_dir``, or in the log dir with the fewest logs.

        Args:
            partition: the partition of the log.
            topic_id: the id of the topic; a log without one takes it over.
            is_new: the partition was never here; otherwise its log may be in a log dir that is offline.
            preferred_dir: one of the log dirs.

        Raises:
            LogError: the log has another topic id.
            LogDirOfflineError: no log dir can take the log, or the log may be in a log dir that is offline.
            LogClosedError: the manager was shut down.
        """
        with self._lock:
            found = self.get(partition)
            if found is None:
                found = self._create(partition, is_new=is_new, preferred_dir=preferred_dir)
            if topic_id is not None:
                found.assign_topic_id(topic_id)
            return found

    def delete(self, partition: TopicPartition) -> UnifiedLog:
        """Rename the directory of a log to its ``-delete`` form; ``remove_due_directories`` removes it after a delay.

        The caller stops the writer of the log before. The log takes no more appends through this manager.

        Raises:
            UnknownPartitionError: there is no such log.
            LogDirOfflineError: its log dir is offline; the manager forgets the log all the same.
        """
        with self._lock:
            log_dir, removed = self._dirs.take_out(partition)
            self._rename_to_delete(log_dir, removed)
            log_dir.set_cleaner_offset(partition, None)
            return removed

    def set_aside(self, partition: TopicPartition) -> Path:
        """Rename the directory of a log to its ``-stray`` form, which nothing but a person removes; return its path.

        The caller stops the writer of the log before. The log takes no more appends through this manager.

        Raises:
            UnknownPartitionError: there is no such log.
            LogDirOfflineError: its log dir is offline; the manager forgets the log all the same.
        """
        with self._lock:
            log_dir, aside = self._dirs.take_out(partition)
            self._rename(aside, DirectoryKind.STRAY)
            log_dir.stray.append(aside)
            log.warning("log_set_aside", **partition_fields(aside.directory), directory=str(aside.directory))
            self._checkpoint_without(log_dir)
            log_dir.set_cleaner_offset(partition, None)
            return aside.directory

    def begin_aside(self, partition: TopicPartition, offset: int) -> UnifiedLog | None:
        """Make a log for copies of the records of another one from ``offset`` on; None if there is no record.

        Its directory has the ``-stray`` form, which nothing but a person removes. The log begins with the batch that
        has ``offset``.

        Raises:
            UnknownPartitionError: there is no such log.
            LogDirOfflineError: its log dir is offline, or has just failed.
            OffsetOutOfRangeError: ``offset`` is not in the log.
        """
        with self._lock:
            log_dir, of = self._dirs.require(partition)
            start = first_batch_from(of, max(offset, of.log_start_offset))
            if start is None:
                return None
            aside = create_log_in(log_dir, partition, self._settings, DirectoryKind.STRAY)
            log_dir.stray.append(aside)
            aside.truncate_fully_and_start_at(start, now_ms=self._clock.now_ms())
            if of.topic_id is not None:
                aside.assign_topic_id(of.topic_id)
            return aside

    # Truncation and checkpoints

    def truncate_to(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Cut logs, then write their recovery points. The caller is the only writer of these logs meanwhile.

        The cleaner offsets are lowered first: new records at offsets that were cleaned before are dirty.

        Raises:
            LogDirOfflineError: a log dir failed.
        """
        cut = []
        try:
            for partition, offset in offsets.items():
                self._lower_cleaner_offset(partition, offset)
                found = self.get(partition)
                if found is not None and found.truncate_to(offset, now_ms=self._clock.now_ms()):
                    cut.append(found)
        finally:  # those that were cut before one failed
            self._checkpoint(DirCheckpoints.write_recovery_points, self._dirs.of_logs(cut))

    def truncate_fully_and_start_at(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        log_start_offset: int | None = None,
    ) -> None:
        """Drop every record of a log and begin again at ``offset``, then write the recovery point.

        Raises:
            LogDirOfflineError: its log dir failed.
        """
        self._lower_cleaner_offset(partition, offset)
        found = self.get(partition)
        if found is not None:
            found.truncate_fully_and_start_at(offset, now_ms=self._clock.now_ms(), log_start_offset=log_start_offset)
            self._checkpoint(DirCheckpoints.write_recovery_points, self._dirs.of_logs([found]))

    def checkpoint_recovery_points(self) -> None:
        """Write this checkpoint of every live log dir; a log dir that fails goes offline."""
        self._checkpoint(DirCheckpoints.write_recovery_points, self._dirs)

    def checkpoint_log_start_offsets(self) -> None:
        """Write this checkpoint of every live log dir; a log dir that fails goes offline."""
        self._checkpoint(DirCheckpoints.write_log_start_offsets, self._dirs)

    def checkpoint_high_watermarks(self) -> None:
        """Write this checkpoint of every live log dir; a log dir that fails goes offline."""
        self._checkpoint(DirCheckpoints.write_high_watermarks, self._dirs)

    def cleaner_offset(self, partition: TopicPartition) -> int | None:
        """Return the exclusive end of the cleaned part of a log; None when the checkpoint has no entry for the log."""
        with self._lock:
            found = self._dirs.find(partition)
            return None if found is None else found[0].cleaner_offsets.get(partition)

    def set_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        """Write the exclusive end of the cleaned part of a log to the checkpoint; a log dir that fails goes offline."""
        with self._lock:
            found = self._dirs.find(partition)
            if found is not None:
                found[0].set_cleaner_offset(partition, offset)

    # Duties

    def remove_due_directories(self) -> int:
        """Remove the ``-delete`` directories whose deletion is due; return the number of removed directories."""
        with self._lock:
            return sum(remove_directories(log_dir, due_ms=self._clock.now_ms()) for log_dir in self._dirs)

    # Internal

    def _lower_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        known = self.cleaner_offset(partition)
        if known is not None and known > offset:
            self.set_cleaner_offset(partition, offset)

    def _finish_deletions(self) -> None:
        for log_dir in self._dirs:
            remove_directories(log_dir, due_ms=None)
        for each in self.logs():
            with one_log_alone(each):
                each.unlink_deleted()

    def _lock_dir(self, log_dir: LogDir) -> None:
        """Make the log dir if it is missing, and lock it; a log dir that cannot be used is left offline."""
        with suppress(LogDirOfflineError), log_dir.offline.storage():
            make_directories(self._disk, log_dir.path)
            log_dir.lock = self._acquire_lock(log_dir.path)

    def _load_all(self) -> None:
        starts = [DirStart(log_dir, self._settings, self._progress) for log_dir in self._dirs.live]
        if starts:
            with ThreadPoolExecutor(len(starts), thread_name_prefix="log-dir-start") as pool:
                list(pool.map(DirStart.run, starts))

    def _create(self, partition: TopicPartition, *, is_new: bool, preferred_dir: Path | None) -> UnifiedLog:
        if self._is_shut_down:
            raise LogClosedError(f"{partition}: the log manager was shut down")
        if not is_new and self.offline_dirs:
            raise LogDirOfflineError(
                f"{partition}: its log may be in a log dir that is offline", remedy="repair the disk, then start again"
            )
        return self._dirs.create_log(partition, self._settings, preferred_dir=preferred_dir)

    def _rename_to_delete(self, log_dir: LogDir, removed: UnifiedLog) -> None:
        self._rename(removed, DirectoryKind.DELETE)
        log_dir.deleting.append((self._clock.now_ms() + self._settings.file_delete_delay_ms, removed))
        log.info("log_to_be_deleted", **partition_fields(removed.directory), directory=str(removed.directory))
        self._checkpoint_without(log_dir)

    def _rename(self, taken_out: UnifiedLog, kind: DirectoryKind) -> None:
        name = directory_name(taken_out.topic_partition, kind, directory_id=self._settings.new_id())
        try:
            taken_out.rename_directory(name)
        except LogDirOfflineError:
            taken_out.close_handles()
            raise

    def _checkpoint_without(self, log_dir: LogDir) -> None:
        """Write the checkpoints that no longer name a log that was taken out."""
        self._checkpoint(DirCheckpoints.write_recovery_points, [log_dir])
        self._checkpoint(DirCheckpoints.write_log_start_offsets, [log_dir])

    def _checkpoint(
        self, write: Callable[[DirCheckpoints, Iterable[UnifiedLog]], None], log_dirs: Iterable[LogDir]
    ) -> None:
        with self._lock:
            for log_dir in log_dirs:
                log_dir.checkpoint(write)

    def _went_offline(self, log_dir: Path, cause: StorageFailure) -> None:
        log.error("log_dir_offline", log_dir=str(log_dir), error=str(cause))
        self._on_offline(log_dir, cause)
