"""Writers of stores: records of a changelog, in order, into the RocksDB directories of one store, with bounded memory.

Every call blocks, and all calls come from one thread. A record may be applied a second time after a crash, if every
record after it is applied again too: the store is then the same. The extra ``rocksdb`` is needed to import this module.

Raises, from every call:
    StoreFailedError: RocksDB failed, the files are damaged, or the records are of another store type.
    OSError: the disk is full or failing.
"""

import shutil
import struct
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tierd.log import OsDisk
from tierd.restore.changelog.changelog_errors import StoreFailedError
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.streams.rocks_directory import RocksDirectory
from tierd.restore.streams.segment_puts import NO_STREAM_TIME, AppliedRecords, Puts, SegmentPuts
from tierd.restore.streams.sorted_rows import RowBuffer, pieces_of
from tierd.restore.streams.streams_store import StreamsStore, StreamsStoreType
from tierd.restore.streams.version_puts import VersionPuts, segment_prefix

PENDING_BYTES: Final = 32 << 20
"""Changes that a writer of segments or versions holds before it hands them to RocksDB."""

_BUFFERS: Final = 2  # one that is filled, and one that becomes a table
_MOST_TABLES: Final = 10  # Streams merges tables by itself from 4 on, and slows its writes from 20 on
_MAX_OPEN: Final = 16  # RocksDB directories at a time; each has write buffers of its own
_MARK: Final = struct.Struct(">qq")  # offset, stream time
_MARK_SEGMENT: Final = -2  # Streams gives no segment this id
_MARK_KEY: Final = segment_prefix(_MARK_SEGMENT) + b"tierd"


def open_writer(
    store: StreamsStore,
    root: Path,
    *,
    resume: AppliedRecords | None,
    memory_bytes: int = PENDING_BYTES,
    pending_bytes: int = PENDING_BYTES,
) -> "StoreWriter":
    """Open the files of a store below ``root``, the directory of the store, or create them.

    Args:
        store: facts about it.
        root: holds what an earlier run left, and nothing else.
        resume: state for which the earlier run returned from ``flush``; None to begin with an empty ``root``.
        memory_bytes: records of a key-value store to hold in memory.
        pending_bytes: changes of another store to hold in memory beside the memory tables.

    Raises:
        StoreFailedError: the files cannot be opened or created.
    """
    if store.type is StreamsStoreType.VERSIONED:
        return VersionedStoreWriter(store, root, pending_bytes=pending_bytes)
    if store.type.has_segment_directories:
        return SegmentedStoreWriter(store, root, resume=resume, pending_bytes=pending_bytes)
    return KeyValueStoreWriter(store, root, resume=resume, memory_bytes=memory_bytes)


class KeyValueStoreWriter:
    """Writer of a key-value store: one directory, in which the last record of a key decides.

    Records wait in a buffer. A full one is sorted and becomes a table of RocksDB, in a thread of its own, while the
    next one is filled. Each table replaces keys of the tables before it.

    Attributes:
        applied: state after the last record that was applied; None without one.
    """

    def __init__(self, store: StreamsStore, root: Path, *, resume: AppliedRecords | None, memory_bytes: int) -> None:
        self.applied = resume
        self._rows = RowBuffer(memory_bytes // _BUFFERS, is_timestamped=store.type.is_timestamped)
        self._directory = RocksDirectory.open(root, store=store.name, column_family=store.type.column_family)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="streams-table")
        self._table: Future[None] | None = None  # under way; nothing else uses the directory meanwhile

    @property
    def skipped(self) -> int:
        """Return the number of records without a key so far."""
        return self._rows.skipped

    def apply(self, records: ChangelogRecords) -> None:
        """Apply records; they may stay in memory until ``flush``."""
        for piece in pieces_of(records):
            if not self._rows.has_room(piece):
                self._begin_table()
            self._rows.add(piece)
        self.applied = AppliedRecords(records.last_offset, NO_STREAM_TIME)

    def flush(self) -> None:
        """Make every record durable that was applied."""
        if len(self._rows):
            self._begin_table()
        self._end_table()

    def finish(self) -> None:
        """Make everything durable, and leave the directory as Streams would; ``close`` is the only call after it."""
        self.flush()
        self._directory.finish(most_tables=_MOST_TABLES)

    def close(self) -> None:
        """Close the files; what was not flushed is lost. A second call does nothing."""
        self._thread.shutdown()
        self._directory.close()

    def _begin_table(self) -> None:
        rows = self._rows.take()
        self._end_table()
        self._table = self._thread.submit(self._directory.add_table, rows)

    def _end_table(self) -> None:
        """Wait for the table that is under way, and raise if it failed."""
        table, self._table = self._table, None
        if table is not None:
            table.result()


class SegmentedStoreWriter:
    """Writer of a window or session store: one directory a segment.

    Attributes:
        applied: state after the last record that was applied; None without one.
    """

    def __init__(
        self, store: StreamsStore, root: Path, *, resume: AppliedRecords | None, pending_bytes: int = PENDING_BYTES
    ) -> None:
        self._store = store
        self._root = root
        self._pending_bytes = pending_bytes
        self.applied = resume
        self._puts = SegmentPuts(store, stream_time_ms=resume.stream_time_ms if resume else NO_STREAM_TIME)
        self._open: dict[int, RocksDirectory] = {}  # the last one used comes last
        self._segments = self._segments_on_disk()

    @property
    def skipped(self) -> int:
        """Return the number of records without a key so far."""
        return self._puts.skipped

    def apply(self, records: ChangelogRecords) -> None:
        """Apply records; they may stay in memory until ``flush``."""
        self._puts.add(records)
        self.applied = AppliedRecords(records.offsets[-1], self._puts.stream_time_ms)
        if self._puts.size_bytes >= self._pending_bytes:
            self._write()

    def flush(self) -> None:
        """Make every record durable that was applied."""
        self._write()
        for directory in self._open.values():
            directory.flush()

    def finish(self) -> None:
        """Make everything durable, and leave the directories as Streams would; ``close`` is the only call after it."""
        self._write()
        self._root.mkdir(exist_ok=True)
        for segment_id in sorted(self._segments):
            self._directory(segment_id).finish()
            del self._open[segment_id]
        OsDisk().sync_directory(self._root)

    def close(self) -> None:
        """Close the files; what was not flushed is lost. A second call does nothing."""
        while self._open:
            self._open.popitem()[1].close()

    def _write(self) -> None:
        taken = self._puts.take()
        self._remove_expired()
        for segment_id, puts in taken.items():
            self._directory(segment_id).write(puts)

    def _directory(self, segment_id: int) -> RocksDirectory:
        """Return the open directory of a segment; of too many open ones, the one used least recently is closed."""
        directory = self._open.pop(segment_id, None)
        if directory is None:
            directory = RocksDirectory.open(
                self._root / self._store.segment_directory(segment_id),
                store=self._store.name,
                column_family=self._store.type.column_family,
            )
            self._segments.add(segment_id)
        self._open[segment_id] = directory
        if len(self._open) > _MAX_OPEN:
            oldest = self._open.pop(next(iter(self._open)))
            oldest.flush()
            oldest.close()
        return directory

    def _remove_expired(self) -> None:
        first_live = self._puts.first_live_segment
        for segment_id in [segment_id for segment_id in self._segments if segment_id < first_live]:
            if directory := self._open.pop(segment_id, None):
                directory.close()
            shutil.rmtree(self._root / self._store.segment_directory(segment_id))
            self._segments.discard(segment_id)

    def _segments_on_disk(self) -> set[int]:
        if not self._root.exists():
            return set()
        starts = (int(path.name.rpartition(".")[2]) for path in self._root.iterdir())
        return {self._store.segment_id(start_ms) for start_ms in starts}


class VersionedStoreWriter:
    """Writer of a versioned store: one directory, of which segments are prefixes.

    To put a version changes versions that were put before, so that a record must not be applied twice out of order.
    The offset is therefore written with the changes, under a key that no segment of Streams has; ``finish`` deletes it.

    Attributes:
        applied: state after the last record that was applied; None without one.
    """

    def __init__(self, store: StreamsStore, root: Path, *, pending_bytes: int = PENDING_BYTES) -> None:
        self._store = store
        self._pending_bytes = pending_bytes
        self._directory = RocksDirectory.open(root, store=store.name, column_family=None, is_read=True)
        mark = self._directory.read(_MARK_KEY)
        self.applied = AppliedRecords(*_MARK.unpack(mark)) if mark else None
        self._puts = VersionPuts(
            store,
            self._directory.read,
            stream_time_ms=self.applied.stream_time_ms if self.applied else NO_STREAM_TIME,
            segments=self._segments_on_disk(),
        )

    @property
    def skipped(self) -> int:
        """Return the number of records without a key so far."""
        return self._puts.skipped

    def apply(self, records: ChangelogRecords) -> None:
        """Apply records; they may stay in memory until ``flush``."""
        try:
            self._puts.add(records)
        except ValueError as error:
            raise StoreFailedError(
                self._store.name, str(error), remedy="remove the stage directory, then restore again"
            ) from error
        self.applied = AppliedRecords(records.offsets[-1], self._puts.stream_time_ms)
        if self._puts.size_bytes >= self._pending_bytes:
            self._write()

    def flush(self) -> None:
        """Make every record durable that was applied."""
        self._write()
        self._directory.flush()

    def finish(self) -> None:
        """Make everything durable, and leave the directory as Streams would; ``close`` is the only call after it."""
        self._write()
        self._directory.write({_MARK_KEY: None})
        self._directory.finish()

    def close(self) -> None:
        """Close the files; what was not flushed is lost. A second call does nothing."""
        self._directory.close()

    def _write(self) -> None:
        if self.applied is None:
            return
        changes = self._puts.take()
        puts: Puts = changes.puts | {_MARK_KEY: _MARK.pack(self.applied.offset, self.applied.stream_time_ms)}
        ranges = [(segment_prefix(segment_id), segment_prefix(segment_id + 1)) for segment_id in changes.expired]
        self._directory.write(puts, expired=ranges)

    def _segments_on_disk(self) -> set[int]:
        segments: set[int] = set()
        key = self._directory.first_key_from(segment_prefix(0))
        while key is not None and key < segment_prefix(_MARK_SEGMENT):
            segments.add(int.from_bytes(key[:8], "big", signed=True))
            key = self._directory.first_key_from(segment_prefix(max(segments) + 1))
        return segments


StoreWriter = KeyValueStoreWriter | SegmentedStoreWriter | VersionedStoreWriter
