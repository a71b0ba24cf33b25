"""UnifiedLog: one partition's log, whole (log-format 4 to 8 and 10; Kafka: UnifiedLog).

::

    UnifiedLog ── LogState ─┬─ SegmentedLog           segments, log end, recovery point
    (LogView)     │         ├─ ProducerStateManager   sequences, transactions, snapshots
                  │         ├─ LeaderEpochFileCache   lineage
                  │         └─ ExposedOffsets         log start, high watermark, last stable offset
                  ├─ log_append                       what an append does
                  ├─ log_cleanup                      truncation, retention, delete records
                  └─ log_lifecycle                    housekeeping, rename, close, delete

Any thread may call the methods of ``LogView``. The methods of ``UnifiedLog`` are for one thread at a time, the writer
of the log. An error of the disk takes the log dir offline, and every later call on the log fails.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar
from uuid import UUID

from tierd.errors import LogError, TierErrorCode
from tierd.log.files.disk import Buffer
from tierd.log.partition import log_lifecycle
from tierd.log.partition.append_info import AppendInfo, AppendRequest
from tierd.log.partition.log_append import append_all
from tierd.log.partition.log_cleanup import (
    delete_old_segments,
    delete_records,
    raise_log_start,
    truncate_fully,
    truncate_to,
)
from tierd.log.partition.log_observer import LogObserver
from tierd.log.partition.log_state import LogState
from tierd.log.partition.log_view import LogView
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.log_config import LogConfig
from tierd.log.segments.log_segment import LogSegment

_T = TypeVar("_T")


class UnifiedLog(LogView):
    """One partition's log; ``log_loader.load_log`` makes it."""

    def __init__(self, state: LogState, *, segments_recovered: int = 0) -> None:
        """Take loaded parts into use.

        Args:
            state: the parts of the log, with at least one segment and the producers known up to the log end.
            segments_recovered: number of segments that the load walked and gave new indexes.
        """
        super().__init__(state)
        self.segments_recovered = segments_recovered

    # Appending

    def append_as_leader(
        self,
        records: Buffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Check, number and append a set of records.

        Raises:
            AppendError: the records are refused.
            CorruptRecordError: the records are damaged.
            LogDirOfflineError: the log dir is offline, or the disk failed; the set may be in the log or not.
            LogClosedError: the log is closed.
        """
        return self._append(AppendRequest(records, origin, leader_epoch), now_ms)

    def append_as_follower(
        self, records: Buffer, *, now_ms: int, headers: Sequence[BatchHeader] | None = None
    ) -> AppendInfo:
        """Append a set of records that a leader has numbered.

        Args:
            records: the set; its checksums are checked.
            now_ms: wall clock.
            headers: as ``AppendRequest.headers``.

        Raises:
            AppendError: the set begins below the log end.
            AppendError, CorruptRecordError, LogDirOfflineError, LogClosedError: as ``append_as_leader``.
        """
        return self._append(AppendRequest(records, AppendOrigin.REPLICATION, headers=headers), now_ms)

    def append_many(self, requests: Sequence[AppendRequest], *, now_ms: int) -> list[AppendInfo | LogError]:
        """Append several sets in their order and write them together; return for each set its append or its refusal.

        A set that is refused does not disturb the others. When the disk fails none of them is acknowledged.

        Raises:
            LogDirOfflineError: the log dir is offline already; nothing was done.
            LogClosedError: the log is closed; nothing was done.
        """
        self._state.offline.raise_if_offline()
        self._state.check_writable()
        return append_all(self._state, requests, now_ms=now_ms)

    def assign_leader_epoch(self, epoch: int, start_offset: int) -> None:
        """Note that the leader of ``epoch`` writes from ``start_offset`` on; durable at once.

        Raises:
            ValueError: a negative epoch or offset.
            LogDirOfflineError: the disk failed.
        """
        with self._storage():
            if self._state.leader_epochs is not None:
                self._state.leader_epochs.assign(epoch=epoch, start_offset=start_offset)

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Set the id of the topic; it is written before the next append, or by ``housekeep``.

        Raises:
            LogError: the log has another topic id.
            LogDirOfflineError: the disk failed.
        """
        if self._state.topic_id not in (None, topic_id):
            raise LogError(
                f"{self.topic_partition}: the log is of topic id {self._state.topic_id}, not {topic_id}",
                remedy="the topic was created anew; the old log has to be removed first",
                code=TierErrorCode.INCONSISTENT_TOPIC_ID,
            )
        metadata = self._state.partition_metadata
        if self._state.topic_id is not None or metadata is None:
            return
        self._state.topic_id = topic_id
        with self._storage():
            if not metadata.exists:
                metadata.record(topic_id)

    # Segments and durability

    def roll(self, *, now_ms: int, expected_next_offset: int | None = None) -> LogSegment:
        """Begin another segment, at the log end or at ``expected_next_offset`` if that is above.

        Raises:
            LogDirOfflineError: the disk failed.
        """
        with self._storage():
            return self._state.roll(now_ms=now_ms, expected_next_offset=expected_next_offset)

    def flush(self, *, up_to: int | None = None, including_active: bool = False, now_ms: int | None = None) -> None:
        """Bring everything below ``up_to``, the log end by default, to stable storage.

        Args:
            up_to: exclusive; never more than the log end.
            including_active: an active segment that is still empty gets its index files too.
            now_ms: wall clock, for the log; None where the caller has none.

        Raises:
            LogDirOfflineError: the disk failed.
        """
        with self._storage():
            end = self.log_end_offset
            self._state.flush(end if up_to is None else min(up_to, end), including=including_active, now_ms=now_ms)

    def housekeep(self, now_ms: int) -> None:
        """Sync rolled segments, write files that truncations changed, unlink due files, and expire producers.

        Raises:
            LogDirOfflineError: the disk failed.
        """
        with self._storage():
            log_lifecycle.housekeep(self._state, now_ms)

    def unlink_deleted(self) -> int:
        """Unlink at once the files that wait for their time; return the number of unlinked files.

        Raises:
            LogDirOfflineError: the disk failed.
        """
        with self._storage():
            return self._state.segments.pending_deletions.run_all(self.directory)

    def is_housekeeping_due(self, now_ms: int) -> bool:
        """Return True if ``housekeep`` would find something to do. Safe in any thread; reads no disk."""
        return log_lifecycle.is_housekeeping_due(self._state, now_ms)

    def update_config(self, config: LogConfig) -> None:
        """Take other settings; they count from the next decision on, and open segments keep their indexes' size."""
        expiry_changed_ms = (
            config.producer_id_expiration_check_interval_ms - self.config.producer_id_expiration_check_interval_ms
        )
        self._state.producer_expiry_due_ms += expiry_changed_ms
        self._state.config = config
        self._state.segments.config = config
        self._state.producers.config = config

    # Log start and retention

    def increment_log_start_offset(self, offset: int, *, reason: str) -> bool:
        """Move the log start up; return True if it moved.

        Raises:
            OffsetOutOfRangeError: above the high watermark.
        """
        with self._storage():
            return raise_log_start(self._state, offset, reason=reason)

    def delete_records(self, offset: int) -> int:
        """Raise the log start to ``offset``, or with -1 to the high watermark; return the new log start.

        Raises:
            AppendError: an internal topic, or a topic that is only compacted.
            OffsetOutOfRangeError: negative, or above the high watermark.
        """
        with self._storage():
            return delete_records(self._state, offset)

    def replace_highest_remote_offset(self, offset: int, *, epoch: int) -> bool:
        """Note the leader's report that the tier holds the log through ``offset``, also where that is less than before.

        The leader's offset is taken only while the log has ``offset`` from ``epoch``: a truncation since then is newer.

        Returns:
            True if the report was taken over; always False without a tier.
        """
        if not self.is_tiered or (offset >= 0 and self.leader_epochs.epoch_for(offset) != epoch):
            return False
        self._state.offsets.highest_remote_offset = min(offset, self.log_end_offset - 1)
        return True

    def update_log_start_from_remote_tier(self, offset: int) -> None:
        """Note that the tier has deleted everything below ``offset``. Without a tier nothing changes.

        Raises:
            OffsetOutOfRangeError: above the high watermark.
        """
        if self.is_tiered:
            self.increment_log_start_offset(offset, reason="segment deletion")

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply the topic's retention; return the number of deleted segments.

        Raises:
            LogDirOfflineError: the disk failed.
        """
        with self._storage():
            return delete_old_segments(self._state, now_ms=now_ms)

    # Truncation

    def truncate_to(self, offset: int, *, now_ms: int) -> bool:
        """Cut the log so that it ends at ``offset``; return True if the log was longer.

        Raises:
            ValueError: a negative offset.
            LogError: the segment to cut is damaged, and nothing has changed; or the rest of the log is damaged, and the
                log takes no more calls that change it.
            LogDirOfflineError: the disk failed.
        """
        with self._storage():
            return truncate_to(self._state, offset, now_ms=now_ms)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int, log_start_offset: int | None = None) -> None:
        """Drop every record and begin again at ``offset``, which is also the log start unless another one is given.

        Raises:
            LogDirOfflineError: the disk failed.
        """
        start = offset if log_start_offset is None else log_start_offset
        with self._storage():
            truncate_fully(self._state, offset, log_start_offset=start, now_ms=now_ms)

    # Cleaning and observing

    def observe(self, observer: LogObserver | None) -> None:
        """Report every change from now on to ``observer``; None ends it. A log has at most one observer."""
        self._state.unreported.clear()
        self._state.offsets.observer = observer

    def apply(self, step: Callable[[LogState], _T]) -> _T:
        """Carry out a step of the log cleaner on the log's parts; return what the step returns.

        Raises:
            LogDirOfflineError: the disk failed.
            LogClosedError: the log is closed.
            TierError: an error of ``step``.
        """
        with self._storage():
            return step(self._state)

    # The end

    def rename_directory(self, name: str) -> bool:
        """Give the directory of a log that is deleted or set aside another name; return False when it has that already.

        The new name is durable. The log writes no leader epochs and no topic id any more.

        Args:
            name: within the same log dir.

        Raises:
            LogDirOfflineError: the disk failed.
        """
        with self._storage():
            return log_lifecycle.rename_directory(self._state, name)

    def close(self) -> None:
        """Stop cleanly: all is flushed, the producers' snapshot is taken, and no file is longer than its content.

        A second time does nothing.

        Raises:
            LogDirOfflineError: the disk failed, or the files were closed before.
        """
        if not self._state.is_closed:
            with self._storage():
                log_lifecycle.close(self._state)

    def close_handles(self) -> None:
        """Close the files as they are; the log takes no more calls. A second call does nothing."""
        self._state.close_handles()

    def delete(self) -> None:
        """Remove the segments, the snapshots and the directory; the log takes no more calls.

        Raises:
            LogDirOfflineError: the disk failed.
        """
        with self._storage():
            log_lifecycle.delete(self._state)

    # Internal

    def _append(self, request: AppendRequest, now_ms: int) -> AppendInfo:
        (outcome,) = self.append_many([request], now_ms=now_ms)
        if isinstance(outcome, LogError):
            raise outcome
        return outcome

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """Guard a change of the log's files: refuse it on a closed log; a failure takes the log dir offline."""
        with self._state.offline.storage():
            self._state.check_writable()
            yield
