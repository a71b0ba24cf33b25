"""A partition directory that is opened for writing, unless the recovery would cut off sound records."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from tierd.errors import DamagedLogError
from tierd.log import CLEAN_SHUTDOWN_FILE, LogConfig, UnifiedLog, opened_partition, repair_partition


@contextmanager
def writable_partition(
    directory: Path, *, config: LogConfig, now_ms: int, create_with: UUID | None = None
) -> Iterator[UnifiedLog]:
    """Open a partition as ``opened_partition`` does, but refuse a recovery that would cut more than a torn tail.

    A broker that recovers cuts off everything behind a damaged batch, because it can fetch the records from replicas.

    Raises:
        DamagedLogError: the log is damaged in its middle; nothing was changed.
        LogError: as ``opened_partition``.
    """
    if directory.is_dir() and not (directory.parent / CLEAN_SHUTDOWN_FILE).exists():
        found = repair_partition(directory, now_ms=now_ms, config=config, dry_run=True).plan.remaining
        damaged = [f"{left.name}: {left.problem}" for left in found if left.name.endswith(".log")]
        if damaged:
            raise DamagedLogError(directory, damaged, remedy=f"run tierd repair --dry-run {directory}")
    with opened_partition(directory, config=config, now_ms=now_ms, create_with=create_with) as log:
        yield log
