"""A partition directory opened to be written to, unless opening it would give up records."""

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
    """Like ``opened_partition``; but a recovery that would cut more than a torn tail is refused.

    A broker gives up everything behind a damaged batch when it recovers: it has replicas to fetch it from.

    Raises:
        DamagedLogError: there is damage in the middle; nothing was changed.
        LogError: as ``opened_partition``.
    """
    if directory.is_dir() and not (directory.parent / CLEAN_SHUTDOWN_FILE).exists():
        found = repair_partition(directory, now_ms=now_ms, config=config, dry_run=True).plan.remaining
        damaged = [f"{left.name}: {left.problem}" for left in found if left.name.endswith(".log")]
        if damaged:
            raise DamagedLogError(directory, damaged, remedy=f"run tierd repair --dry-run {directory}")
    with opened_partition(directory, config=config, now_ms=now_ms, create_with=create_with) as log:
        yield log
