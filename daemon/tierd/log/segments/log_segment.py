"""A log file and its three indexes, from creation to deletion, for one writer (log-format 3.1, 5, 10).

``append`` keeps bytes in memory, ``write_out`` writes them in one piece, ``flush`` makes them durable. Errors of the
system are raised unchanged. After such an error the log dir is offline, and the segment is not used again.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tierd.errors import OffsetOverflowError
from tierd.log.files.disk import Buffer, Disk
from tierd.log.files.partition_scan import SegmentFiles, file_name
from tierd.log.indexes.offset_index_file import OffsetIndexFile
from tierd.log.indexes.time_index_file import TimeIndexFile
from tierd.log.indexes.transaction_index_file import TransactionIndexFile
from tierd.log.records.batch_header import BatchHeader, iter_headers
from tierd.log.records.log_config import MAX_INT, MAX_LONG, LogConfig
from tierd.log.segments.log_file import LogFile
from tierd.log.segments.roll_decision import should_roll, time_waited_ms
from tierd.log.segments.segment_reading import find_batch, indexed_position, opener
from tierd.model import TimestampOffset


class LogSegment:
    """The files of one base offset (Kafka: LogSegment).

    Handles are opened when they are needed and closed when a finished segment is flushed. Only the active segment and
    segments that are not yet flushed have open handles. Readers open the files separately.

    Attributes:
        base_offset: offset in the names of the files; no record has a smaller offset.
        log: the log file.
        config: the settings when the segment was opened; they fix the index interval and the room of the indexes.
        created_ms: time when the segment was created, opened, or emptied by a truncation, by the clock of the caller.
        jitter_ms: time by which the segment rolls before its maximum age.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        base_offset: int,
        *,
        config: LogConfig,
        now_ms: int,
        jitter_ms: int = 0,
        suffix: str = "",
        create: bool = False,
    ) -> None:
        """Open a segment, or with ``create`` create it. The indexes are created when they are first needed.

        Raises:
            FileNotFoundError: the segment does not exist, and ``create`` is false.
            CorruptRecordError: the file is larger than a segment may be.
        """
        self._disk = disk
        self.base_offset = base_offset
        self.created_ms = now_ms
        self.jitter_ms = jitter_ms
        self.config = config
        self._suffix = suffix
        self._directory = directory
        room = config.segment_index_bytes
        self.offset_index = OffsetIndexFile(disk, self._path(".index"), base_offset=base_offset, max_bytes=room)
        self.time_index = TimeIndexFile(disk, self._path(".timeindex"), base_offset=base_offset, max_bytes=room)
        self.transaction_index = TransactionIndexFile(disk, self._path(".txnindex"), base_offset=base_offset)
        if create:
            self.transaction_index.may_exist = self.transaction_index.exists
        room = config.segment_bytes if config.preallocate else 0
        self.log = LogFile(disk, self._path(".log"), create=create, room_bytes=room)
        self._files: dict[str, LogFile | OffsetIndexFile | TimeIndexFile | TransactionIndexFile] = {
            ".log": self.log,
            ".index": self.offset_index,
            ".timeindex": self.time_index,
            ".txnindex": self.transaction_index,
        }
        self._is_finished = not create
        self._is_closed = False
        self._since_index_bytes = 0
        self._first_timestamp_ms: int | None = None
        self._max_so_far: TimestampOffset | None = None

    def __repr__(self) -> str:
        return f"LogSegment({self.path}, {self.size_bytes} bytes)"

    @property
    def path(self) -> Path:
        """Return the present name of the log file."""
        return self.log.path

    @property
    def size_bytes(self) -> int:
        """Return the size of the log, with the bytes that ``append`` took and ``write_out`` did not yet write."""
        return self.log.size_bytes

    @property
    def written_bytes(self) -> int:
        """Return the size of the log file, without the bytes that ``write_out`` did not yet write."""
        return self.log.written_bytes

    def append(
        self,
        pieces: Sequence[Buffer],
        batches: Sequence[BatchHeader],
        *,
        largest_offset: int,
        max_timestamp_ms: int,
        shallow_offset: int,
    ) -> None:
        """Take a set of batches, which ``write_out`` writes to the file (Kafka: LogSegment.append).

        Args:
            pieces: the bytes of the batches, in order. The caller must not change them before they are written.
            batches: the headers of the batches, in order; used only with ``LogConfig.index_each_batch``.
            largest_offset: last offset of the set, inclusive.
            max_timestamp_ms: largest timestamp of the set; -1 without a timestamp.
            shallow_offset: last offset of the earliest batch with that timestamp.

        Raises:
            OffsetOverflowError: ``largest_offset`` is not within reach of the base; nothing was taken.
            ValueError: the file would become too large; nothing was taken.
        """
        size, position = sum(map(len, pieces)), self.log.size_bytes
        if not size:
            return
        if not 0 <= largest_offset - self.base_offset <= MAX_INT:
            raise self._overflow(largest_offset)
        self.log.append(pieces, size)
        if self.config.index_each_batch:
            self._index_each(batches, position)
            return
        if not position:
            self._first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > (self._max_so_far or self.max_timestamp_so_far).timestamp_ms:
            self._max_so_far = TimestampOffset(max_timestamp_ms, shallow_offset)
        if self._since_index_bytes > self.config.index_interval_bytes:
            self._index(largest_offset, position)
            self._since_index_bytes = 0
        self._since_index_bytes += size

    def _index_each(self, batches: Sequence[BatchHeader], position: int) -> None:
        """Index each batch of a set as the set itself, which is the rule of brokers from 4.1 on (KAFKA-806)."""
        if not position:
            self._first_timestamp_ms = batches[0].max_timestamp_ms
        for batch in batches:
            if batch.max_timestamp_ms > self.max_timestamp_so_far.timestamp_ms:
                self._max_so_far = TimestampOffset(batch.max_timestamp_ms, batch.last_offset)
            is_due = self._since_index_bytes > self.config.index_interval_bytes
            if is_due and not self.is_index_full:  # a set of many batches may fill an index that was not full before
                self._index(batch.last_offset, position)
                self._since_index_bytes = 0
            position += batch.size_bytes
            self._since_index_bytes += batch.size_bytes

    def _index(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset, position)
        largest = self.max_timestamp_so_far
        self.time_index.maybe_append(largest.timestamp_ms, largest.offset)

    def write_out(self) -> None:
        """Write the appended bytes in one piece, then their index entries."""
        self.log.write_out()
        self.offset_index.write_out()
        self.time_index.write_out()

    def flush(self) -> None:
        """Write the log and its indexes out and make them durable. Missing indexes are created."""
        for file in self._files.values():
            file.flush()
        if self._is_finished:
            self.release_handles()

    def finish(self) -> None:
        """End the segment for a roll: index its last timestamp, and trim every file to its content."""
        self._index_last_timestamp()
        self.write_out()
        self.offset_index.trim()
        self.time_index.trim()
        self.log.trim()
        self._is_finished = True

    def close(self) -> None:
        """Close the files as a clean stop does, durably. The segment takes no more calls."""
        if self._is_closed:
            return
        if self._max_so_far is not None:
            self._index_last_timestamp()
        for file in self._files.values():
            file.close()
        self._is_closed = True

    def close_handles(self) -> None:
        """Close the handles, and leave the files as they are. The segment takes no more calls."""
        for file in self._files.values():
            file.close_handle()
        self._is_closed = True

    def release_handles(self) -> None:
        """Close the open files. The next write opens them again."""
        for file in self._files.values():
            file.release_handle()

    def should_roll(
        self, *, size_bytes: int, max_timestamp_ms: int, max_offset: int, now_ms: int, config: LogConfig | None = None
    ) -> bool:
        """Return true if a set has to go to a new segment, by ``config`` or else by the settings of the segment."""
        config = config or self.config
        return should_roll(
            segment_size_bytes=self.size_bytes,
            max_segment_bytes=config.segment_bytes,
            append_size_bytes=size_bytes,
            waited_ms=self.time_waited_ms(now_ms, max_timestamp_ms),
            max_segment_ms=config.max_segment_ms,
            jitter_ms=self.jitter_ms,
            is_index_full=self.is_index_full,
            relative_offset=max_offset - self.base_offset,
        )

    def time_waited_ms(self, now_ms: int, max_timestamp_ms: int) -> int:
        """Return the age of the segment for a set with the largest timestamp ``max_timestamp_ms``."""
        return time_waited_ms(
            first_timestamp_ms=self._rolling_timestamp_ms(),
            created_ms=self.created_ms,
            now_ms=now_ms,
            max_timestamp_ms=max_timestamp_ms,
        )

    @property
    def is_index_full(self) -> bool:
        """Return True when one of the indexes has no room for another entry."""
        return self.offset_index.is_full or self.time_index.is_full

    def first_timestamp_ms(self) -> int:
        """Return the timestamp of the first batch; ``MAX_LONG`` without a batch or without its timestamp."""
        first = self._rolling_timestamp_ms()
        return MAX_LONG if first is None or first < 0 else first

    @property
    def max_timestamp_so_far(self) -> TimestampOffset:
        """Return the largest timestamp and the last offset of its first batch; (-1, base offset) without any."""
        if self._max_so_far is None:
            self._max_so_far = self.time_index.last_entry
        return self._max_so_far

    @property
    def known_max_timestamp(self) -> TimestampOffset | None:
        """Return the ``max_timestamp_so_far`` if it is known without reading a file, for any thread; else None."""
        return self._max_so_far

    @property
    def largest_timestamp_ms(self) -> int:
        """Return the largest timestamp; for a segment without timestamps the modification time of its file."""
        largest_ms = self.max_timestamp_so_far.timestamp_ms
        if largest_ms >= 0:
            return largest_ms
        status = self._disk.status(self.path)
        return status.mtime_ms if status else 0

    def read_next_offset(self) -> int:
        """Return the offset behind the last batch; the base offset without a batch. See ``read_end``."""
        return self.read_end()[0]

    def read_end(self) -> tuple[int, int]:
        """Return the offset and the position behind the last complete batch. An incomplete batch may follow.

        The read begins at the last index entry, if a batch begins there.

        Raises:
            CorruptRecordError: a header on the way is damaged.
        """
        self.write_out()
        end, next_offset = self.written_bytes, self.base_offset
        with self.log.reading() as source:
            last_offset = self.offset_index.last_offset
            position = indexed_position(opener(self._disk), source, self._segment_files(), last_offset)
            for header in iter_headers(source, position=position, end=end):
                next_offset, position = header.last_offset + 1, header.end_position
        return next_offset, position

    @property
    def has_overflow(self) -> bool:
        """Return True when the last offset is too far from the base: the segment of an old broker, to be split."""
        next_offset = self.read_next_offset()
        return next_offset > self.base_offset and next_offset - 1 - self.base_offset > MAX_INT

    def cut_position(self, offset: int) -> int | None:
        """Return the position of the first batch that reaches ``offset``, to cut there; None without such a batch.

        Raises:
            CorruptRecordError: a header on the way is damaged.
            CorruptIndexError: the transaction index cannot be understood.
        """
        self.transaction_index.sanity_check()
        batch = next(self._headers_from(offset), None)
        return None if batch is None else batch.position

    def truncate_to(self, offset: int, *, now_ms: int) -> int:
        """Cut the segment at the first batch that reaches ``offset``, and return the number of bytes cut.

        The indexes get the room of an active segment again (Kafka: LogSegment.truncateTo).

        Raises:
            CorruptRecordError, CorruptIndexError: as ``cut_position``; nothing was cut.
        """
        position = self.cut_position(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        self.grow_indexes()
        cut = self.log.truncate(position) if position is not None else 0
        if not self.size_bytes:
            self.created_ms, self._first_timestamp_ms = now_ms, None
        self._since_index_bytes = 0
        if self.max_timestamp_so_far.timestamp_ms >= 0:
            self._max_so_far = self._read_max_timestamp()
        return cut

    def recovered(self, max_timestamp: TimestampOffset) -> None:
        """Note that the indexes were rebuilt, and note the largest timestamp."""
        self._max_so_far = max_timestamp
        self._since_index_bytes = 0

    def grow_indexes(self) -> None:
        """Give the indexes the room of an active segment. Missing indexes are created."""
        self.offset_index.grow()
        self.time_index.grow()
        self._is_finished = False

    def change_suffix(self, old: str, new: str) -> None:
        """Rename the existing files, for example from ``.log.cleaned`` to ``.log.swap``.

        Raises:
            ValueError: the files do not have the suffix ``old``.
        """
        if self._suffix != old:
            raise ValueError(f"{self.path}: its suffix is not {old!r}")
        self._suffix = new
        for kind, file in self._files.items():
            file.rename(self._path(kind))

    def moved(self, directory: Path) -> None:
        """Note that the directory has another name."""
        self._directory = directory
        for kind, file in self._files.items():
            file.renamed(self._path(kind))

    def delete_files(self) -> None:
        """Close the handles and remove the files. A file that is already gone is no error."""
        self.close_handles()
        for file in self._files.values():
            file.delete()

    def _rolling_timestamp_ms(self) -> int | None:
        if self._first_timestamp_ms is None and self.size_bytes:
            first = next(self._headers_from(self.base_offset), None)
            self._first_timestamp_ms = first.max_timestamp_ms if first else None
        return self._first_timestamp_ms

    def _read_max_timestamp(self) -> TimestampOffset:
        """Return the last index entry, or a larger timestamp that a scan from there finds."""
        largest = self.time_index.last_entry
        for header in self._headers_from(largest.offset):
            if header.max_timestamp_ms > largest.timestamp_ms:
                largest = TimestampOffset(header.max_timestamp_ms, header.last_offset)
        return largest

    def _headers_from(self, offset: int) -> Iterator[BatchHeader]:
        """Yield the headers from the first batch that reaches ``offset`` on. Only the writer may call this."""
        self.write_out()
        end = self.written_bytes
        with self.log.reading() as source:
            first = find_batch(opener(self._disk), source, self._segment_files(), offset, end=end)
            if first:
                yield from iter_headers(source, position=first.position, end=end)

    def _segment_files(self) -> SegmentFiles:
        return SegmentFiles(self._directory, self.base_offset, None, deleted=self._suffix == ".deleted")

    def _index_last_timestamp(self) -> None:
        largest = self.max_timestamp_so_far
        self.time_index.maybe_append(largest.timestamp_ms, largest.offset, skip_full_check=True)

    def _path(self, kind: str) -> Path:
        return self._directory / file_name(self.base_offset, kind + self._suffix)

    def _overflow(self, offset: int) -> OffsetOverflowError:
        return OffsetOverflowError(
            f"{self.path}: offset {offset} is not within {MAX_INT} of the segment's base",
            remedy="split the segment, or roll before the append",
        )
