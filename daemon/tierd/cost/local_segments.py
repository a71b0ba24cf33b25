"""The partitions of a log dir, by the names, sizes and times of their segments."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import SegmentChangedError
from tierd.log import DirectoryKind, PartitionScan, data_bytes, list_log_dir, scan_partition

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
        """Return the segments that a tier would take at once."""
        return self.segments[:-1]

    def pace(self) -> "Pace | None":
        """Return the bytes appended per day, by the files' times; None unless these cover some time."""
        seen = _bytes_per_day(self.segments)
        if seen is None:
            return None
        middle = len(self.segments) // 2
        halves = (_bytes_per_day(self.segments[: middle + 1]), _bytes_per_day(self.segments[middle:]))
        known = [seen, *(half for half in halves if half is not None)]
        base_ms = self.segments[-1].modified_ms - self.segments[0].modified_ms
        # Less than a day does not show the rest of the day, which may bring nothing more.
        return Pace(
            low=min(known) * min(1.0, base_ms / DAY_MS), bytes_per_day=seen, high=max(known), base_days=base_ms / DAY_MS
        )


@dataclass(frozen=True, slots=True)
class Pace:
    """Bytes appended to a partition per day, as the files show it, with a range.

    Attributes:
        low: as in the slower half of the files; of a base of less than a day, as if the day brought nothing more.
        bytes_per_day: over all files.
        high: as in the faster half of the files.
        base_days: the time between the first file's end and the last one's.
    """

    low: float
    bytes_per_day: float
    high: float
    base_days: float


def _bytes_per_day(segments: Sequence[Segment]) -> float | None:
    span_ms = segments[-1].modified_ms - segments[0].modified_ms if segments else 0
    if span_ms <= 0:
        return None
    return sum(segment.size_bytes for segment in segments[1:]) * DAY_MS / span_ms


def find_partitions(log_dir: Path, wants: Callable[[str], bool]) -> list[Partition]:
    """Return the partitions of a log dir by file names, sizes and times. Blocking; writes nothing.

    Raises:
        LogDirOfflineError: the log dir cannot be listed.
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
        segments.append(Segment(files.log, data_bytes(files), status.st_mtime_ns // 1_000_000))
    return tuple(segments)
