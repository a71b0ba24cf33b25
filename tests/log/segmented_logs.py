"""A SegmentedLog in a directory of its own, and the steps that many tests share."""

from pathlib import Path

from tierd.log.files.disk import Disk, OsDisk
from tierd.log.files.partition_scan import parse_file_name
from tierd.log.records.batch_header import BatchHeader, parse_header
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.log.records.record_batch import iter_batches
from tierd.log.segments.leftovers import clear_leftovers
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.log_segments import LogSegments
from tierd.log.segments.segmented_log import SegmentedLog

NOW_MS = 1_700_000_000_000


def new_log(folder: Path, config: LogConfig | None = None, *, start: int = 0, disk: Disk | None = None) -> SegmentedLog:
    """Make an empty log at ``folder/orders-0`` whose active segment begins at ``start``."""
    disk, config = disk or OsDisk(), config or LogConfig(segment_index_bytes=1000)
    directory = folder / "orders-0"
    disk.make_directory(directory)
    disk.sync_directory(folder)
    first = LogSegment(disk, directory, start, config=config, now_ms=NOW_MS, create=True)
    return SegmentedLog(
        disk, directory, config, LogSegments([first]), recovery_point=start, next_offset=LogOffset(start, start, 0)
    )


def reopen(directory: Path, config: LogConfig | None = None, *, disk: Disk | None = None) -> SegmentedLog:
    """Return the log that a load would make of the segments of a directory."""
    disk, config = disk or OsDisk(), config or LogConfig(segment_index_bytes=1000)
    clear_leftovers(disk, directory)
    bases = [found[0] for name in disk.list_names(directory) if (found := parse_file_name(name)) and found[1] == ".log"]
    segments = LogSegments(LogSegment(disk, directory, base, config=config, now_ms=NOW_MS) for base in bases)
    segments.active.grow_indexes()
    end = segments.active.read_next_offset()
    place = LogOffset(end, segments.active.base_offset, segments.active.size_bytes)
    return SegmentedLog(disk, directory, config, segments, recovery_point=end, next_offset=place)


def append(log: SegmentedLog, *sets: bytes, write: bool = True) -> None:
    """Append sets of batches, one by one."""
    for data in sets:
        headers = headers_of(data)
        newest = max(headers, key=lambda header: header.max_timestamp_ms)
        log.append(
            [data],
            headers,
            last_offset=headers[-1].last_offset,
            max_timestamp_ms=newest.max_timestamp_ms,
            shallow_offset=newest.last_offset,
        )
    if write:
        log.write_out()


def materialise_indexes(segment: LogSegment) -> None:
    """Create the indexes that are missing."""
    segment.offset_index.materialise()
    segment.time_index.materialise()


def headers_of(data: bytes) -> list[BatchHeader]:
    """Return the headers of a set."""
    found: list[BatchHeader] = []
    at = 0
    while (header := parse_header(data, at, name="set", position=at)) is not None:
        found.append(header)
        at = header.end_position
    return found


def offsets_of(data: bytes | memoryview) -> list[int]:
    """Return the offsets of the records in a read's whole batches."""
    return [record.offset for found in iter_batches(data, name="read") for record in found.records()]


def all_offsets(log: SegmentedLog) -> list[int]:
    """Return the offsets of every record, read from the first segment on."""
    found, offset = list[int](), log.segments.values[0].base_offset
    while data := log.reader.read(offset, max_bytes=1, bound=log.log_end).records:
        found += offsets_of(data)
        offset = found[-1] + 1
    return found


def names(directory: Path) -> set[str]:
    """Return the names in a directory."""
    return {path.name for path in directory.iterdir()}
