"""The files of segments, and the scan of a partition's directory (log-format 1.2)."""

import os
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, overload

from tierd.errors import MissingArtefactError, SegmentChangedError
from tierd.log.files.checkpoints import read_lineage, read_topic_id
from tierd.log.files.directory import PartitionDirectory
from tierd.log.files.source import broker_file
from tierd.log.log_errors import CheckpointError
from tierd.model import Lineage

MAX_OFFSET = (1 << 63) - 1
_DIGITS = 20
_STAMP_NS = 100_000_000
_NONE: Final[frozenset[int]] = frozenset()  # one for most of all scans: an empty set has 0.2 kB
_SCANNED = (".log", ".log.deleted", ".log.swap", ".snapshot", ".txnindex", ".txnindex.swap")
_LISTED_AT_ONCE = 256  # names; the kernel lists so many names in one answer, which no rename can split


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files that share a base offset, known by name only. Each of them may be gone when a reader opens it.

    Attributes:
        next_base_offset: base of the next segment, exclusive end of this one; None for the newest segment.
        deleted: the broker renamed the files to ``*.deleted``; they are readable until the broker unlinks them.
    """

    directory: Path
    base_offset: int
    next_base_offset: int | None
    deleted: bool = False

    @property
    def end_offset(self) -> int:
        """Return the last offset that may lie in this segment, inclusive.

        Raises:
            ValueError: the segment is active and has no end.
        """
        if self.next_base_offset is None:
            raise ValueError(f"{self.log}: the active segment has no end")
        return self.next_base_offset - 1

    @property
    def log(self) -> Path:
        """Return the log file, with the record batches."""
        return self._file(self.base_offset, ".log")

    @property
    def offset_index(self) -> Path:
        """Return the offset index: offset to position."""
        return self._file(self.base_offset, ".index")

    @property
    def time_index(self) -> Path:
        """Return the time index: timestamp to offset."""
        return self._file(self.base_offset, ".timeindex")

    @property
    def transaction_index(self) -> Path:
        """Return the index of aborted transactions. Most segments have no such file."""
        return self._file(self.base_offset, ".txnindex")

    @property
    def producer_snapshot(self) -> Path:
        """Return the producer state at the end of the segment. It is deleted with the segment that begins there.

        Raises:
            ValueError: the segment is active.
        """
        live = self.directory / file_name(self.end_offset + 1, ".snapshot")
        if not self.deleted or live.exists():
            return live
        return live.with_name(live.name + ".deleted")

    def _file(self, offset: int, suffix: str) -> Path:
        return self.directory / file_name(offset, suffix + ".deleted" if self.deleted else suffix)


class LiveSegments(Sequence[SegmentFiles]):
    """Live segments of one directory, ascending; all but the last end where the next one begins.

    A segment is made when it is asked for: a daemon keeps the scans of thousands of partitions, and reads few of them.
    A slice, or a loop that ends early, makes no others either.
    """

    __slots__ = ("_bases", "_directory", "_next_base_offset")

    def __init__(self, directory: Path, bases: Iterable[int], *, next_base_offset: int | None = None) -> None:
        """Take the base offsets, ascending, and the one that follows them; None if the last segment is active."""
        self._directory = directory
        self._bases = array("q", bases)
        self._next_base_offset = next_base_offset

    def __len__(self) -> int:
        return len(self._bases)

    @overload
    def __getitem__(self, at: int) -> SegmentFiles: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[SegmentFiles]: ...
    def __getitem__(self, at: int | slice) -> SegmentFiles | Sequence[SegmentFiles]:
        indexes = range(len(self._bases))[at]
        if isinstance(indexes, int):
            return self._made(indexes)
        if indexes.step != 1 or not indexes:
            return tuple(map(self._made, indexes))
        bases = self._bases[indexes.start : indexes.stop]
        return LiveSegments(self._directory, bases, next_base_offset=self._base(indexes.stop))

    def __iter__(self) -> Iterator[SegmentFiles]:
        return map(self._made, range(len(self._bases)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LiveSegments):
            ours = (self._directory, self._bases, self._next_base_offset)
            return ours == (other._directory, other._bases, other._next_base_offset)
        return tuple(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"LiveSegments({self._directory}, {self._bases.tolist()}, {self._next_base_offset})"

    def _made(self, index: int) -> SegmentFiles:
        return SegmentFiles(self._directory, self._bases[index], self._base(index + 1))

    def _base(self, index: int) -> int | None:
        return self._bases[index] if index < len(self._bases) else self._next_base_offset


@dataclass(frozen=True, slots=True)
class PartitionScan:
    """The content of a partition's directory at one moment.

    Attributes:
        segments: live segments, ascending; the last one is active.
        deleted_segments: segments renamed for deletion, ascending; each ends where the next segment of either kind
            began.
        lineage: the leader epochs, empty when the checkpoint is missing or damaged.
        mtime_ns: modification time of the directory, read before the names; -1 when it was so fresh that a later change
            might not move it. An equal modification time in a later scan proves that nothing changed.
        lineage_problem: the reason why ``lineage`` is empty although the log may not be empty.
        snapshots: offsets of the live producer snapshots, ascending.
        transaction_indexes: base offsets of the segments with a transaction index; a broker makes no file for a segment
            without aborted transactions. The active segment may get one later. None where that is not known.
    """

    directory: PartitionDirectory
    segments: Sequence[SegmentFiles]
    deleted_segments: tuple[SegmentFiles, ...]
    lineage: Lineage
    mtime_ns: int
    lineage_problem: str | None = None
    snapshots: tuple[int, ...] = ()
    transaction_indexes: frozenset[int] | None = None

    def may_have_aborted(self, segment: SegmentFiles) -> bool:
        """Return False for a rolled segment that had no transaction index when the directory was scanned."""
        known = self.transaction_indexes
        return known is None or segment.next_base_offset is None or segment.base_offset in known


def file_name(offset: int, suffix: str) -> str:
    """Return the name that Kafka gives to a segment's file."""
    return f"{offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """Split the name of a segment's file into offset and suffix; None for another name."""
    digits, suffix = name[:_DIGITS], name[_DIGITS:]
    if not (len(digits) == _DIGITS and digits.isascii() and digits.isdigit() and suffix.startswith(".")):
        return None
    offset = int(digits)
    return (offset, suffix) if offset <= MAX_OFFSET else None


def offsets_named(names: Iterable[str], suffix: str) -> list[int]:
    """Return the offsets in the names with ``suffix`` of a partition's files, ascending."""
    return sorted(parsed[0] for name in names if (parsed := parse_file_name(name)) and parsed[1] == suffix)


def with_next_base(bases: Sequence[int]) -> Iterator[tuple[int, int | None]]:
    """Yield each base offset with the next base offset, which is None for the last one."""
    return zip(bases, [*bases[1:], None], strict=False)  # without a base there is no last one either


def scan_partition(directory: PartitionDirectory) -> PartitionScan:
    """List the files of a partition by name, and read its leader epochs. Blocking.

    Raises:
        SegmentChangedError: the directory is gone, or the broker is replacing segments at this moment.
        LogDirOfflineError: the directory cannot be read.
    """
    path = directory.path
    with broker_file(path):
        status = path.stat()
        if status.st_ino != directory.inode:
            raise _replaced(path)
        # The kernel stamps files by a clock that ticks every few milliseconds: two changes may share a stamp.
        is_fresh = time.time_ns() - status.st_mtime_ns < _STAMP_NS
        names = _list_names(path)
    offsets: dict[str, list[int]] = {suffix: [] for suffix in _SCANNED}
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
    # A broker that replaces segments renames the index after the log.
    with_aborted = offsets[".txnindex"] + offsets[".txnindex.swap"]
    return PartitionScan(
        directory=directory,
        segments=LiveSegments(path, live),
        deleted_segments=_deleted_segments(path, live, offsets[".log.deleted"]),
        lineage=lineage,
        mtime_ns=-1 if is_fresh else status.st_mtime_ns,
        lineage_problem=problem,
        snapshots=tuple(sorted(offsets[".snapshot"])),
        transaction_indexes=frozenset(with_aborted) if with_aborted else _NONE,
    )


def scan_again(directory: PartitionDirectory) -> PartitionScan:
    """Scan a directory that was identified a while ago, as ``scan_partition`` does. Blocking.

    File systems use inodes again: a topic that was deleted and created again may have a directory with the name and the
    inode of the former one.

    Raises:
        SegmentChangedError: as ``scan_partition``; or the directory is of another topic by now.
        LogDirOfflineError: as ``scan_partition``.
    """
    scan = scan_partition(directory)
    try:
        topic_id = read_topic_id(directory.path)
    except (MissingArtefactError, CheckpointError):
        topic_id = None
    if topic_id != directory.topic_id:
        raise _replaced(directory.path)
    return scan


def _replaced(path: Path) -> SegmentChangedError:
    return SegmentChangedError(f"{path}: another directory has taken its name", remedy="list the log dir again")


def has_newer_segment(scan: PartitionScan) -> bool:
    """Return True if the broker has begun a segment since the scan. Blocking.

    Raises:
        SegmentChangedError: the directory is gone.
        LogDirOfflineError: the directory cannot be read.
    """
    path = scan.directory.path
    with broker_file(path):
        if path.stat().st_mtime_ns == scan.mtime_ns:
            return False
        names = os.listdir(path)  # noqa: PTH208 - as in _list_names
    newest = scan.segments[-1].base_offset if scan.segments else -1
    return any(base > newest for base in offsets_named(names, ".log"))


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


def _deleted_segments(path: Path, live: list[int], deleted: list[int]) -> tuple[SegmentFiles, ...]:
    if not deleted:
        return ()
    wanted = set(deleted)
    bounds = with_next_base(sorted({*live, *deleted}))
    return tuple(SegmentFiles(path, base, end, deleted=True) for base, end in bounds if base in wanted)
