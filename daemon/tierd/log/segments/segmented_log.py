"""SegmentedLog: the segments of a partition as one sequence of bytes that ends at the log end (Kafka: LocalLog).

The class knows offsets, files and the recovery point, but no leaders, producers or watermarks. One writer; readers in
other threads read ``published`` alone. Errors of the system are raised unchanged.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tierd.errors import LogDirOfflineError, LogError
from tierd.log.files.disk import Buffer, Disk, unlink_if_there
from tierd.log.log_errors import LogClosedError
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.log.segments.leftovers import CLEANED
from tierd.log.segments.log_read import LogReader
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.log_segments import LogSegments, PublishedLog
from tierd.log.segments.pending_deletions import PendingDeletions
from tierd.log.segments.roll_decision import draw_jitter_ms
from tierd.log.segments.segment_replacement import (
    SplitResult,
    mark_deleted,
    replace_segments,
    segment_names,
    split_overflowed,
)

DELETIONS_AT_ONCE = 1000
"""Some seconds on a slow disk."""


class SegmentedLog:
    """A loaded log with at least one segment, until everything is deleted; the last segment is active.

    Attributes:
        directory: the partition directory; it may be renamed.
        config: settings of new segments.
        segments: the segments as the writer sees them.
        pending_deletions: files that wait to be unlinked.
        recovery_point: everything below this offset is on stable storage.
        published: the state for readers.
        next_offset: the log end with the buffered batches; ``log_end`` follows it at ``write_out``.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        config: LogConfig,
        segments: LogSegments,
        *,
        recovery_point: int,
        next_offset: LogOffset,
        random: Callable[[], int] = int,
        pending_deletions: PendingDeletions | None = None,
    ) -> None:
        """Take loaded segments into use.

        Args:
            disk: where the files are.
            directory: the partition's.
            config: of new segments.
            segments: all of them, open.
            recovery_point: everything below is on stable storage.
            next_offset: the log end, at the end of the active segment.
            random: draws the jitter of new segments.
            pending_deletions: the files that the loader marked for deletion.
        """
        self.directory = directory
        self.config = config
        self.segments = segments
        self.pending_deletions = pending_deletions or PendingDeletions(disk)
        self.recovery_point = recovery_point
        self.published = PublishedLog(segments.values, next_offset)
        self.next_offset = next_offset.offset
        self.reader = LogReader(disk, lambda: self.published, name=directory.name)
        self._disk = disk
        self._random = random
        self._are_names_synced = False
        self._synced_transaction_indexes: set[int] = set()
        self._is_closed = False
        self._has_handles = True

    @property
    def log_end(self) -> LogOffset:
        """Return the place behind the last record that readers may see, where the next record goes."""
        return self.published.log_end

    @property
    def active(self) -> LogSegment:
        """Return the segment that is appended to."""
        return self.segments.active

    @property
    def is_closed(self) -> bool:
        """Return True if the log accepts no further append."""
        return self._is_closed or not self._has_handles

    def append(
        self,
        pieces: Sequence[Buffer],
        batches: Sequence[BatchHeader],
        *,
        last_offset: int,
        max_timestamp_ms: int,
        shallow_offset: int,
    ) -> None:
        """Put a set of batches into the active segment's buffer; ``write_out`` writes it. See ``LogSegment.append``.

        Raises:
            LogClosedError: the log is closed.
            OffsetOverflowError: the active segment cannot express the offset; nothing was taken.
        """
        self._require_open()
        self.active.append(
            pieces,
            batches,
            largest_offset=last_offset,
            max_timestamp_ms=max_timestamp_ms,
            shallow_offset=shallow_offset,
        )
        self.next_offset = last_offset + 1

    def write_out(self) -> None:
        """Write the appended batches in one piece; then readers may see them.

        Raises:
            OSError: the disk is full or failing; the log end has not moved.
        """
        self.active.write_out()
        self._set_log_end(self.next_offset)

    def roll(self, expected_next_offset: int | None = None, *, now_ms: int) -> LogSegment:
        """Finish the active segment and begin another one (log-format 5.2; Kafka: LocalLog.roll).

        Args:
            expected_next_offset: where the next record is expected, when that is known to be above the log end.
            now_ms: wall clock.

        Raises:
            LogClosedError: the log is closed.
            LogError: it would begin below the active one; nothing has changed.
            OSError: the disk is full or failing.
        """
        self._require_open()
        self.write_out()
        base_offset = max(expected_next_offset or 0, self.next_offset)
        active = self.active
        if base_offset == active.base_offset and not active.size_bytes:
            with self._changing_files():  # an index that has no room for a single entry is full from the start
                self._replace_last(base_offset, now_ms=now_ms)
            return self.active
        if base_offset <= active.base_offset:  # it was begun above the log end, for a set that was refused then
            raise LogError(
                f"{active.path}: a segment cannot begin at {base_offset} behind it", remedy="load the log again"
            )
        for name in segment_names(base_offset):
            unlink_if_there(self._disk, self.directory / name)
        active.finish()
        if self.recovery_point == base_offset:
            active.flush()  # no later flush comes back to it, and its indexes are believed without their last entry
        self.segments.add(self._open(base_offset, now_ms=now_ms))
        self._set_log_end(self.next_offset)
        return self.active

    def flush(self, up_to: int) -> None:
        """Make the records of ``[recovery_point, up_to)`` durable, and the names of their files (log-format 6.1).

        With one more than the log end, an empty active segment is made durable too. ``mark_flushed`` is the caller's.

        Raises:
            OSError: the disk is full or failing.
        """
        if self.recovery_point > up_to:
            return
        self.write_out()
        touched = self.segments.range(self.recovery_point, up_to)
        for segment in touched:
            segment.flush()
        # A transaction index is made long after its log file, at the first aborted transaction.
        aborting = {segment.base_offset for segment in touched if segment.transaction_index.exists}
        is_new = any(segment.base_offset >= self.recovery_point for segment in touched)
        if touched and (is_new or not self._are_names_synced or aborting - self._synced_transaction_indexes):
            self._sync_names()
            self._synced_transaction_indexes |= aborting

    def mark_flushed(self, offset: int) -> None:
        """Raise the recovery point; it never falls by this."""
        self.recovery_point = max(self.recovery_point, offset)

    def update_recovery_point(self, offset: int) -> None:
        """Set the recovery point."""
        self.recovery_point = offset

    def truncate_to(self, offset: int, *, now_ms: int) -> list[LogSegment]:
        """Remove everything from ``offset`` on, which becomes the log end; at or above the log end nothing happens.

        A batch that holds ``offset`` goes as a whole, and leaves a gap (log-format 10; Kafka: LocalLog.truncateTo).

        Returns:
            The segments that were removed.

        Raises:
            ValueError: a negative offset.
            CorruptRecordError, CorruptIndexError: the segment to cut is damaged; nothing has changed.
            OSError: the disk is full or failing.
        """
        self._require_open()
        if offset < 0:
            raise ValueError(f"{self.directory}: cannot truncate to offset {offset}")
        self.write_out()
        if offset >= self.next_offset:
            return []
        if offset < self.segments.values[0].base_offset:
            return self.truncate_fully_and_start_at(offset, now_ms=now_ms)
        removed = [segment for segment in self.segments if segment.base_offset > offset]
        self.segments.values[-1 - len(removed)].cut_position(offset)  # or a damage would stop it half-way
        with self._changing_files():
            for segment in reversed(removed):  # what a loss of power leaves has no hole in it
                self._remove(segment, now_ms=now_ms)
            self._sync_names()
            self.active.truncate_to(offset, now_ms=now_ms)
            self.active.flush()  # it may be below the recovery point, and what was cut must not come back
            self._set_log_end(offset)
        return removed

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> list[LogSegment]:
        """Remove everything, and begin anew at ``offset`` (Kafka: LocalLog.truncateFullyAndStartAt).

        Returns:
            The segments that were removed.

        Raises:
            OSError: the disk is full or failing.
        """
        self._require_open()
        self.write_out()
        removed = list(self.segments)
        with self._changing_files():
            for segment in reversed(removed[1:]):
                self._remove(segment, now_ms=now_ms)
            if removed[0].base_offset < offset < self.next_offset:
                self._sync_names()  # or a loss of power could leave a hole before those that come back
                _empty(removed[0])  # or it could leave both, and offsets twice
            self._replace_last(offset, now_ms=now_ms)
            self._sync_names()
            self._set_log_end(offset)
        return removed

    def delete_segments(self, segments: Sequence[LogSegment], *, now_ms: int, at_once: bool = False) -> None:
        """Take segments out of the log; their files are renamed, and go after ``file.delete.delay.ms``.

        The active segment must not be among them: roll first.

        Args:
            segments: ascending.
            now_ms: wall clock.
            at_once: unlink the files now.

        Raises:
            OSError: the disk is failing.
        """
        with self._changing_files():
            for segment in segments:
                self._remove(segment, now_ms=now_ms, at_once=at_once)

    def run_due_deletions(self, now_ms: int) -> int:
        """Unlink files whose time has come, a bounded number at once, since appends wait for it; return how many.

        Raises:
            OSError: the disk is failing.
        """
        return self.pending_deletions.run_due(self.directory, now_ms=now_ms, limit=DELETIONS_AT_ONCE)

    def replace_segments(
        self, new: Sequence[LogSegment], old: Sequence[LogSegment], *, now_ms: int
    ) -> list[LogSegment]:
        """Put ``new``, finished, synced and named ``.cleaned``, in the place of ``old``; see ``replace_segments``.

        Returns:
            The segments of ``old`` whose base offset no segment has any more.
        """
        with self._changing_files():
            return replace_segments(
                self._disk,
                self.directory,
                self.segments,
                new=new,
                old=old,
                deletions=self.pending_deletions,
                due_ms=now_ms + self.config.file_delete_delay_ms,
            )

    def split_overflowed(self, segment: LogSegment, *, now_ms: int) -> SplitResult:
        """Spread a segment whose offsets overflow over several; see ``split_overflowed``."""
        with self._changing_files():
            return split_overflowed(
                self._disk,
                self.segments,
                segment,
                open_cleaned=lambda base_offset: self._open(base_offset, now_ms=now_ms, suffix=CLEANED),
                deletions=self.pending_deletions,
                due_ms=now_ms + self.config.file_delete_delay_ms,
            )

    def rename_directory(self, name: str) -> bool:
        """Give the partition's directory another name, durably; return whether it is another one.

        Raises:
            OSError: the name is taken, or the disk is failing; nothing has changed.
        """
        target = self.directory.with_name(name)
        if target == self.directory:
            return False
        with self._changing_files():
            self._disk.rename(self.directory, target)
            self.directory = target
            for segment in self.segments:
                segment.moved(target)
            self._disk.sync_directory(target.parent)
        return True

    def close(self) -> None:
        """Leave the files as a clean stop leaves them. A second time does nothing.

        Raises:
            LogDirOfflineError: the files were closed as they were, because the log dir is offline.
            OSError: the disk is full or failing.
        """
        if self._is_closed:
            return
        self._require_handles()
        self.write_out()
        for segment in self.segments:
            segment.close()
        self._is_closed = True

    def close_handles(self) -> None:
        """Give the files back as they are; the log takes no more calls but reads."""
        for segment in self.segments:
            segment.close_handles()
        self._has_handles = False

    def delete_all_segments(self, *, now_ms: int) -> list[LogSegment]:
        """Unlink the files of every segment at once; only ``delete_directory`` may follow.

        Raises:
            OSError: the disk is failing.
        """
        removed = list(self.segments)
        self.delete_segments(removed, now_ms=now_ms, at_once=True)
        self._has_handles = False
        return removed

    def delete_directory(self) -> None:
        """Remove the directory with its remaining files.

        Raises:
            RuntimeError: there are segments.
            OSError: the disk is failing.
        """
        if len(self.segments):
            raise RuntimeError(f"{self.directory}: cannot be deleted while it has {len(self.segments)} segments")
        _remove_tree(self._disk, self.directory)
        self._disk.sync_directory(self.directory.parent)

    def _open(self, base_offset: int, *, now_ms: int, suffix: str = "") -> LogSegment:
        self._are_names_synced = False
        return LogSegment(
            self._disk,
            self.directory,
            base_offset,
            config=self.config,
            now_ms=now_ms,
            jitter_ms=draw_jitter_ms(
                segment_jitter_ms=self.config.segment_jitter_ms,
                segment_ms=self.config.segment_ms,
                random_int=self._random(),
            ),
            suffix=suffix,
            create=True,
        )

    def _replace_last(self, base_offset: int, *, now_ms: int) -> None:
        """Put a new, empty segment in the place of the only one left (Kafka: LocalLog.createAndDeleteSegment)."""
        last = self.active
        if base_offset == last.base_offset:  # its names are needed
            self._mark_deleted(last, now_ms=now_ms)
        self.segments.add(self._open(base_offset, now_ms=now_ms))
        if base_offset != last.base_offset:
            self._remove(last, now_ms=now_ms)
        self._set_log_end(self.next_offset)

    def _remove(self, segment: LogSegment, *, now_ms: int, at_once: bool = False) -> None:
        self.segments.remove(segment.base_offset)
        if at_once:
            self._are_names_synced = False
            segment.delete_files()
        else:
            self._mark_deleted(segment, now_ms=now_ms)

    def _mark_deleted(self, segment: LogSegment, *, now_ms: int) -> None:
        self._are_names_synced = False
        self._synced_transaction_indexes.discard(segment.base_offset)
        mark_deleted(segment, self.pending_deletions, due_ms=now_ms + self.config.file_delete_delay_ms)

    def _sync_names(self) -> None:
        self._disk.sync_directory(self.directory)
        self._are_names_synced = True

    @contextmanager
    def _changing_files(self) -> Iterator[None]:
        """Let readers know that names change, or files are cut, so that they begin anew (``LogReader.retrying``)."""
        version = self.published.names_version
        self.published = replace(self.published, names_version=version + 1)
        try:
            yield
        finally:
            self.published = PublishedLog(self.segments.values, self.published.log_end, version + 2)

    def _set_log_end(self, offset: int) -> None:
        active = self.active
        end = LogOffset(offset, active.base_offset, active.size_bytes)
        self.published = PublishedLog(self.segments.values, end, self.published.names_version)
        self.next_offset = offset
        self.recovery_point = min(self.recovery_point, offset)

    def _require_open(self) -> None:
        self._require_handles()
        if self._is_closed:
            raise LogClosedError(f"{self.directory}: the log is closed")

    def _require_handles(self) -> None:
        if not self._has_handles:
            raise LogDirOfflineError(f"{self.directory}: the log's files are closed", remedy="load the log again")


def _empty(segment: LogSegment) -> None:
    """Cut everything, durably; the log first, which must not exist without its aborted transactions."""
    segment.log.truncate(0)
    segment.log.flush()
    segment.offset_index.truncate()
    segment.time_index.truncate()
    segment.transaction_index.reset()
    segment.flush()


def _remove_tree(disk: Disk, directory: Path) -> None:
    for name in disk.list_names(directory):
        path = directory / name
        status = disk.status(path)
        if status is not None and status.is_directory:
            _remove_tree(disk, path)
        else:
            unlink_if_there(disk, path)
    disk.remove_directory(directory)
