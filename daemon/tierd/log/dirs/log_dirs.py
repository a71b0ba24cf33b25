"""LogDirs: the log dirs of a manager, and the lookup of a log in them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog

from tierd.errors import LogDirOfflineError, LogError, TierErrorCode, UnknownPartitionError
from tierd.log.dirs.log_dir import LogDir, make_directories
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.files.directory import DirectoryKind, directory_name, partition_fields
from tierd.log.loading.log_loader import load_log
from tierd.log.loading.log_recovery import LoadRequest
from tierd.log.partition.unified_log import UnifiedLog
from tierd.model import TopicPartition

log = structlog.get_logger()


class LogDirs:
    """Every log dir, online or not, in the order of the configuration. The lock of the owner guards them."""

    def __init__(self, log_dirs: Iterable[LogDir]) -> None:
        self._all = tuple(log_dirs)

    def __iter__(self) -> Iterator[LogDir]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @property
    def live(self) -> tuple[LogDir, ...]:
        """Return the log dirs that are in use."""
        return tuple(log_dir for log_dir in self._all if log_dir.is_online)

    @property
    def logs(self) -> tuple[UnifiedLog, ...]:
        """Return the logs of the log dirs that are in use."""
        return tuple(each for log_dir in self.live for each in log_dir.logs)

    def check(self) -> None:
        """Make sure, after a start, that a log dir is in use.

        Raises:
            LogError: two log dirs have the same replica.
            LogDirOfflineError: none can be used.
        """
        seen: dict[TopicPartition, UnifiedLog] = {}
        for log_dir in self._all:
            for partition, each in log_dir.current.items():
                other = seen.setdefault(partition, each)
                if other is not each:
                    raise duplicate(each, other)
        if not self.live:
            raise LogDirOfflineError("no log dir can be used", remedy="check the disks, then start again")

    def find(self, partition: TopicPartition) -> tuple[LogDir, UnifiedLog] | None:
        """Return the log of a partition with its log dir, even one that went offline; None for an unknown partition."""
        found = ((log_dir, log_dir.current.get(partition)) for log_dir in self._all)
        return next(((log_dir, each) for log_dir, each in found if each is not None), None)

    def require(self, partition: TopicPartition) -> tuple[LogDir, UnifiedLog]:
        """Return the log of a partition with its log dir, as ``find`` does.

        Raises:
            UnknownPartitionError: there is no such log.
        """
        found = self.find(partition)
        if found is None:
            raise UnknownPartitionError(f"{partition}: no log of it is here")
        return found

    def take_out(self, partition: TopicPartition) -> tuple[LogDir, UnifiedLog]:
        """Forget a log; return it and where it is.

        Raises:
            UnknownPartitionError: there is no such log.
        """
        for log_dir in self._all:
            removed = log_dir.current.pop(partition, None)
            if removed is not None:
                return log_dir, removed
        raise UnknownPartitionError(f"{partition}: no log of it is here")

    def candidates(self, preferred_dir: Path | None) -> list[LogDir]:
        """Return the log dirs for a new log: the preferred one alone, or all, the one with the fewest logs first."""
        if preferred_dir is not None:
            return [log_dir for log_dir in self.live if log_dir.path == preferred_dir]
        return sorted(self.live, key=lambda log_dir: len(log_dir.logs))

    def create_log(
        self, partition: TopicPartition, settings: LogManagerSettings, *, preferred_dir: Path | None
    ) -> UnifiedLog:
        """Make a log in the first log dir that can take it; a log dir that cannot goes offline.

        Kafka: LogManager.getOrCreateLog.

        Raises:
            LogDirOfflineError: no log dir can take it.
        """
        for log_dir in self.candidates(preferred_dir):
            with suppress(LogDirOfflineError):
                created = create_log_in(log_dir, partition, settings, DirectoryKind.CURRENT)
                log_dir.current[partition] = created
                log.info("log_created", **partition_fields(created.directory))
                return created
        raise LogDirOfflineError(f"{partition}: no log dir can take a log", remedy="check the disks, then start again")

    def of_logs(self, logs: Iterable[UnifiedLog]) -> list[LogDir]:
        """Return the log dirs that hold any of ``logs``."""
        parents = {each.directory.parent for each in logs}
        return [log_dir for log_dir in self._all if log_dir.path in parents]


def create_log_in(
    log_dir: LogDir, partition: TopicPartition, settings: LogManagerSettings, kind: DirectoryKind
) -> UnifiedLog:
    """Make a log in a log dir, which does not know of it yet.

    Raises:
        LogDirOfflineError: the log dir is offline, or has just failed.
    """
    directory = log_dir.path / directory_name(partition, kind, directory_id=settings.new_id())
    with log_dir.offline.storage():
        make_directories(log_dir.disk, directory)
    return load_log(
        log_dir.disk,
        directory,
        LoadRequest(config=settings.config_for(partition.topic), clean=True),
        now_ms=settings.clock.now_ms(),
        offline=log_dir.offline,
        random_int=settings.random_int,
    )


def remove_directories(log_dir: LogDir, *, due_ms: int | None) -> int:
    """Remove the ``-delete`` directories that are due, all of them without a time; return how many those were."""
    due = [each for each_due_ms, each in log_dir.deleting if due_ms is None or each_due_ms <= due_ms]
    log_dir.deleting = [entry for entry in log_dir.deleting if entry[1] not in due]
    for each in due:
        with one_log_alone(each):
            each.delete()
            log.info("log_deleted", **partition_fields(each.directory), directory=str(each.directory))
    return len(due)


@contextmanager
def one_log_alone(each: UnifiedLog) -> Iterator[None]:
    """Log an error of one log, so that the duties of other logs go on."""
    try:
        yield
    except LogError as error:
        log.warning("log_duty_failed", **partition_fields(each.directory), error=str(error))


def duplicate(one: UnifiedLog, other: UnifiedLog) -> LogError:
    """Return the error for two directories that claim to be the same replica."""
    return LogError(
        f"{one.topic_partition}: both {one.directory} and {other.directory} claim to be it",
        remedy="a move between log dirs was interrupted: remove the one in the log dir that failed, then start again",
        code=TierErrorCode.DUPLICATE_LOG,
    )
