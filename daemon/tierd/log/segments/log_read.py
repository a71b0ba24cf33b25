"""Reads of a log by offset beside its writer, from any thread (log-format 8.1; Kafka: LocalLog.read).

A reader takes the published segments, opens their files by name, and begins again when the names changed meanwhile.
Reader and writer share no lock.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from tierd.errors import CorruptIndexError, CorruptRecordError, OffsetOutOfRangeError, SegmentChangedError
from tierd.log.files.disk import Disk, Readable
from tierd.log.files.partition_scan import SegmentFiles
from tierd.log.indexes.transaction_index import AbortedTransaction, TransactionIndex
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.log_offset import LogOffset
from tierd.log.segments.log_segments import PublishedLog
from tierd.log.segments.log_snapshot import OpenLog
from tierd.log.segments.segment_ranges import floor_index
from tierd.log.segments.segment_reading import (
    OpenReadable,
    collect_aborted,
    find_batch,
    opener,
    read_aborted,
    read_upper_bound,
)

_ATTEMPTS = 200
_PAUSE_S = 0.001

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FetchData:
    """The result of a read.

    Attributes:
        records: bytes of the log from the batch that holds the offset on; the last batch may be incomplete.
        start: the offset of the request, and the place of the first batch.
        first_entry_incomplete: the first batch is incomplete.
        aborted: the transactions that a reader of committed records has to leave out; None if not requested.
    """

    records: bytes
    start: LogOffset
    first_entry_incomplete: bool = False
    aborted: tuple[AbortedTransaction, ...] | None = None


class LogReader:
    """The reads of a published log, for any number of threads. A call blocks on the disk only."""

    def __init__(self, disk: Disk, current: Callable[[], PublishedLog], *, name: str) -> None:
        """Read through ``disk``.

        Args:
            disk: the disk of the files.
            current: returns the log that is published at this moment.
            name: the partition, for errors.
        """
        self.disk = disk
        self._open_file = opener(disk)
        self._current = current
        self._name = name

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        bound: LogOffset,
        min_one_message: bool = True,
        with_aborted: bool = False,
    ) -> FetchData:
        """Read from one segment, from the batch that holds ``offset`` or follows it.

        Args:
            offset: of the first wanted record; the first batch may begin below it.
            max_bytes: largest size of the answer, unless the first batch alone is larger and ``min_one_message``.
            bound: exclusive end of the readable records: the log end, the high watermark or the last stable offset.
                Without its position the answer has no records of its segment or of a later one.
            min_one_message: return the first batch complete even if it is larger than ``max_bytes``.
            with_aborted: also return the aborted transactions.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the first segment, or above the log end.
            ValueError: ``max_bytes`` is negative.
            CorruptRecordError: a header on the way is damaged.
            CorruptIndexError: a transaction index is damaged.
            SegmentChangedError: the files are gone, or change again and again.
            OSError: a file cannot be read.
        """
        if max_bytes < 0:
            raise ValueError(f"max_bytes {max_bytes} is negative")

        wanted = _Request(offset, max_bytes, bound, min_one_message, with_aborted)
        return self.retrying(lambda log: self._read(log, wanted))

    def locate(self, offset: int) -> LogOffset:
        """Return the segment of ``offset``, and the position of the batch that holds or follows ``offset``.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the first segment, or above the log end.
            CorruptRecordError, SegmentChangedError, OSError: as ``read``.
        """
        return self.retrying(lambda log: self._locate(log, offset))

    def locate_if_known(self, offset: int, *, log_start_offset: int) -> LogOffset:
        """Locate an offset; return an offset outside of ``[log_start_offset, log end]`` without a place."""
        if offset < log_start_offset:
            return LogOffset(offset)
        try:
            return self.locate(offset)
        except OffsetOutOfRangeError:
            return LogOffset(offset)

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions that concern a read of ``[from_offset, upper_offset)``.

        Raises:
            CorruptIndexError: a transaction index is damaged.
            SegmentChangedError, OSError: as ``read``.
        """
        return self.retrying(
            lambda log: self._collect(log, max(floor_index(log.segments, from_offset), 0), from_offset, upper_offset)
        )

    def retrying(self, work: Callable[[PublishedLog], T]) -> T:
        """Do ``work`` on the published log, and repeat it on the newly published log if names changed meanwhile.

        ``work`` reads only. An error of ``work`` is raised only if no name changed meanwhile.

        Raises:
            SegmentChangedError: a file is gone although no name changed, or the changes do not end.
        """
        for _ in range(_ATTEMPTS):
            log = self._current()
            try:
                found = work(log)
            except (SegmentChangedError, CorruptRecordError, CorruptIndexError):
                if not log.names_version & 1 and self._current().names_version == log.names_version:
                    raise
            else:
                if self._current().names_version == log.names_version:
                    return found
            if log.names_version & 1:
                time.sleep(_PAUSE_S)
        raise SegmentChangedError(f"{self._name}: its files change again and again", remedy="read again")

    @property
    def open_file(self) -> OpenReadable:
        """Return a function that opens a file of the log for reading."""
        return self._open_file

    def _floor(self, log: PublishedLog, offset: int) -> int:
        first = floor_index(log.segments, offset)
        if first < 0 or offset > log.log_end.offset:
            start = log.segments[0].base_offset if log.segments else log.log_end.offset
            raise OffsetOutOfRangeError(
                f"{self._name}: offset {offset} is not in the local log [{start}, {log.log_end.offset})",
                remedy="read from an offset in that range",
            )
        return first

    def _read(self, log: PublishedLog, wanted: "_Request") -> FetchData:
        first = self._floor(log, wanted.offset)
        if wanted.offset == wanted.bound.offset:
            return wanted.nothing_at(wanted.bound)
        if wanted.offset > wanted.bound.offset:
            return wanted.nothing_at(self._locate(log, wanted.offset))
        for index in range(first, len(log.segments)):
            found = self._read_segment(log, index, wanted)
            if found is not None:
                return found
        return wanted.nothing_at(log.log_end)

    def _read_segment(self, log: PublishedLog, index: int, wanted: "_Request") -> FetchData | None:
        files = log.files(index)
        with self._open_file(files.log) as source:
            header = self._find(log, files, source, wanted.offset)
            if header is None:
                return None
            start = LogOffset(wanted.offset, files.base_offset, header.position)
            size = wanted.size_bytes(header, wanted.end_position(files.base_offset, source.size_bytes))
            if not size:
                return wanted.nothing_at(start)
            data = source.read(header.position, size)
            if len(data) < size:
                raise source.changed()
            aborted = None
            if wanted.with_aborted:
                upper = read_upper_bound(self._open_file, source, files, position=header.position, size_bytes=size)
                upper = upper or files.next_base_offset or log.log_end.offset
                aborted = self._collect(log, index, wanted.offset, upper)
            return FetchData(data, start, wanted.limit_bytes(header) < header.size_bytes, aborted)

    def _locate(self, log: PublishedLog, offset: int) -> LogOffset:
        for index in range(self._floor(log, offset), len(log.segments)):
            files = log.files(index)
            with self._open_file(files.log) as source:
                header = self._find(log, files, source, offset)
            if header is not None:
                return LogOffset(offset, files.base_offset, header.position)
        return log.log_end

    def _find(self, log: PublishedLog, files: SegmentFiles, source: Readable, offset: int) -> BatchHeader | None:
        return find_batch(self._open_file, source, files, offset, end=readable_end(log, files.base_offset, source))

    def _collect(
        self, log: PublishedLog, first: int, from_offset: int, upper_offset: int
    ) -> tuple[AbortedTransaction, ...]:
        indexes = range(first, len(log.segments))
        segments = (log.files(index) for index in indexes if log.segments[index].transaction_index.may_exist)
        return collect_aborted(
            segments, from_offset, upper_offset, read_index=lambda files: self._aborted_of(log, files)
        )

    def _aborted_of(self, log: PublishedLog, files: SegmentFiles) -> TransactionIndex:
        """Read the transaction index of a segment. An index counts as absent only if no name changed meanwhile."""
        found = read_aborted(self._open_file, files)
        if found is None and (log.names_version & 1 or self._current().names_version != log.names_version):
            raise SegmentChangedError(f"{files.log}: renamed while it was read", remedy="read again")
        return found or TransactionIndex()


def readable_end(log: PublishedLog, base_offset: int, source: Readable) -> int:
    """Return the end of the published part of the open log file of a segment. The writer may write behind that end.

    Args:
        log: the published log.
        base_offset: of the segment.
        source: its open log file.

    Raises:
        SegmentChangedError: the file is shorter than its published size.
    """
    if base_offset != log.log_end.segment_base_offset:
        return source.size_bytes
    if log.log_end.position > source.size_bytes:
        raise source.changed()
    return log.log_end.position


@dataclass(frozen=True, slots=True)
class PublishedSnapshot:
    """The ``LogSnapshot`` of a log that tierd owns."""

    reader: LogReader
    published: PublishedLog

    def segments(self) -> Iterator[SegmentFiles]:
        """Yield the segments with the names that their files have now, ascending."""
        return map(self.published.files, range(len(self.published.segments)))

    @property
    def open_file(self) -> OpenReadable:
        """Return a function that opens a file of the log for reading."""
        return self.reader.open_file

    @contextmanager
    def open_log(self, segment: SegmentFiles) -> Iterator[OpenLog]:
        """Open the log file of a segment."""
        with self.reader.open_file(segment.log) as source:
            yield OpenLog(source, readable_end(self.published, segment.base_offset, source))


@dataclass(frozen=True, slots=True)
class _Request:
    """The arguments of a read; see ``LogReader.read``."""

    offset: int
    max_bytes: int
    bound: LogOffset
    min_one_message: bool
    with_aborted: bool

    def nothing_at(self, place: LogOffset) -> FetchData:
        """Return an empty result."""
        return FetchData(b"", place, aborted=() if self.with_aborted else None)

    def limit_bytes(self, first: BatchHeader) -> int:
        """Return the largest size of an answer that begins with the batch ``first``."""
        return max(self.max_bytes, first.size_bytes) if self.min_one_message else self.max_bytes

    def size_bytes(self, first: BatchHeader, end_position: int) -> int:
        """Return the number of bytes to read from the batch ``first`` on and before ``end_position``."""
        return max(0, min(end_position - first.position, self.limit_bytes(first)))

    def end_position(self, base_offset: int, size_bytes: int) -> int:
        """Return the end of the part of a segment below the bound; 0 when the position of the bound is not known."""
        if self.bound.is_offset_only or base_offset > self.bound.segment_base_offset:
            return 0
        return size_bytes if base_offset < self.bound.segment_base_offset else min(self.bound.position, size_bytes)
