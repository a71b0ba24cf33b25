"""Start of a log dir under a manager: lock, clean marker, checkpoints, then every log (log-format 6.2)."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, current_thread

import structlog

from tierd.errors import LogDirOfflineError
from tierd.log.dirs.dir_checkpoints import DirCheckpoints
from tierd.log.dirs.log_dir import LogDir
from tierd.log.dirs.log_dirs import duplicate
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.files.clean_shutdown import delete_clean_shutdown
from tierd.log.files.directory import (
    CLUSTER_METADATA,
    INDEX_CACHE,
    DirectoryKind,
    directory_name,
    parse_directory_name,
    partition_fields,
)
from tierd.log.loading.log_loader import load_log
from tierd.log.loading.log_recovery import LoadRequest
from tierd.log.log_errors import CheckpointError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.model import TopicPartition

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RemainingLoad:
    """Logs and segments that are left to load; both mappings are empty when no load is going on.

    Attributes:
        logs: number of logs, by log dir.
        segments: number of segments to recover in a thread's present log, by (log dir, thread name).
    """

    logs: dict[Path, int]
    segments: dict[tuple[Path, str], int]


class LoadProgress:
    """Counter of the logs and segments that are left while a manager starts; any thread may count and read.

    log-format 12: remainingLogsToRecover, remainingSegmentsToRecover.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._logs: dict[Path, int] = {}
        self._segments: dict[tuple[Path, str], int] = {}

    @property
    def remaining(self) -> RemainingLoad:
        """Return the logs and segments that are left now."""
        with self._lock:
            return RemainingLoad(dict(self._logs), dict(self._segments))

    def begin(self, log_dir: Path, *, logs: int) -> None:
        """Note that a log dir with ``logs`` logs is going to be loaded."""
        with self._lock:
            self._logs[log_dir] = logs

    def log_done(self, log_dir: Path) -> int:
        """Note that one log of the log dir was loaded or failed; return the number of logs that are left."""
        with self._lock:
            self._logs[log_dir] -= 1
            return self._logs[log_dir]

    def segments_left(self, log_dir: Path, count: int) -> None:
        """Note the number of segments that are left to recover in the log that this thread loads."""
        with self._lock:
            self._segments[log_dir, current_thread().name] = count

    def end(self) -> None:
        """Forget all logs and segments: the load is over."""
        with self._lock:
            self._logs.clear()
            self._segments.clear()


class DirStart:
    """The start of one log dir. ``run`` blocks; the log dirs of a manager run next to each other."""

    def __init__(self, log_dir: LogDir, settings: LogManagerSettings, progress: LoadProgress) -> None:
        self._dir = log_dir
        self._settings = settings
        self._progress = progress
        self._lock = Lock()
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}

    def run(self) -> None:
        """Load every log. A failure of the disk takes the log dir offline and is no error here.

        Raises:
            PartitionNameError: a directory that is no partition's, nor one of Kafka's own.
            LogError: two directories for one replica.
            LogError: a log that cannot be loaded although the disk does its work.
        """
        try:
            with self._dir.offline.storage():
                paths = self._prepare()
        except LogDirOfflineError as error:
            _reraise_unless_io(error)
            return
        self._progress.begin(self._dir.path, logs=len(paths))
        self._log_recovery_begin(len(paths))
        with ThreadPoolExecutor(self._settings.recovery_threads_per_dir, thread_name_prefix="log-recovery") as pool:
            try:
                for done in [pool.submit(self._load, path) for path in paths]:
                    done.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        self._dir.is_loaded = True
        self._lower_recovery_points()
        self._lower_cleaner_offsets()

    def _lower_recovery_points(self) -> None:
        """Write the recovery points anew if a log's is below its checkpoint: later appends are not flushed."""
        for each in self._dir.current.values():
            if each.recovery_point < self._recovery_points.get(each.topic_partition, 0):
                self._dir.checkpoint(DirCheckpoints.write_recovery_points)
                return

    def _lower_cleaner_offsets(self) -> None:
        """Remove each cleaner offset above the end of its log: such a log is dirty from its start."""
        for each in self._dir.logs:
            if self._dir.cleaner_offsets.get(each.topic_partition, 0) > each.log_end_offset:
                self._dir.set_cleaner_offset(each.topic_partition, None)

    def _prepare(self) -> list[Path]:
        """Take note of the clean marker and remove it, read the checkpoints, find the logs."""
        log_dir = self._dir
        log_dir.had_clean_marker = delete_clean_shutdown(log_dir.disk, log_dir.path)
        checkpoints = log_dir.checkpoints
        self._recovery_points = checkpoints.recovery_points()
        self._log_starts = checkpoints.log_start_offsets()
        self._high_watermarks = checkpoints.high_watermarks()
        log_dir.cleaner_offsets = checkpoints.cleaner_offsets()
        return [path for name in log_dir.disk.list_names(log_dir.path) if self._is_log(path := log_dir.path / name)]

    def _is_log(self, path: Path) -> bool:
        status = self._dir.disk.status(path)
        if status is None or not status.is_directory or path.name == INDEX_CACHE:
            return False
        partition, kind = parse_directory_name(path.name)
        if kind is DirectoryKind.FUTURE:
            self._dir.untouched.add(partition)
            log.warning(
                "future_log_left_alone",
                **partition_fields(path),
                directory=str(path),
                reason="a broker was moving the replica between log dirs; nothing in tierd ends such a move",
                remedy="start the broker to end the move, or remove the directory if the replica is whole elsewhere",
            )
            return False
        return partition.topic != CLUSTER_METADATA

    def _log_recovery_begin(self, count: int) -> None:
        if not count:
            log.info("no_logs_found", log_dir=str(self._dir.path))
        elif self._dir.had_clean_marker:
            log.info("recovery_skipped", log_dir=str(self._dir.path), logs=count)
        else:
            log.info("recovering_logs", log_dir=str(self._dir.path), logs=count)

    def _load(self, path: Path) -> None:
        begun_s = self._settings.clock.monotonic_s()
        loaded: UnifiedLog | None = None
        try:
            loaded = self._load_one(path)
        except LogDirOfflineError as error:
            _reraise_unless_io(error)
            log.exception("log_not_loaded", **partition_fields(path), directory=str(path))
        finally:
            left = self._progress.log_done(self._dir.path)
            if loaded is not None:
                log.info(
                    "log_loaded",
                    **partition_fields(loaded.directory),
                    directory=str(loaded.directory),
                    segments=loaded.segment_count,
                    log_start_offset=loaded.log_start_offset,
                    log_end_offset=loaded.log_end_offset,
                    duration_ms=round((self._settings.clock.monotonic_s() - begun_s) * 1000),
                    logs_left=left,
                )

    def _load_one(self, path: Path) -> UnifiedLog:
        partition, kind = parse_directory_name(path.name)
        log_dir, settings = self._dir, self._settings
        loaded = load_log(
            log_dir.disk,
            path,
            LoadRequest(
                config=settings.config_for(partition.topic),
                log_start_offset=self._log_starts.get(partition, 0),
                recovery_point=self._recovery_points.get(partition, 0),
                clean=log_dir.had_clean_marker,
            ),
            now_ms=settings.clock.now_ms(),
            random_int=settings.random_int,
            offline=log_dir.offline,
            on_segments_left=lambda count: self._progress.segments_left(log_dir.path, count),
        )
        self._register(loaded, partition, kind)
        return loaded

    def _register(self, loaded: UnifiedLog, partition: TopicPartition, kind: DirectoryKind) -> None:
        settings, log_dir = self._settings, self._dir
        if kind is DirectoryKind.CURRENT and settings.is_stray(loaded):
            kind = DirectoryKind.STRAY
            name = directory_name(partition, kind, directory_id=settings.new_id())
            loaded.rename_directory(name)
            log.warning("log_set_aside", **partition_fields(loaded.directory), directory=str(loaded.directory))
        match kind:
            case DirectoryKind.DELETE:
                due_ms = settings.clock.now_ms() + settings.file_delete_delay_ms
                with self._lock:
                    log_dir.deleting.append((due_ms, loaded))
            case DirectoryKind.STRAY:
                with self._lock:
                    log_dir.stray.append(loaded)
            case _:
                loaded.update_high_watermark(self._high_watermarks.get(partition, 0))
                self._add(loaded, partition)

    def _add(self, loaded: UnifiedLog, partition: TopicPartition) -> None:
        with self._lock:
            previous = self._dir.current.setdefault(partition, loaded)
        if previous is not loaded:
            loaded.close_handles()
            raise duplicate(loaded, previous)


def _reraise_unless_io(error: LogDirOfflineError) -> None:
    if not isinstance(error.__cause__, OSError | CheckpointError):
        raise error
