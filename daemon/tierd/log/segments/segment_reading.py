"""Reads of one segment by offset, through the names of its files, for every reader of a log (log-format 8.1).

Readers run in any thread, beside the writer of the log or a broker. They hold no file between two reads, trust no index
before a sound batch proves it, and treat a missing file as a change by the writer or the broker.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from tierd.errors import CorruptIndexError, CorruptRecordError, SegmentChangedError
from tierd.log.files.disk import Disk, Readable
from tierd.log.files.partition_scan import SegmentFiles
from tierd.log.indexes.index_lookup import lookup_offset, lookup_position, lookup_upper_bound
from tierd.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from tierd.log.records.batch_header import OVERHEAD_BYTES, BatchHeader, crc_matches, iter_headers, parse_header

OpenReadable = Callable[[Path], AbstractContextManager[Readable]]
"""Opens a file for reading. Raises SegmentChangedError when it is not there."""

_INDEX_LIMIT_BYTES = 256 << 20


def opener(disk: Disk) -> OpenReadable:
    """Open files of ``disk``; every ``OSError`` but that a file is gone stays as it is."""
    return partial(_open_file, disk)


@contextmanager
def _open_file(disk: Disk, path: Path) -> Iterator[Readable]:
    try:
        file = disk.open(path, write=False)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SegmentChangedError(f"{path}: not there, or gone while it was read", remedy="read again") from error
    try:
        yield file
    finally:
        file.close()


def find_batch(
    open_file: OpenReadable,
    source: Readable,
    files: SegmentFiles,
    offset: int,
    *,
    end: int,
    known_position: int | None = None,
    may_be_torn: bool = True,
) -> BatchHeader | None:
    """Find the first batch that holds ``offset`` or follows it; None when the segment has none. Blocking.

    Args:
        open_file: opens the offset index.
        source: the open log file.
        files: the segment.
        offset: may lie in a gap.
        end: bytes of the log file that count, exclusive.
        known_position: position at which the search begins; None to take it from the offset index.
        may_be_torn: an incomplete batch at the end is not there, instead of an error.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        SegmentChangedError: the file became shorter.
    """
    position = known_position if known_position is not None else indexed_position(open_file, source, files, offset)
    for header in iter_headers(source, position=position, end=end, may_be_torn=may_be_torn):
        if header.last_offset >= offset:
            return header
    return None


def indexed_position(open_file: OpenReadable, source: Readable, files: SegmentFiles, offset: int) -> int:
    """Return the position at which a search for ``offset`` begins: from the index if a sound batch is there, else 0."""
    try:
        with open_file(files.offset_index) as index:
            found = lookup_offset(index, base_offset=files.base_offset, offset=offset)
    except SegmentChangedError:  # no index: the walk from the start is only slower
        return 0
    return found.position if _is_proven(source, found.offset, found.position) else 0


def read_upper_bound(
    open_file: OpenReadable, source: Readable, files: SegmentFiles, *, position: int, size_bytes: int
) -> int | None:
    """Return an offset above every read of ``[position, position + size_bytes)``, from the index; None if unknown."""
    try:
        with open_file(files.offset_index) as index:
            found = lookup_upper_bound(index, base_offset=files.base_offset, position=position, size_bytes=size_bytes)
    except SegmentChangedError:
        return None
    return found.offset if found and _is_proven(source, found.offset, found.position) else None


def indexed_batch_before(
    open_file: OpenReadable, source: Readable, files: SegmentFiles, position: int
) -> BatchHeader | None:
    """Return the batch of the last index entry at or before ``position``; None if no sound batch is there. Blocking."""
    try:
        with open_file(files.offset_index) as index:
            found = lookup_position(index, base_offset=files.base_offset, position=position)
    except SegmentChangedError:
        return None
    return None if found is None else _proven_batch(source, found.offset, found.position)


def _is_proven(source: Readable, last_offset: int, position: int) -> bool:
    """Return True if a sound batch begins at ``position`` and its base offset is at most ``last_offset``."""
    return not position or _proven_batch(source, last_offset, position) is not None


def _proven_batch(source: Readable, last_offset: int, position: int) -> BatchHeader | None:
    data = source.read(position, OVERHEAD_BYTES)
    try:
        header = parse_header(data, 0, name=str(source.path), position=position)
    except CorruptRecordError:
        return None
    if header is None or header.end_position > source.size_bytes:
        return None
    return header if header.base_offset <= last_offset and crc_matches(source, header) else None


def read_aborted(open_file: OpenReadable, files: SegmentFiles) -> TransactionIndex | None:
    """Read a segment's transaction index; None when there is no such file, which is normal. Blocking.

    Raises:
        CorruptIndexError: it cannot be understood.
    """
    path = files.transaction_index
    try:
        with open_file(path) as source:
            if source.size_bytes > _INDEX_LIMIT_BYTES:
                raise CorruptIndexError(
                    f"{path}: larger than {_INDEX_LIMIT_BYTES} bytes, which no such file is", remedy=f"look at {path}"
                )
            return TransactionIndex.from_bytes(source.read(0, source.size_bytes), files.base_offset, str(path))
    except SegmentChangedError:
        return None


def collect_aborted(
    segments: Iterable[SegmentFiles],
    from_offset: int,
    upper_offset: int,
    *,
    read_index: Callable[[SegmentFiles], TransactionIndex],
) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions that a read of ``[from_offset, upper_offset)`` has to know (log-format 3.2).

    Args:
        segments: ascending from the one that holds ``from_offset`` on; those without an index may be left out.
        from_offset: inclusive.
        upper_offset: exclusive.
        read_index: reads the index of one of them.
    """
    found: list[AbortedTransaction] = []
    for files in segments:
        entries, is_complete = read_index(files).collect(from_offset, upper_offset)
        found.extend(entries)
        if is_complete:
            break
    return tuple(found)
