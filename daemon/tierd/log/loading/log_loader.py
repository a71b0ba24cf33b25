"""Load of one partition log from its directory, in any state that a crash may leave (log-format 6.3; Kafka: LogLoader).

::

    leftovers      passes 1 to 3: temporaries, interrupted replacements
    log_recovery   pass 4: every segment is opened, one without an offset index recovered; then, unless the stop was
                   clean, every segment from the recovery point on
    load_log       epochs and log start, stray snapshots, producer state

A segment that overflows is split, and its stage begins again. Only a clean stop raises the recovery point: recovered
bytes are in the page cache only, and are recovered again if power is lost before the next flush. Removed names must not
come back after a loss of power; they are synced before the log is taken into use.
"""

from collections.abc import Callable
from pathlib import Path

from tierd.log.files.directory import DirectoryKind, parse_directory_name
from tierd.log.files.disk import Disk
from tierd.log.files.leader_epoch import LeaderEpochFileCache
from tierd.log.files.offline import OfflineFlag
from tierd.log.files.partition_metadata import PartitionMetadataFile
from tierd.log.loading.log_recovery import LoadRequest, LogRecovery, random_int
from tierd.log.loading.strict_recovery import require_sound
from tierd.log.partition.exposed_offsets import ExposedOffsets
from tierd.log.partition.log_state import LogState
from tierd.log.partition.retention import is_tiered
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.segments.leftovers import clear_leftovers


def load_log(
    disk: Disk,
    directory: Path,
    request: LoadRequest,
    *,
    now_ms: int,
    offline: OfflineFlag,
    random_int: Callable[[], int] = random_int,
    on_segments_left: Callable[[int], None] = lambda _: None,
) -> UnifiedLog:
    """Load the log in ``directory``, which has to exist. Blocking; may take long.

    Args:
        disk: the disk of the directory.
        directory: its name has the partition; the log of a ``-delete`` directory is not recovered.
        request: the checkpoints and settings of the log.
        now_ms: wall clock.
        offline: the flag of the log dir.
        random_int: source of jitter.
        on_segments_left: called with the number of segments that are left to recover.

    Raises:
        DamagedLogError: with strict recovery only; nothing was changed.
        LogDirOfflineError: the disk is failing, or a text file in the directory cannot be understood.
        LogError: an unreadable batch in the flushed part, which a broker would refuse as well.
    """
    with offline.storage():
        is_deleting = parse_directory_name(directory.name)[1] is DirectoryKind.DELETE
        if request.config.strict_recovery and not is_deleting:
            require_sound(disk, directory, recovery_point=request.recovery_point, clean=request.clean)
        names = clear_leftovers(disk, directory)
        epochs = LeaderEpochFileCache(disk, directory)
        recovery = LogRecovery(
            disk,
            directory,
            request,
            epochs,
            names=names,
            now_ms=now_ms,
            random_int=random_int,
            on_segments_left=on_segments_left,
        )
        try:
            recovery.open()
            recovery_point, log_end_offset = recovery.recover()
            log_start_offset = _log_start_offset(recovery, request)
            epochs.truncate_from_end(log_end_offset)
            epochs.write_pending()  # once the log is longer, no load can tell which of them are stale
            epochs.truncate_from_start(request.log_start_offset)
            segments = recovery.segmented_log(recovery_point, log_end_offset)
            producers = recovery.loaded_producers(log_end_offset, log_start_offset=log_start_offset)
            metadata = PartitionMetadataFile(disk, directory) if request.keep_partition_metadata else None
            state = LogState(
                disk=disk,
                topic_partition=recovery.partition,
                config=request.config,
                segments=segments,
                producers=producers,
                leader_epochs=epochs,
                partition_metadata=metadata,
                offsets=ExposedOffsets(
                    segments,
                    producers,
                    log_start_offset=log_start_offset,
                    is_tiered=is_tiered(recovery.partition.topic, request.config),
                ),
                offline=offline,
                producer_expiry_due_ms=now_ms + request.config.producer_id_expiration_check_interval_ms,
                topic_id=metadata.read() if metadata is not None and metadata.exists else None,
            )
            return UnifiedLog(state, segments_recovered=recovery.segments_recovered)
        except BaseException:
            recovery.close_handles()
            raise


def _log_start_offset(recovery: LogRecovery, request: LoadRequest) -> int:
    """Return the checkpointed log start, or without a tier the base of the first segment if that is above."""
    if is_tiered(recovery.partition.topic, request.config):
        return request.log_start_offset
    return max(request.log_start_offset, recovery.segments.values[0].base_offset)


__all__ = ["LoadRequest", "load_log"]
