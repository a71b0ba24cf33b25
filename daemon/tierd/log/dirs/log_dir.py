"""LogDir: one log dir, the logs that it holds, and how it is left behind (log-format 1.3, 1.6 and 6.2)."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import structlog

from tierd.errors import LogDirOfflineError, LogError
from tierd.log.dirs.dir_checkpoints import DirCheckpoints
from tierd.log.files.clean_shutdown import write_clean_shutdown
from tierd.log.files.disk import Disk
from tierd.log.files.offline import OfflineFlag
from tierd.log.partition.unified_log import UnifiedLog
from tierd.model import TopicPartition

log = structlog.get_logger()


class DirLock(Protocol):
    """What keeps everybody else out of a log dir."""

    def release(self) -> None:
        """Let others in; a second time does nothing."""


@dataclass(slots=True)
class LogDir:
    """One log dir of a manager, which guards it with its lock.

    Attributes:
        had_clean_marker: whether the last stop was clean; the marker itself is gone since the start.
        is_loaded: whether every log of it finished loading.
        current: by partition; at most one of them in all log dirs of a manager.
        future: the targets of moves between log dirs.
        stray: set aside, opened and kept; nothing else is done to them.
        deleting: (when it is due, log), in ``-delete`` directories.
    """

    path: Path
    disk: Disk
    offline: OfflineFlag
    lock: DirLock | None = None
    had_clean_marker: bool = False
    is_loaded: bool = False
    current: dict[TopicPartition, UnifiedLog] = field(default_factory=dict)
    future: dict[TopicPartition, UnifiedLog] = field(default_factory=dict)
    stray: list[UnifiedLog] = field(default_factory=list)
    deleting: list[tuple[int, UnifiedLog]] = field(default_factory=list)

    @property
    def is_online(self) -> bool:
        """Whether it is owned and nothing has failed on it."""
        return self.lock is not None and not self.offline.is_offline

    @property
    def checkpoints(self) -> DirCheckpoints:
        """Its checkpoints."""
        return DirCheckpoints(self.disk, self.path)

    @property
    def logs(self) -> tuple[UnifiedLog, ...]:
        """The current and the future logs."""
        return (*self.current.values(), *self.future.values())

    def of_kind(self, *, is_future: bool) -> dict[TopicPartition, UnifiedLog]:
        """The current logs, or the future ones."""
        return self.future if is_future else self.current

    def checkpoint(self, write: Callable[[DirCheckpoints, Iterable[UnifiedLog]], None]) -> bool:
        """Write one of the checkpoints; return whether that was done. A failure takes this log dir offline, no other.

        A partition that is current and future in the same log dir counts with its current log.
        """
        if not self.is_online:
            return False
        try:
            with self.offline.storage():
                write(self.checkpoints, (*self.future.values(), *self.current.values()))
        except LogDirOfflineError as error:
            log.warning("checkpoint_failed", log_dir=str(self.path), error=str(error))
            return False
        return True

    def close(self, *, threads: int, broker_epoch: int) -> None:
        """Flush and close every log, write the checkpoints and then the clean marker; give the lock back.

        The marker is left out when a log could not be closed, or when not every log was loaded and the last stop had
        not been clean either: the next start recovers.
        """
        try:
            if self.is_online and self._close_logs(threads) and self._write_checkpoints():
                self._write_marker(broker_epoch)
        finally:
            self.close_handles()

    def close_handles(self) -> None:
        """Let go of every file and of the lock, writing nothing."""
        for each in (*self.logs, *self.stray, *(deleting for _, deleting in self.deleting)):
            try:
                each.close_handles()
            except (LogError, OSError) as error:
                log.warning("log_not_closed", log_dir=str(self.path), error=str(error))
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
            log.warning("log_not_closed", partition=str(each.topic_partition), error=str(error))
            return False
        return True

    def _write_checkpoints(self) -> bool:
        return (
            self.checkpoint(DirCheckpoints.write_recovery_points)
            and self.checkpoint(DirCheckpoints.write_log_start_offsets)
            and self.checkpoint(DirCheckpoints.write_high_watermarks)
        )

    def _write_marker(self, broker_epoch: int) -> None:
        if not (self.had_clean_marker or self.is_loaded):
            log.warning("clean_marker_left_out", log_dir=str(self.path), reason="not every log was loaded")
            return
        try:
            with self.offline.storage():
                write_clean_shutdown(self.disk, self.path, broker_epoch=broker_epoch)
        except LogDirOfflineError as error:
            log.warning("clean_marker_not_written", log_dir=str(self.path), error=str(error))


def make_directories(disk: Disk, path: Path) -> None:
    """Make a directory and what is missing above it, durably."""
    if disk.status(path) is None:
        make_directories(disk, path.parent)
        disk.make_directory(path)
        disk.sync_directory(path.parent)
