"""Beginning a log in one of several log dirs (Kafka: LogManager.getOrCreateLog)."""

from contextlib import suppress
from pathlib import Path

import structlog

from tierd.errors import LogDirOfflineError
from tierd.log.dirs.log_dir import LogDir, make_directories
from tierd.log.dirs.log_dirs import LogDirs
from tierd.log.dirs.log_manager_settings import ManagerSettings
from tierd.log.files.directory import DirectoryKind, directory_name
from tierd.log.files.event_fields import partition_fields
from tierd.log.loading.log_loader import load_log
from tierd.log.loading.log_recovery import LoadRequest
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition

log = structlog.get_logger()


def create_log(
    log_dirs: LogDirs,
    settings: ManagerSettings,
    partition: TopicPartition,
    *,
    preferred_dir: Path | None,
) -> UnifiedLog:
    """Make a log in the first log dir that can take it; those that cannot go offline.

    Raises:
        LogDirOfflineError: none can.
    """
    name = directory_name(partition, DirectoryKind.CURRENT)
    for log_dir in log_dirs.candidates(preferred_dir):
        with suppress(LogDirOfflineError):
            created = _create_in(log_dir, log_dir.path / name, settings.config_for(partition.topic), settings)
            log_dir.current[partition] = created
            log.info("log_created", **partition_fields(created.directory))
            return created
    raise LogDirOfflineError(f"{partition}: no log dir can take a log", remedy="check the disks, then start again")


def _create_in(log_dir: LogDir, path: Path, config: LogConfig, settings: ManagerSettings) -> UnifiedLog:
    with log_dir.offline.storage():
        make_directories(log_dir.disk, path)
    return load_log(
        log_dir.disk,
        path,
        LoadRequest(config=config, clean=True),
        now_ms=settings.clock.now_ms(),
        offline=log_dir.offline,
        random_int=settings.random_int,
    )
