"""Strict recovery: refuses a log that is visibly damaged, although a broker would load it.

A broker trusts the bytes below the recovery point, and after a clean stop all bytes. A flipped bit there, or an index
full of garbage, goes unnoticed until a consumer reads it. Strict recovery checks all these bytes and changes nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tierd.errors import CorruptIndexError, DamagedLogError
from tierd.log.files.checkpoints import LEADER_EPOCH_CHECKPOINT, parse_lineage
from tierd.log.files.disk import Disk, read_artefact
from tierd.log.files.partition_scan import file_name, offsets_named, parse_file_name, with_next_base
from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import TimeIndex
from tierd.log.indexes.transaction_index import TransactionIndex
from tierd.log.loading.artefact_checks import OffsetIndexCheck, TimeIndexCheck
from tierd.log.log_errors import CheckpointError
from tierd.log.producers.producer_state import parse_producer_snapshot
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.batch_walk import BatchFault, DamagedBatch, NoBatch, walk
from tierd.log.segments.leftovers import INDEX_SUFFIXES


def require_sound(disk: Disk, directory: Path, *, recovery_point: int, clean: bool) -> None:
    """Check the log below the recovery point, and after a clean stop the whole log.

    Raises:
        DamagedLogError: the log is damaged; the error names every problem. Nothing was changed.
        OSError: a file cannot be read.
    """
    problems = list(find_damage(disk, directory, recovery_point=recovery_point, clean=clean))
    if problems:
        raise DamagedLogError(directory, problems)


def find_damage(disk: Disk, directory: Path, *, recovery_point: int, clean: bool) -> Iterator[str]:
    """Yield every problem in the part of a log that recovery would trust, in the order of the names."""
    names = disk.list_names(directory)
    bases = offsets_named(names, ".log")
    present = frozenset(bases)
    for name in names:
        offset, suffix = parse_file_name(name) or (-1, "")
        if suffix in INDEX_SUFFIXES and offset not in present:
            yield f"{directory / name}: an index without its segment"
        if suffix == ".snapshot":
            yield from _snapshot_problems(disk, directory / name)
    for base, next_base in with_next_base(bases):
        is_trusted = clean or (next_base is not None and next_base <= recovery_point)
        if is_trusted:
            yield from _segment_problems(disk, directory, base, next_base)
    if bases:  # a new log has no checkpoint yet
        yield from _epoch_problems(disk, directory / LEADER_EPOCH_CHECKPOINT)


def _segment_problems(disk: Disk, directory: Path, base: int, next_base: int | None) -> Iterator[str]:
    path = directory / file_name(base, ".log")
    indexes = _Indexes(disk, directory, base, is_last=next_base is None)
    yield from indexes.load()
    end, newest_ms = base - 1, -1
    file = disk.open(path, write=False)
    try:
        for found in walk(file, base_offset=base):
            match found:
                case BatchHeader():
                    header = found
                case DamagedBatch(header, faults):
                    if BatchFault.CHECKSUM in faults:
                        yield f"{path}: wrong checksum at position {header.position}"
                    if header.last_offset <= end:
                        yield f"{path}: offset {header.last_offset} at position {header.position} does not ascend"
                case NoBatch(error):
                    yield str(error)
                    return  # behind it the batches are unknown, and so are the right entries of the indexes
            end, newest_ms = header.last_offset, max(newest_ms, header.max_timestamp_ms)
            yield from indexes.follow(header)
    finally:
        file.close()
    if next_base is not None and end >= next_base:
        yield f"{path}: offset {end} belongs to the segment at {next_base}"
    yield from indexes.finish(newest_ms)


@dataclass(slots=True)
class _Indexes:
    """The indexes of a segment, compared with its batches."""

    disk: Disk
    directory: Path
    base_offset: int
    is_last: bool
    offsets: OffsetIndexCheck | None = None
    times: TimeIndexCheck | None = None

    def load(self) -> Iterator[str]:
        """Parse the indexes, and yield the problem of each index that cannot be parsed."""
        for suffix, parse in (
            (".index", self._parse_offsets),
            (".timeindex", self._parse_times),
            (".txnindex", self._parse_transactions),
        ):
            path = self._path(suffix)
            if self.disk.status(path) is None:
                if suffix != ".txnindex" and not self.is_last:
                    yield f"{path}: missing"
                continue
            try:
                problem = parse(read_artefact(self.disk, path, name=str(path)), str(path))
            except CorruptIndexError as error:
                yield str(error)
            else:
                if problem:
                    yield f"{path}: {problem}"

    def follow(self, header: BatchHeader) -> Iterator[str]:
        """Yield the contradictions of the indexes to the next batch."""
        if self.offsets and (problem := self.offsets.follow(header)):
            yield f"{self._path('.index')}: {problem}"
        if self.times and (problem := self.times.follow(header)):
            yield f"{self._path('.timeindex')}: {problem}"

    def finish(self, newest_ms: int) -> Iterator[str]:
        """Yield the problems that show behind the last batch. ``newest_ms`` is the largest timestamp of all batches."""
        if self.offsets and (problem := self.offsets.finish()):
            yield f"{self._path('.index')}: {problem}"
        if self.times and (problem := self.times.finish()):
            yield f"{self._path('.timeindex')}: {problem}"
        elif self.times and not self.is_last and newest_ms >= 0:
            entries = self.times.index.entries
            if not entries or entries[-1].timestamp_ms != newest_ms:
                yield f"{self._path('.timeindex')}: the newest timestamp, {newest_ms}, is not in it"

    def _parse_offsets(self, data: bytes, name: str) -> str:
        index = OffsetIndex.from_bytes(data, self.base_offset, name)
        self.offsets = OffsetIndexCheck(index)
        return "" if self.is_last or index.size_bytes == len(data) else "zeros behind its entries"

    def _parse_times(self, data: bytes, name: str) -> str:
        self.times = TimeIndexCheck(TimeIndex.from_bytes(data, self.base_offset, name))
        return ""

    def _parse_transactions(self, data: bytes, name: str) -> str:
        index = TransactionIndex.from_bytes(data, self.base_offset, name)
        return "" if index.size_bytes == len(data) else "an incomplete entry at its end"

    def _path(self, suffix: str) -> Path:
        return self.directory / file_name(self.base_offset, suffix)


def _snapshot_problems(disk: Disk, path: Path) -> Iterator[str]:
    try:
        parse_producer_snapshot(read_artefact(disk, path, name=str(path)), str(path))
    except CorruptIndexError as error:
        yield str(error)


def _epoch_problems(disk: Disk, path: Path) -> Iterator[str]:
    try:
        parse_lineage(read_artefact(disk, path, name=str(path)), name=str(path))
    except FileNotFoundError:
        yield f"{path}: missing"
    except (CheckpointError, CorruptIndexError) as error:
        yield str(error)
