"""Strict recovery: refuse what a broker would load although it is visibly damaged.

A broker trusts what lies below the recovery point, or everything after a clean stop: a flipped bit there, or an index
full of garbage, goes unnoticed until somebody reads it. This looks at all of it, and changes nothing.
"""

from collections.abc import Iterator
from pathlib import Path

from tierd.errors import CheckpointError, CorruptIndexError, CorruptRecordError, DamagedLogError
from tierd.log.batch_header import BatchHeader, crc_matches, iter_headers
from tierd.log.checkpoints import LEADER_EPOCH_CHECKPOINT, parse_lineage
from tierd.log.disk import Disk, read_file
from tierd.log.leftovers import INDEX_SUFFIXES, offset_of
from tierd.log.offset_index import OffsetIndex
from tierd.log.partition_scan import file_name
from tierd.log.producer_state import parse_producer_snapshot
from tierd.log.time_index import TimeIndex
from tierd.log.transaction_index import TransactionIndex


def require_sound(disk: Disk, directory: Path, *, recovery_point: int, clean: bool) -> None:
    """Return if nothing below the recovery point, or nothing at all after a clean stop, is damaged.

    Raises:
        DamagedLogError: something is; names every problem. Nothing was changed.
        OSError: a file cannot be read.
    """
    problems = list(find_damage(disk, directory, recovery_point=recovery_point, clean=clean))
    if problems:
        raise DamagedLogError(directory, problems)


def find_damage(disk: Disk, directory: Path, *, recovery_point: int, clean: bool) -> Iterator[str]:
    """Everything that is wrong with the part of a log that recovery would trust, in the order of the names."""
    names = disk.list_names(directory)
    bases = sorted(base for name in names if name.endswith(".log") and (base := offset_of(name)) is not None)
    for name in names:
        offset = offset_of(name)
        if name.endswith(INDEX_SUFFIXES) and offset is not None and offset not in bases:
            yield f"{directory / name}: an index without its segment"
        if name.endswith(".snapshot"):
            yield from _snapshot_problems(disk, directory / name)
    for at, base in enumerate(bases):
        next_base = bases[at + 1] if at + 1 < len(bases) else None
        is_trusted = clean or (next_base is not None and next_base <= recovery_point)
        if is_trusted:
            yield from _segment_problems(disk, directory, base, next_base)
    yield from _epoch_problems(disk, directory / LEADER_EPOCH_CHECKPOINT)


def _segment_problems(disk: Disk, directory: Path, base: int, next_base: int | None) -> Iterator[str]:
    headers: list[BatchHeader] = []
    path = directory / file_name(base, ".log")
    file = disk.open(path, write=False)
    try:
        end = base - 1
        for header in iter_headers(file, may_be_torn=False):
            if not crc_matches(file, header):
                yield f"{path}: wrong checksum at position {header.position}"
            if header.last_offset <= end:
                yield f"{path}: offset {header.last_offset} at position {header.position} does not ascend"
            end = header.last_offset
            headers.append(header)
        if next_base is not None and end >= next_base:
            yield f"{path}: offset {end} belongs to the segment at {next_base}"
    except CorruptRecordError as error:
        yield str(error)
    finally:
        file.close()
    yield from _index_problems(disk, directory, base, headers, is_last=next_base is None)


def _index_problems(
    disk: Disk, directory: Path, base: int, headers: list[BatchHeader], *, is_last: bool
) -> Iterator[str]:
    starts = {header.position for header in headers}
    ends = {header.last_offset for header in headers}
    newest = max((header.max_timestamp_ms for header in headers), default=-1)
    for suffix in INDEX_SUFFIXES:
        path = directory / file_name(base, suffix)
        if disk.status(path) is None:
            if suffix != ".txnindex" and not is_last:
                yield f"{path}: missing"
            continue
        data = read_file(disk, path)
        try:
            if suffix == ".index":
                entries = list(OffsetIndex.from_bytes(data, base, str(path)).entries())
                if any(entry.position not in starts or entry.offset not in ends for entry in entries):
                    yield f"{path}: an entry that leads to no batch"
            elif suffix == ".timeindex":
                times = TimeIndex.from_bytes(data, base, str(path)).entries
                if any(entry.offset not in ends for entry in times):
                    yield f"{path}: an entry that leads to no batch"
                if newest >= 0 and not is_last and (not times or times[-1].timestamp_ms != newest):
                    yield f"{path}: the newest timestamp, {newest}, is not in it"
            elif len(TransactionIndex.from_bytes(data, base, str(path))) * 34 != len(data):
                yield f"{path}: an incomplete entry at its end"
        except CorruptIndexError as error:
            yield str(error)


def _snapshot_problems(disk: Disk, path: Path) -> Iterator[str]:
    try:
        parse_producer_snapshot(read_file(disk, path), str(path))
    except CorruptIndexError as error:
        yield str(error)


def _epoch_problems(disk: Disk, path: Path) -> Iterator[str]:
    try:
        parse_lineage(read_file(disk, path), name=str(path))
    except FileNotFoundError:
        yield f"{path}: missing"
    except CheckpointError as error:
        yield str(error)
