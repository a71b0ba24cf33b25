"""Opening of the segments of a log, and recovery of unflushed segments (log-format 6.3, 6.4; Kafka: LogLoader)."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import structlog

from tierd.errors import CorruptIndexError, CorruptRecordError, OffsetOverflowError
from tierd.log.files.directory import DirectoryKind, parse_directory_name, partition_fields
from tierd.log.files.disk import Disk, unlink_if_there
from tierd.log.files.leader_epoch import LeaderEpochFileCache
from tierd.log.files.partition_scan import MAX_OFFSET, file_name, offsets_named, parse_file_name
from tierd.log.log_errors import InvalidTransactionStateError
from tierd.log.partition.producer_rebuild import rebuild_producer_state
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.log.segments.leftovers import CLEANED, INDEX_SUFFIXES
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.log_segments import LogSegments
from tierd.log.segments.pending_deletions import PendingDeletions
from tierd.log.segments.roll_decision import draw_jitter_ms
from tierd.log.segments.segment_recovery import recover_segment
from tierd.log.segments.segment_replacement import mark_deleted, split_overflowed
from tierd.log.segments.segmented_log import SegmentedLog

log = structlog.get_logger()

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """The checkpoints and the settings of a log that is to be loaded.

    Attributes:
        config: the settings of the topic.
        log_start_offset: of the checkpoint; 0 without an entry.
        recovery_point: of the checkpoint; 0 without an entry.
        clean: the last stop was clean.
        keep_partition_metadata: the topic has an id, which the directory stores.
    """

    config: LogConfig
    log_start_offset: int = 0
    recovery_point: int = 0
    clean: bool = False
    keep_partition_metadata: bool = True


def random_int() -> int:
    """Return a random number, the default source of jitter."""
    return random.getrandbits(31)


class LogRecovery:
    """One log while it is being loaded: first ``open``, then ``recover``. Segments that overflow are split.

    Attributes:
        segments: the open segments.
        deletions: files that were marked as deleted, and are not yet removed.
        segments_recovered: number of segments that were recovered.
    """

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        request: LoadRequest,
        epochs: LeaderEpochFileCache,
        *,
        names: Sequence[str],
        now_ms: int,
        random_int: Callable[[], int],
        on_segments_left: Callable[[int], None],
    ) -> None:
        self.segments = LogSegments()
        self.deletions = PendingDeletions(disk)
        self.segments_recovered = 0
        self.partition, kind = parse_directory_name(directory.name)
        self._is_deleting = kind is DirectoryKind.DELETE
        self._disk = disk
        self._directory = directory
        self._where = partition_fields(directory)
        self._request = request
        self._config = request.config
        self._epochs = epochs
        self._now_ms = now_ms
        self._random_int = random_int
        self._on_segments_left = on_segments_left
        self._names: Sequence[str] | None = names  # in the directory; None once the names may have changed
        self._present: LogSegment | None = None  # the present segment, which an overflow error concerns

    def open(self) -> None:
        """Open every segment, and recover segments without an offset index or with an impossible transaction index.

        The content of all other indexes is trusted, as a broker does.
        """
        self._retrying(self._open_segments)

    def recover(self) -> tuple[int, int]:
        """Recover the unflushed segments, unless the stop was clean; return recovery point and log end offset."""
        return self._retrying(self._recover)

    def close_handles(self) -> None:
        """Close the handles of every segment."""
        for segment in self.segments:
            segment.close_handles()

    def _open_segments(self) -> None:
        self.close_handles()
        self.segments.clear()
        names = self._disk.list_names(self._directory) if self._names is None else self._names
        present = frozenset(names)
        for name in names:
            offset, suffix = parse_file_name(name) or (-1, "")
            if suffix in INDEX_SUFFIXES and file_name(offset, ".log") not in present:
                log.warning("orphaned_index_found", **self._where, file=str(self._directory / name))
                unlink_if_there(self._disk, self._directory / name)
            elif suffix == ".log":
                try:
                    self._open_segment(offset, present)
                except IsADirectoryError:  # a broker passes it over, too
                    log.warning("directory_passed_over", **self._where, directory=str(self._directory / name))

    def _open_segment(self, base_offset: int, present: frozenset[str]) -> None:
        self._present = segment = self._new_segment(base_offset)
        has_time_index = file_name(base_offset, ".timeindex") in present
        if file_name(base_offset, ".index") not in present:
            if self._is_flushed(segment):
                log.error("offset_index_missing", **self._where, file=str(segment.path))
                self._recover_segment(segment)
            # Otherwise ``recover`` recovers the segment: until then the segments below it may be torn.
        else:
            if not has_time_index:
                segment.time_index.materialise()
                segment.time_index.resize(0)
            if file_name(base_offset, ".txnindex") in present:
                self._check_transactions(segment)
            else:
                segment.transaction_index.may_exist = False
        self.segments.add(segment)

    def _check_transactions(self, segment: LogSegment) -> None:
        try:
            segment.transaction_index.sanity_check()
        except CorruptIndexError as error:
            log.warning("corrupted_index_found", **self._where, file=str(segment.path), error=str(error))
            if self._is_flushed(segment):
                self._recover_segment(segment)

    def _recover(self) -> tuple[int, int]:
        """Return recovery point and log end."""
        request = self._request
        if self._is_deleting:  # the log is being deleted, and needs no recovery
            self._ensure_segment(0)
            return 0, 0
        if not request.clean:
            self._recover_unflushed()
        last = self.segments.last
        log_end_offset = request.log_start_offset if last is None else self._end_of(last)
        is_emptied = log_end_offset < request.log_start_offset
        if is_emptied:
            self._delete_all(log_end_offset)
            log_end_offset = request.log_start_offset
        self._ensure_segment(log_end_offset)
        self.segments.active.grow_indexes()
        self.segments.active.release_handles()  # the log may never be written to
        if request.clean and not is_emptied:
            return log_end_offset, log_end_offset
        return min(request.recovery_point, log_end_offset), log_end_offset

    def _end_of(self, last: LogSegment) -> int:
        """Return the log end. A last segment that cannot be appended to is recovered even after a clean stop.

        Raises:
            CorruptRecordError: the segment ends below the offset of its name.
        """
        next_offset, position = last.read_end()
        if position and next_offset <= last.base_offset:
            raise CorruptRecordError(last.path, 0, f"a segment that ends at offset {next_offset}, below its name")
        claimed = max(last.offset_index.last_offset, last.time_index.last_entry.offset)
        if position < last.size_bytes or claimed > max(next_offset - 1, last.base_offset):
            log.warning(
                "damage_after_clean_stop", **self._where, file=str(last.path), position=position, index_ends_at=claimed
            )
            self._recover_segment(last)
            next_offset, position = last.read_end()
        return next_offset

    def _recover_unflushed(self) -> None:
        unflushed = self.segments.range(min(self._request.recovery_point, MAX_OFFSET), MAX_OFFSET)
        for at, segment in enumerate(unflushed):
            self._on_segments_left(len(unflushed) - at)
            log.info("recovering_segment", **self._where, file=str(segment.path), done=at, total=len(unflushed))
            self._present = segment
            if cut := self._recover_or_empty(segment):
                following = unflushed[at + 1 :]
                log.warning(
                    "corruption_found",
                    **self._where,
                    file=str(segment.path),
                    bytes_cut=cut,
                    next_offset=segment.read_next_offset(),
                    segments_deleted=[each.base_offset for each in following],
                )
                self._delete(following)
                break
        self._on_segments_left(0)

    def _recover_or_empty(self, segment: LogSegment) -> int:
        try:
            return self._recover_segment(segment)
        except InvalidTransactionStateError as error:
            if self._is_flushed(segment):
                raise
            # The marker was in a segment before that lost its end just behind a batch: what follows a gap cannot stay.
            log.warning("gap_found", **self._where, file=str(segment.path), error=str(error))
        cut = segment.log.truncate(0)
        self._recover_segment(segment)
        segment.flush()
        return cut

    def _recover_segment(self, segment: LogSegment) -> int:
        """Rebuild a segment's indexes, cut it behind its last valid batch, and return the number of bytes cut."""
        self._names = None
        producers = self._producers()
        first = self.segments.first or segment
        # A snapshot from below the first segment does not know the batches that were deleted behind it.
        start = max(self._request.log_start_offset, first.base_offset - 1)
        self._rebuild(producers, end_offset=segment.base_offset, log_start_offset=start)
        cut = recover_segment(segment, producers=producers, epochs=self._epochs)
        self.segments_recovered += 1
        producers.take_snapshot(sync=True)
        log.info("segment_recovered", **self._where, file=str(segment.path), bytes_cut=cut)
        if cut or self._is_flushed(
            segment
        ):  # the segment may not be flushed again, and the cut bytes must not come back
            segment.flush()
        return cut

    def _delete_all(self, log_end_offset: int) -> None:
        """Delete every segment of a log that ends below its start: flushed files are gone."""
        log_start_offset = self._request.log_start_offset
        log.warning(
            "log_ends_below_its_start",
            **self._where,
            directory=str(self._directory),
            log_end_offset=log_end_offset,
            log_start_offset=log_start_offset,
        )
        self._delete(self.segments.values)
        self._epochs.clear()
        self._producers().truncate_fully_and_start_at(log_start_offset)

    def _delete(self, segments: Sequence[LogSegment]) -> None:
        """Mark segments and their snapshots as deleted, durably: segments behind a cut must not come back."""
        if not segments:
            return
        self._names = None
        due_ms = self._now_ms + self._config.file_delete_delay_ms
        producers = self._producers()
        for segment in segments:
            self.segments.remove(segment.base_offset)
            mark_deleted(segment, self.deletions, due_ms=due_ms)
            self._mark_snapshot(producers, segment.base_offset, due_ms)
        self._disk.sync_directory(self._directory)

    def _mark_snapshot(self, producers: ProducerStateManager, offset: int, due_ms: int) -> None:
        marked = producers.remove_and_mark_snapshot_for_deletion(offset)
        if marked is not None:
            self.deletions.add([marked.name], due_ms=due_ms)

    def _retrying(self, stage: Callable[[], _T]) -> _T:
        """Run a stage. When a segment overflows, split it and run the stage again. Each split ends an overflow."""
        while True:
            try:
                return stage()
            except OffsetOverflowError as error:
                segment = self._present
                assert segment is not None
                log.info("segment_overflowed", **self._where, file=str(segment.path), error=str(error))
                self._split(segment)

    def _split(self, segment: LogSegment) -> None:
        self._names = None
        self.segments.add(segment)  # pass 4 may not have come so far
        due_ms = self._now_ms + self._config.file_delete_delay_ms
        result = split_overflowed(
            self._disk,
            self.segments,
            segment,
            open_cleaned=lambda base_offset: self._new_segment(base_offset, suffix=CLEANED, create=True),
            deletions=self.deletions,
            due_ms=due_ms,
        )
        producers = self._producers()
        for removed in result.removed:
            self._mark_snapshot(producers, removed.base_offset, due_ms)

    def _is_flushed(self, segment: LogSegment) -> bool:
        return self._request.clean or segment.base_offset < self._request.recovery_point

    def _ensure_segment(self, base_offset: int) -> None:
        if not self.segments:
            self.segments.add(self._new_segment(base_offset, create=True))

    def _new_segment(self, base_offset: int, *, suffix: str = "", create: bool = False) -> LogSegment:
        return LogSegment(
            self._disk,
            self._directory,
            base_offset,
            config=self._config,
            now_ms=self._now_ms,
            jitter_ms=draw_jitter_ms(
                segment_jitter_ms=self._config.segment_jitter_ms,
                segment_ms=self._config.segment_ms,
                random_int=self._random_int(),
            ),
            suffix=suffix,
            create=create,
        )

    def _producers(self) -> ProducerStateManager:
        """Return a new producer state, to be rebuilt. The recovery of each segment takes a new one."""
        offsets = None if self._names is None else offsets_named(self._names, ".snapshot")
        return ProducerStateManager(
            self._disk,
            self._directory,
            topic_partition=self.partition,
            config=self._config,
            snapshot_offsets=offsets,
        )

    def loaded_producers(self, log_end_offset: int, *, log_start_offset: int) -> ProducerStateManager:
        """Return the producers at the log end, and remove the snapshots that belong to no segment."""
        producers, bases = self._producers(), self.segments.base_offsets
        strays = [] if self._names is None else [o for o in offsets_named(self._names, ".snapshot") if o not in bases]
        if self._names is None or (strays and (len(strays) > 1 or strays[0] < bases[-1])):
            producers.remove_stray_snapshots(bases)
        self._rebuild(
            producers,
            end_offset=log_end_offset,
            log_start_offset=log_start_offset,
            reload_from_clean_shutdown=self._request.clean,
        )
        return producers

    def segmented_log(self, recovery_point: int, log_end_offset: int) -> SegmentedLog:
        """Return the open segments as one log."""
        active = self.segments.active
        return SegmentedLog(
            self._disk,
            self._directory,
            self._config,
            self.segments,
            recovery_point=recovery_point,
            next_offset=LogOffset(log_end_offset, active.base_offset, active.size_bytes),
            random=self._random_int,
            pending_deletions=self.deletions,
        )

    def _rebuild(
        self,
        producers: ProducerStateManager,
        *,
        end_offset: int,
        log_start_offset: int,
        reload_from_clean_shutdown: bool = False,
    ) -> None:
        rebuild_producer_state(
            producers,
            self.segments,
            disk=self._disk,
            log_start_offset=log_start_offset,
            end_offset=end_offset,
            reload_from_clean_shutdown=reload_from_clean_shutdown,
            now_ms=self._now_ms,
        )
