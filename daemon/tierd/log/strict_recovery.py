"""Strict recovery: refuse what a broker would load although it is visibly damaged.

A broker trusts what lies below the recovery point, or everything after a clean stop: a flipped bit there, or an index
full of garbage, goes unnoticed until somebody reads it. This looks at all of it, and changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tierd.errors import CheckpointError, CorruptIndexError, CorruptRecordError, DamagedLogError
from tierd.log.batch_header import crc_matches, iter_headers
from tierd.log.checkpoints import LEADER_EPOCH_CHECKPOINT, parse_lineage
from tierd.log.disk import Disk, read_file
from tierd.log.leftovers import INDEX_SUFFIXES, offset_of
from tierd.log.offset_index import OffsetIndex
from tierd.log.partition_scan import file_name
from tierd.log.producer_state import parse_producer_snapshot
from tierd.log.time_index import TimeIndex
from tierd.log.transaction_index import ENTRY as TRANSACTION_ENTRY
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


@dataclass(slots=True)
class _Content:
    """What the batches of a segment say, to which its indexes are held."""

    base_offset: int
    is_last: bool
    starts: set[int] = field(default_factory=set)
    last_offsets: set[int] = field(default_factory=set)
    max_timestamp_ms: int = -1


def _segment_problems(disk: Disk, directory: Path, base: int, next_base: int | None) -> Iterator[str]:
    content = _Content(base, next_base is None)
    path = directory / file_name(base, ".log")
    file = disk.open(path, write=False)
    end = base - 1
    try:
        for header in iter_headers(file, may_be_torn=False):
            if not crc_matches(file, header):
                yield f"{path}: wrong checksum at position {header.position}"
            if header.last_offset <= end:
                yield f"{path}: offset {header.last_offset} at position {header.position} does not ascend"
            end = header.last_offset
            content.starts.add(header.position)
            content.last_offsets.add(end)
            content.max_timestamp_ms = max(content.max_timestamp_ms, header.max_timestamp_ms)
        if next_base is not None and end >= next_base:
            yield f"{path}: offset {end} belongs to the segment at {next_base}"
    except CorruptRecordError as error:
        yield str(error)
        return  # what follows is unknown, and so is what the indexes should say
    finally:
        file.close()
    yield from _index_problems(disk, directory, content)


def _index_problems(disk: Disk, directory: Path, content: _Content) -> Iterator[str]:
    counts: list[int] = []
    for suffix, check in ((".index", _offsets), (".timeindex", _times), (".txnindex", _transactions)):
        path = directory / file_name(content.base_offset, suffix)
        if disk.status(path) is None:
            if suffix != ".txnindex" and not content.is_last:
                yield f"{path}: missing"
            continue
        try:
            problem, count = check(read_file(disk, path), str(path), content)
        except CorruptIndexError as error:
            yield str(error)
            continue
        counts.append(count)
        if problem:
            yield f"{path}: {problem}"
        elif suffix == ".timeindex" and len(counts) == 2 and counts[1] > counts[0] + 2:
            # one of each is added at a time, the last timestamp alone, and a cut may leave one more
            yield f"{directory / file_name(content.base_offset, '.index')}: entries are missing"


def _offsets(data: bytes, name: str, content: _Content) -> tuple[str, int]:
    index = OffsetIndex.from_bytes(data, content.base_offset, name)
    if any(e.position not in content.starts or e.offset not in content.last_offsets for e in index.entries()):
        return "an entry that leads to no batch", len(index)
    if not content.is_last and len(index) * 8 < len(data):
        return "zeros behind its entries", len(index)
    return "", len(index)


def _times(data: bytes, name: str, content: _Content) -> tuple[str, int]:
    entries = TimeIndex.from_bytes(data, content.base_offset, name).entries
    if any(entry.offset not in content.last_offsets for entry in entries):
        return "an entry that leads to no batch", len(entries)
    newest_ms = content.max_timestamp_ms
    if not content.is_last and newest_ms >= 0 and (not entries or entries[-1].timestamp_ms != newest_ms):
        return f"the newest timestamp, {newest_ms}, is not in it", len(entries)
    return "", len(entries)


def _transactions(data: bytes, name: str, content: _Content) -> tuple[str, int]:
    count = len(TransactionIndex.from_bytes(data, content.base_offset, name))
    return ("" if count * TRANSACTION_ENTRY.size == len(data) else "an incomplete entry at its end"), count


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
