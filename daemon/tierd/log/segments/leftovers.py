"""Files left in a partition directory by an interrupted deletion, compaction or split (log-format 6.3, passes 1 to 3).

``.deleted``  removed; the unlink alone is missing
``.cleaned``  output of a replacement that had not begun; it is removed
``.swap``     output of a replacement that had begun; it is completed, unless a ``.cleaned`` with a base at or below it
              proves that the set is not whole (renames go in descending order of the base)

The plan is pure; ``clear_leftovers`` carries it out. The directory is synced between the steps that must not be seen
in another order after a loss of power.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from tierd.log.files.directory import partition_fields
from tierd.log.files.disk import Disk, unlink_if_there
from tierd.log.records.batch_header import iter_headers

DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")

_METADATA_SNAPSHOT = ".checkpoint.deleted"  # of the cluster metadata's log, which is not ours
log = structlog.get_logger()


def offset_of(name: str) -> int | None:
    """Return the offset in a file's name, before the first dot; None if that is no 64-bit number."""
    text, dot, _ = name.partition(".")
    if not dot or not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 20:
        return None
    offset = int(text)
    return offset if -(1 << 63) <= offset < 1 << 63 else None


@dataclass(frozen=True, slots=True)
class LeftoverPlan:
    """Pass 1: names to unlink, in two steps, and the ``.swap`` names whose replacement is completed."""

    unlink_first: tuple[str, ...]
    unlink_then: tuple[str, ...]
    swaps: tuple[str, ...]


def plan_leftovers(names: Iterable[str]) -> LeftoverPlan:
    """Decide about every temporary file among ``names``.

    A ``.cleaned`` or ``.swap`` whose name holds no offset belongs to no segment, and stays.
    """
    names = sorted(names)
    deleted = [name for name in names if name.endswith(DELETED) and not name.endswith(_METADATA_SNAPSHOT)]
    cleaned = {name: base for name in names if name.endswith(CLEANED) and (base := offset_of(name)) is not None}
    swaps = {name: base for name in names if name.endswith(SWAP) and (base := offset_of(name)) is not None}
    first_cleaned = min(cleaned.values(), default=1 << 63)
    incomplete = [name for name, base in swaps.items() if base >= first_cleaned]
    complete = [name for name, base in swaps.items() if base < first_cleaned]
    return LeftoverPlan((*deleted, *incomplete), tuple(cleaned), tuple(complete))


def replaced_by(names: Iterable[str], *, first: int, end: int) -> list[str]:
    """Return the files that a completed replacement of [``first``, ``end``) makes obsolete, snapshots too (pass 2)."""
    return [
        name
        for name in sorted(names)
        if not name.endswith(SWAP) and (offset := offset_of(name)) is not None and first <= offset < end
    ]


def clear_leftovers(disk: Disk, directory: Path) -> list[str]:
    """Carry out passes 1 to 3; return the names in the directory afterwards.

    Raises:
        CorruptRecordError: the output of a replacement is damaged, and the replaced segments are gone.
        OSError: the directory cannot be read or changed.
    """
    names = disk.list_names(directory)
    temporaries = [
        name
        for name in names
        if name.endswith((DELETED, CLEANED, SWAP))
        and (status := disk.status(directory / name)) is not None
        and not status.is_directory
    ]
    plan = plan_leftovers(temporaries)
    for step in (plan.unlink_first, plan.unlink_then):
        _unlink(disk, directory, step)
    if plan.swaps:
        _finish_swaps(disk, directory, plan.swaps)
    return disk.list_names(directory) if temporaries else names


def _finish_swaps(disk: Disk, directory: Path, swaps: tuple[str, ...]) -> None:
    logs = [name for name in swaps if name.endswith(".log" + SWAP)]
    if logs:
        bases = [base for name in logs if (base := offset_of(name)) is not None]
        end = max(_next_offset(disk, directory / name) for name in logs)
        obsolete = replaced_by(disk.list_names(directory), first=min(bases), end=end)
        log.info("interrupted_swap_found", **partition_fields(directory), segments=logs, obsolete=obsolete)
        _unlink(disk, directory, obsolete)
    for name in swaps:
        log.info("swap_completed", **partition_fields(directory), file=name)
        disk.rename(directory / name, directory / name.removesuffix(SWAP))
    disk.sync_directory(directory)


def _next_offset(disk: Disk, path: Path) -> int:
    """Return one past the last offset; the base offset without batches (Kafka: LogSegment.readNextOffset)."""
    end = offset_of(path.name) or 0
    file = disk.open(path, write=False)
    try:
        for header in iter_headers(file, may_be_torn=False):  # it was synced before it got its name
            end = header.last_offset + 1
    finally:
        file.close()
    return end


def _unlink(disk: Disk, directory: Path, names: Iterable[str]) -> None:
    names = list(names)
    for name in names:
        status = disk.status(directory / name)
        if status is not None and not status.is_directory:
            unlink_if_there(disk, directory / name)
    if names:
        disk.sync_directory(directory)
