"""Recovery of a log dir that no process uses: a broker's start, then a broker's clean stop (log-format 6)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

from tierd.errors import PartitionNameError
from tierd.log.dirs.dir_checkpoints import DirCheckpoints
from tierd.log.dirs.log_dir_start import RemainingLoad
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings, lacks_topic_id
from tierd.log.files.clean_shutdown import has_clean_shutdown
from tierd.log.files.directory import INDEX_CACHE, DirectoryKind, parse_directory_name
from tierd.log.files.disk import Disk, OsDisk
from tierd.log.files.log_dir_lock import LogDirLock
from tierd.log.files.offline import OfflineFlag
from tierd.log.files.partition_scan import parse_file_name
from tierd.log.loading.strict_recovery import find_damage
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.log_config import LogConfig

_PROGRESS_INTERVAL_S = 0.5
OnRecoveryProgress = Callable[[RemainingLoad], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredPartition:
    """Result of the recovery of one partition directory.

    Attributes:
        directory: its present path.
        outcome: ``loaded`` after a clean stop, ``recovered``, ``stray`` when it was set aside, or ``deleting``.
        segments_recovered: number of segments that were walked and given new indexes.
        segments_deleted: number of segments marked as deleted, because they followed the cut.
        bytes_cut: bytes behind the last valid batch of a segment, plus the bytes of the deleted segments.
        log_start_offset: None for a directory that is being deleted or was set aside.
        log_end_offset: None for a directory that is being deleted or was set aside.
    """

    directory: Path
    outcome: str
    segments_recovered: int = 0
    segments_deleted: int = 0
    bytes_cut: int = 0
    log_start_offset: int | None = None
    log_end_offset: int | None = None

    @property
    def name(self) -> str:
        """Return the partition; the topic may be cut short in the name of a ``-delete`` or ``-stray`` directory."""
        return str(parse_directory_name(self.directory.name)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredLogDir:
    """Result of the recovery of one log dir.

    Attributes:
        was_clean: whether the last stop was clean.
        problems: damage that a broker would keep; with strict recovery nothing was changed then.
        is_offline: the disk failed; no clean marker was written.
    """

    log_dir: Path
    was_clean: bool
    partitions: tuple[RecoveredPartition, ...] = ()
    problems: tuple[str, ...] = ()
    is_offline: bool = False


def recover_log_dir(
    log_dir: Path,
    *,
    config_for: Callable[[str], LogConfig],
    strict: bool = False,
    on_progress: OnRecoveryProgress = lambda _: None,
) -> RecoveredLogDir:
    """Load every log in ``log_dir`` and close it cleanly: no retention, no cleaning. Blocking.

    Args:
        log_dir: has to exist.
        config_for: the settings of a topic.
        strict: when damage is visible that a broker would keep, list it and change nothing.
        on_progress: called every half second, in another thread, with the work that is left.

    Raises:
        PartitionNameError: it is a partition's directory.
        LogDirLockedError: a broker or tierd has the log dir.
        LogDirOfflineError: the disk failed.
        LogError: a log that a broker would refuse as well.
    """
    disk = OsDisk()
    with OfflineFlag(log_dir).storage():
        if any(map(parse_file_name, disk.list_names(log_dir))):
            raise PartitionNameError(
                f"{log_dir}: a partition's directory, no log dir", remedy=f"name {log_dir.parent}, which holds it"
            )
        lock = LogDirLock.acquire(log_dir)
        try:
            was_clean = has_clean_shutdown(disk, log_dir)
            if strict:
                problems = tuple(_visible_damage(disk, log_dir, was_clean=was_clean))
                if problems:
                    return RecoveredLogDir(log_dir=log_dir, was_clean=was_clean, problems=problems)
            before = {name: _sizes(disk, log_dir / name) for name in _partition_names(disk, log_dir)}
            manager = LogManager(
                [log_dir],
                LogManagerSettings(config_for=config_for, is_stray=lacks_topic_id),
                acquire_lock=lambda _: lock,
            )
            with _reporting(manager, on_progress), manager:
                outcomes = _Outcomes(disk, log_dir, before, was_clean=was_clean)
                partitions = tuple(outcomes.of(manager))
            return RecoveredLogDir(
                log_dir=log_dir, was_clean=was_clean, partitions=partitions, is_offline=bool(manager.offline_dirs)
            )
        finally:
            lock.release()


class _Outcomes:
    """Changes that a start made: file names and sizes before the start, compared with those after it."""

    def __init__(self, disk: Disk, log_dir: Path, before: dict[str, dict[int, int]], *, was_clean: bool) -> None:
        self._disk = disk
        self._log_dir = log_dir
        self._before = before
        self._was_clean = was_clean

    def of(self, manager: LogManager) -> Iterator[RecoveredPartition]:
        loaded = {log.directory.name: log for log in manager.logs()}
        for name in sorted({*loaded, *_partition_names(self._disk, self._log_dir)}):
            log = loaded.get(name)
            directory = self._log_dir / name
            if log is not None:
                yield self._of_log(directory, log)
            else:
                kind = parse_directory_name(name)[1]
                yield RecoveredPartition(
                    directory=directory, outcome="deleting" if kind is DirectoryKind.DELETE else "stray"
                )

    def _of_log(self, directory: Path, log: UnifiedLog) -> RecoveredPartition:
        before = self._before.get(directory.name, {})
        after = {segment.base_offset: segment.size_bytes for segment in log.segments}
        deleted = [base for base in before if base not in after]
        return RecoveredPartition(
            directory=directory,
            outcome="loaded" if self._was_clean and not log.segments_recovered else "recovered",
            segments_recovered=log.segments_recovered,
            segments_deleted=len(deleted),
            bytes_cut=sum(size - after.get(base, 0) for base, size in before.items()),
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
        )


def _visible_damage(disk: Disk, log_dir: Path, *, was_clean: bool) -> Iterator[str]:
    recovery_points = DirCheckpoints(disk, log_dir).recovery_points()
    for name in _partition_names(disk, log_dir):
        partition, kind = parse_directory_name(name)
        if kind is not DirectoryKind.DELETE:
            recovery_point = recovery_points.get(partition, 0)
            yield from find_damage(disk, log_dir / name, recovery_point=recovery_point, clean=was_clean)


def _partition_names(disk: Disk, log_dir: Path) -> list[str]:
    """Return the directories with names of partitions; the start of the manager judges all other directories."""
    found = []
    for name in disk.list_names(log_dir):
        status = disk.status(log_dir / name)
        if status is not None and status.is_directory and name != INDEX_CACHE and _is_partition(name):
            found.append(name)
    return found


def _is_partition(name: str) -> bool:
    try:
        parse_directory_name(name)
    except PartitionNameError:
        return False
    return True


def _sizes(disk: Disk, directory: Path) -> dict[int, int]:
    sizes = {}
    for name in disk.list_names(directory):
        found = parse_file_name(name)
        if found and found[1] == ".log":
            status = disk.status(directory / name)
            sizes[found[0]] = 0 if status is None else status.size_bytes
    return sizes


@contextmanager
def _reporting(manager: LogManager, on_progress: OnRecoveryProgress) -> Iterator[None]:
    is_done = Event()

    def run() -> None:
        while not is_done.wait(_PROGRESS_INTERVAL_S):
            on_progress(manager.remaining)

    thread = Thread(target=run, name="recovery-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
