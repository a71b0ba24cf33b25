"""SegmentFiles: the files that share a base offset; and one look at all of a partition's (log-format 1.2)."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import CheckpointError, MissingArtefactError, SegmentChangedError
from tierd.log.files.checkpoints import read_lineage
from tierd.log.files.directory import PartitionDirectory
from tierd.log.files.source import broker_file
from tierd.model import Lineage

MAX_OFFSET = (1 << 63) - 1
_DIGITS = 20
_STAMP_NS = 100_000_000
_LISTED_AT_ONCE = 256  # names; so many fit into one answer of the kernel, which no rename can split


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files that share a base offset, known by name only: any of them may be gone when it is opened.

    Attributes:
        next_base_offset: where the next segment begins, exclusive end of this one; None for the newest.
        deleted: the broker renamed the files to ``*.deleted``; readable until it unlinks them.
    """

    directory: Path
    base_offset: int
    next_base_offset: int | None
    deleted: bool = False

    @property
    def end_offset(self) -> int:
        """Last offset that may lie in this segment, inclusive.

        Raises:
            ValueError: the segment is active and has no end.
        """
        if self.next_base_offset is None:
            raise ValueError(f"{self.log}: the active segment has no end")
        return self.next_base_offset - 1

    @property
    def log(self) -> Path:
        """The record batches."""
        return self._file(self.base_offset, ".log")

    @property
    def offset_index(self) -> Path:
        """Offset to position."""
        return self._file(self.base_offset, ".index")

    @property
    def time_index(self) -> Path:
        """Timestamp to offset."""
        return self._file(self.base_offset, ".timeindex")

    @property
    def transaction_index(self) -> Path:
        """Aborted transactions; most segments have no such file."""
        return self._file(self.base_offset, ".txnindex")

    @property
    def producer_snapshot(self) -> Path:
        """Producer state at the segment's end; the broker deletes it with the segment that begins there.

        Raises:
            ValueError: the segment is active.
        """
        live = self.directory / file_name(self.end_offset + 1, ".snapshot")
        if not self.deleted or live.exists():
            return live
        return live.with_name(live.name + ".deleted")

    def _file(self, offset: int, suffix: str) -> Path:
        return self.directory / file_name(offset, suffix + ".deleted" if self.deleted else suffix)


@dataclass(frozen=True, slots=True)
class PartitionScan:
    """What a partition's directory held at one moment.

    Attributes:
        segments: live, ascending; the last one is active.
        deleted_segments: renamed for deletion, ascending; each ends where the next segment of either kind began.
        lineage: the leader epochs, empty when the checkpoint is missing or damaged.
        mtime_ns: of the directory, taken before it was listed; -1 when it was so fresh that a later change might
            not move it. Whoever compares it with a later mtime never misses a change.
        lineage_problem: why ``lineage`` is empty although the log may not be.
        snapshots: offsets of the live producer snapshots, ascending.
    """

    directory: PartitionDirectory
    segments: tuple[SegmentFiles, ...]
    deleted_segments: tuple[SegmentFiles, ...]
    lineage: Lineage
    mtime_ns: int
    lineage_problem: str | None = None
    snapshots: tuple[int, ...] = ()


def file_name(offset: int, suffix: str) -> str:
    """The name that Kafka gives to a segment's file."""
    return f"{offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """Split a segment file's name into its offset and suffix; None for a name that is none."""
    digits, suffix = name[:_DIGITS], name[_DIGITS:]
    if not (len(digits) == _DIGITS and digits.isascii() and digits.isdigit() and suffix.startswith(".")):
        return None
    offset = int(digits)
    return (offset, suffix) if offset <= MAX_OFFSET else None


def scan_partition(directory: PartitionDirectory) -> PartitionScan:
    """Look at a partition's files by name, and read its leader epochs. Blocking.

    Raises:
        SegmentChangedError: the directory is gone, or the broker is replacing segments at this moment.
        LogDirOfflineError: it cannot be read.
    """
    path = directory.path
    with broker_file(path):
        status = path.stat()
        if status.st_ino != directory.inode:
            raise SegmentChangedError(f"{path}: another directory has taken its name", remedy="list the log dir again")
        # The kernel stamps files by a clock that ticks every few milliseconds: two changes may share a stamp.
        is_fresh = time.time_ns() - status.st_mtime_ns < _STAMP_NS
        names = _list_names(path)
    offsets: dict[str, list[int]] = {suffix: [] for suffix in (".log", ".log.deleted", ".log.swap", ".snapshot")}
    for name in names:
        if name[_DIGITS:] in offsets and (parsed := parse_file_name(name)):
            offsets[parsed[1]].append(parsed[0])
    if offsets[".log.swap"]:
        # While compacted segments replace old ones, neither set is whole: a bound taken now might span a hole.
        raise SegmentChangedError(
            f"{path}: the broker is replacing segments (*.swap)",
            remedy="nothing to do while the broker runs; if it is down, start it, and it finishes the replacement",
        )
    live = sorted(offsets[".log"])
    lineage, problem = _lineage(path)
    return PartitionScan(
        directory=directory,
        segments=tuple(SegmentFiles(path, base, end) for base, end in _bounds(live)),
        deleted_segments=_deleted_segments(path, live, offsets[".log.deleted"]),
        lineage=lineage,
        mtime_ns=-1 if is_fresh else status.st_mtime_ns,
        lineage_problem=problem,
        snapshots=tuple(sorted(offsets[".snapshot"])),
    )


def _list_names(path: Path) -> list[str]:
    names = os.listdir(path)  # noqa: PTH208 - a Path for each of 160,000 names costs more than all the rest
    while len(names) > _LISTED_AT_ONCE:
        # A file that is renamed between two answers of the kernel may be in neither of them.
        again = os.listdir(path)  # noqa: PTH208 - as above
        if set(again) == set(names):
            break
        names = again
    return names


def _lineage(path: Path) -> tuple[Lineage, str | None]:
    try:
        return read_lineage(path), None
    except (MissingArtefactError, CheckpointError) as error:
        return Lineage(), str(error)


def _bounds(bases: list[int]) -> Iterable[tuple[int, int | None]]:
    """Every base with the next one; None behind the last."""
    ends: list[int | None] = [*bases[1:], None]
    return zip(bases, ends, strict=False)


def _deleted_segments(path: Path, live: list[int], deleted: list[int]) -> tuple[SegmentFiles, ...]:
    if not deleted:
        return ()
    wanted = set(deleted)
    bounds = _bounds(sorted({*live, *deleted}))
    return tuple(SegmentFiles(path, base, end, deleted=True) for base, end in bounds if base in wanted)
