"""Access to one partition of a log dir that no process uses: opened as a broker does, closed as by a clean stop.

The other logs stay as they are. A log dir with a clean marker has one again afterwards. Without a marker, the next
start recovers the other logs and finds this one flushed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from tierd.errors import PartitionNameError, UnknownPartitionError
from tierd.log.dirs.dir_checkpoints import DirCheckpoints, needs_log_start
from tierd.log.dirs.log_dir import DirLock, make_directories
from tierd.log.files.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    load_offset_checkpoint,
    write_offset_checkpoint,
)
from tierd.log.files.clean_shutdown import (
    NO_BROKER_EPOCH,
    delete_clean_shutdown,
    read_broker_epoch,
    write_clean_shutdown,
)
from tierd.log.files.directory import DirectoryKind, parse_directory_name
from tierd.log.files.disk import Disk, OsDisk
from tierd.log.files.log_dir_lock import LogDirLock
from tierd.log.files.offline import OfflineFlag
from tierd.log.loading.log_loader import load_log
from tierd.log.loading.log_recovery import LoadRequest
from tierd.log.log_errors import CheckpointError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition


@contextmanager
def opened_partition(
    directory: Path,
    *,
    config: LogConfig,
    now_ms: int,
    create_with: UUID | None = None,
    disk: Disk | None = None,
    acquire_lock: Callable[[Path], DirLock] = LogDirLock.acquire,
) -> Iterator[UnifiedLog]:
    """Lock the log dir, load one partition in it, and close it cleanly afterwards, also after an error. Blocking.

    Args:
        directory: of the partition; its parent is the log dir.
        config: the topic's settings.
        now_ms: wall clock.
        create_with: make the directory if it is not there, with this topic id.
        disk: where it lies.
        acquire_lock: keeps others out, or raises.

    Raises:
        PartitionNameError: the directory's name is not that of a current replica.
        UnknownPartitionError: the directory is not there.
        LogDirLockedError: a broker or tierd has the log dir.
        LogDirOfflineError: the disk failed; the log dir keeps no clean marker then.
        LogError: the log cannot be loaded.
    """
    partition, kind = parse_directory_name(directory.name)
    if kind is not DirectoryKind.CURRENT:
        raise PartitionNameError(
            f"{directory}: a directory that ends in {kind.value} is not written to",
            remedy="read it with tierd log read, and write to the directory that is named <topic>-<partition>",
        )
    access = _Access(disk or OsDisk(), directory, partition, config, now_ms)
    with access.offline.storage():
        access.require_there(may_create=create_with is not None)
        lock = acquire_lock(directory.parent)
    try:
        log = access.load(create_with)
        try:
            yield log
        finally:
            access.leave(log)
    finally:
        lock.release()


class _Access:
    def __init__(self, disk: Disk, directory: Path, partition: TopicPartition, config: LogConfig, now_ms: int) -> None:
        self.offline = OfflineFlag(directory.parent)
        self._disk = disk
        self._directory = directory
        self._log_dir = directory.parent
        self._partition = partition
        self._config = config
        self._now_ms = now_ms
        self._was_clean = False
        self._broker_epoch: int | None = None

    def require_there(self, *, may_create: bool) -> None:
        if self._disk.status(self._directory) is not None:
            return
        if not may_create:
            raise UnknownPartitionError(f"{self._directory}: not there", remedy="name a partition directory")
        make_directories(self._disk, self._log_dir)

    def load(self, create_with: UUID | None) -> UnifiedLog:
        with self.offline.storage():
            is_new = self._disk.status(self._directory) is None
            if is_new:
                make_directories(self._disk, self._directory)
            self._broker_epoch = read_broker_epoch(self._disk, self._log_dir)
            self._was_clean = delete_clean_shutdown(self._disk, self._log_dir)
            checkpoints = DirCheckpoints(self._disk, self._log_dir)
            log_starts, recovery_points = checkpoints.log_start_offsets(), checkpoints.recovery_points()
            high_watermarks = checkpoints.high_watermarks()
            if is_new:  # what they say is of a log that was deleted
                log_starts = recovery_points = high_watermarks = {}
            request = LoadRequest(
                config=self._config,
                log_start_offset=log_starts.get(self._partition, 0),
                recovery_point=recovery_points.get(self._partition, 0),
                clean=self._was_clean or is_new,
            )
        log = load_log(self._disk, self._directory, request, now_ms=self._now_ms, offline=self.offline)
        log.update_high_watermark(high_watermarks.get(self._partition, 0))
        if is_new and create_with is not None:
            log.assign_topic_id(create_with)
        return log

    def leave(self, log: UnifiedLog) -> None:
        if self.offline.is_offline:
            log.close_handles()
            return
        log.flush(including_active=True)
        log.close()
        with self.offline.storage():
            self._note(RECOVERY_POINT_CHECKPOINT, {self._partition: log.recovery_point})
            starts = {self._partition: log.log_start_offset} if needs_log_start(log) else {}
            self._note(LOG_START_OFFSET_CHECKPOINT, starts)
            self._note(REPLICATION_OFFSET_CHECKPOINT, {self._partition: log.high_watermark})
            if self._was_clean:
                epoch = NO_BROKER_EPOCH if self._broker_epoch is None else self._broker_epoch
                write_clean_shutdown(self._disk, self._log_dir, broker_epoch=epoch)

    def _note(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the entry of this partition in a checkpoint, and nothing else."""
        path = self._log_dir / name
        try:
            before = load_offset_checkpoint(self._disk, path)
        except (FileNotFoundError, CheckpointError):  # a start makes nothing of it either
            before = {}
        others = {partition: offset for partition, offset in before.items() if partition != self._partition}
        write_offset_checkpoint(self._disk, path, {**others, **offsets})
