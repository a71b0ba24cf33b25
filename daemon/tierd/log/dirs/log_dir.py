"""LogDir: one log dir, the logs that it holds, and its clean stop (log-format 1.3, 1.6 and 6.2)."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from tierd.errors import LogDirOfflineError, LogError
from tierd.log.dirs.dir_checkpoints import DirCheckpoints
from tierd.log.files.clean_shutdown import write_clean_shutdown
from tierd.log.files.directory import partition_fields
from tierd.log.files.disk import Disk
from tierd.log.files.offline import OfflineFlag
from tierd.log.partition.unified_log import UnifiedLog
from tierd.model import TopicPartition

log = structlog.get_logger()


class DirLock(Protocol):
    """Lock that keeps other processes out of a log dir."""

    def release(self) -> None:
        """Release the lock; a second call does nothing."""


@dataclass(slots=True)
class LogDir:
    """One log dir; the lock of its manager guards it.

    Attributes:
        had_clean_marker: True if the last stop was clean; the start has removed the marker itself.
        is_loaded: True once every log of the log dir was loaded.
        current: the current logs; a partition has at most one in all log dirs of a manager.
        untouched: partitions of ``-future`` directories. A broker that moves a replica makes and ends them. They stay
            as they are, and so do their entries in the checkpoints.
        stray: logs that were set aside; they are open and stay as they are.
        deleting: (due time, log) of the logs in ``-delete`` directories.
        cleaner_offsets: the entries of ``cleaner-offset-checkpoint``; ``set_cleaner_offset`` changes them.
    """

    path: Path
    disk: Disk
    offline: OfflineFlag
    lock: DirLock | None = None
    had_clean_marker: bool = False
    is_loaded: bool = False
    current: dict[TopicPartition, UnifiedLog] = field(default_factory=dict)
    untouched: set[TopicPartition] = field(default_factory=set)
    stray: list[UnifiedLog] = field(default_factory=list)
    deleting: list[tuple[int, UnifiedLog]] = field(default_factory=list)
    cleaner_offsets: dict[TopicPartition, int] = field(default_factory=dict)

    @property
    def is_online(self) -> bool:
        """Return True if the manager holds the log dir's lock and no disk call on the log dir has failed."""
        return self.lock is not None and not self.offline.is_offline

    @property
    def checkpoints(self) -> DirCheckpoints:
        """Return the checkpoints of the log dir."""
        return DirCheckpoints(self.disk, self.path, untouched=self.untouched)

    @property
    def logs(self) -> tuple[UnifiedLog, ...]:
        """Return the current logs."""
        return tuple(self.current.values())

    def checkpoint(self, write: Callable[[DirCheckpoints, Iterable[UnifiedLog]], None]) -> bool:
        """Write one of the checkpoints; return False where that failed. A failure takes this log dir alone offline."""
        if not self.is_online:
            return False
        try:
            with self.offline.storage():
                write(self.checkpoints, self.logs)
        except LogDirOfflineError as error:
            log.warning("checkpoint_failed", log_dir=str(self.path), error=str(error))
            return False
        return True

    def set_cleaner_offset(self, partition: TopicPartition, offset: int | None) -> None:
        """Write the exclusive end of the cleaned part of a log to the checkpoint; None removes the entry.

        The entries of logs that are gone are removed, too.

        A failure takes this log dir offline.
        """
        wanted = {**self.cleaner_offsets, partition: offset}
        kept = {of: at for of, at in wanted.items() if at is not None and of in self.current}
        if kept != self.cleaner_offsets:
            self.checkpoint(lambda checkpoints, _: checkpoints.write_cleaner_offsets(kept))
            self.cleaner_offsets = kept

    def close(self, *, threads: int, broker_epoch: int) -> None:
        """Flush and close every log, write the checkpoints and then the clean marker, and release the lock.

        No marker is written when a log could not be closed, or when the last stop was not clean either and a log was
        not loaded. The next start then recovers the logs.
        """
        try:
            if self.is_online and self._close_logs(threads) and self._write_checkpoints():
                self._write_marker(broker_epoch)
        finally:
            self.close_handles()

    def close_handles(self) -> None:
        """Close every file and release the lock; nothing is written."""
        for each in (*self.logs, *self.stray, *(deleting for _, deleting in self.deleting)):
            try:
                each.close_handles()
            except (LogError, OSError) as error:
                log.warning("log_not_closed", **partition_fields(each.directory), error=str(error))
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def _close_logs(self, threads: int) -> bool:
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="log-close") as pool:
            return all(list(pool.map(self._close_log, self.logs)))

    def _close_log(self, each: UnifiedLog) -> bool:
        try:
            each.close()
        except (LogError, OSError) as error:
            log.warning("log_not_closed", **partition_fields(each.directory), error=str(error))
            return False
        return True

    def _write_checkpoints(self) -> bool:
        return (
            self.checkpoint(DirCheckpoints.write_recovery_points)
            and self.checkpoint(DirCheckpoints.write_log_start_offsets)
            and self.checkpoint(DirCheckpoints.write_high_watermarks)
        )

    def _write_marker(self, broker_epoch: int) -> None:
        if not self.had_clean_marker and (self.untouched or not self.is_loaded):
            log.warning("clean_marker_left_out", log_dir=str(self.path), reason="not every log was loaded")
            return
        try:
            with self.offline.storage():
                write_clean_shutdown(self.disk, self.path, broker_epoch=broker_epoch)
        except LogDirOfflineError as error:
            log.warning("clean_marker_not_written", log_dir=str(self.path), error=str(error))


def make_directories(disk: Disk, path: Path) -> None:
    """Make a directory and its missing parents, durably."""
    if disk.status(path) is None:
        make_directories(disk, path.parent)
        disk.make_directory(path)
        disk.sync_directory(path.parent)
