"""The partitions of a log dir, by the names, sizes and times of their segments."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import SegmentChangedError
from tierd.log import DirectoryKind, PartitionScan, list_log_dir, scan_partition

DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Segment:
    """A log file: its size and the wall clock of its last append."""

    path: Path
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Partition:
    """The segments of one partition, ascending; the last one is active."""

    topic: str
    segments: tuple[Segment, ...]

    @property
    def rolled(self) -> tuple[Segment, ...]:
        """Those that a tier would take at once."""
        return self.segments[:-1]

    def bytes_per_day(self) -> float | None:
        """What is appended per day, by the files' times; None when one segment has to tell it all."""
        span_ms = self.segments[-1].modified_ms - self.segments[0].modified_ms if self.segments else 0
        if span_ms <= 0:
            return None
        return sum(segment.size_bytes for segment in self.segments[1:]) * DAY_MS / span_ms


def find_partitions(log_dir: Path, wants: Callable[[str], bool]) -> list[Partition]:
    """Look at every partition of a log dir by its file names and times. Blocking; reads no record, writes nothing.

    Raises:
        LogDirOfflineError: it cannot be listed.
    """
    found = []
    for directory in list_log_dir(log_dir).partitions:
        if directory.kind is not DirectoryKind.CURRENT or not wants(directory.topic_partition.topic):
            continue
        try:
            scan = scan_partition(directory)
        except SegmentChangedError:
            continue  # deleted or replaced at this moment
        found.append(Partition(directory.topic_partition.topic, _segments(scan)))
    return found


def _segments(scan: PartitionScan) -> tuple[Segment, ...]:
    segments = []
    for files in scan.segments:
        try:
            status = files.log.stat()
        except FileNotFoundError:
            continue  # deleted since it was listed
        segments.append(Segment(files.log, status.st_size, status.st_mtime_ns // 1_000_000))
    return tuple(segments)
