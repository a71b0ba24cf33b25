"""RestoredChangelog: one changelog in the reader, as a state machine that does no I/O (changelog-restore 2.1 and 2.2).

::

    REGISTERED ──bounds known, start announced──► RESTORING ──end reached (active only)──► COMPLETED

A standby stays RESTORING for ever. A changelog that has to begin anew is registered anew.
"""

from bisect import bisect_left
from enum import Enum
from itertools import accumulate
from typing import Final

from tierd.model import Lineage, TopicPartition
from tierd.restore.changelog.changelog_errors import IllegalRestoreError, IllegalTransitionError
from tierd.restore.changelog.changelog_source import ChangelogIdentity, ChangelogRecords, ReadResult
from tierd.restore.changelog.reader.restore_task import RestoreTask, TaskType
from tierd.restore.changelog.restore_listener import RestoreListener
from tierd.restore.changelog.restore_store import RestoreStore


class ChangelogState(Enum):
    """State of one changelog; the diagram is above."""

    REGISTERED = "registered"
    RESTORING = "restoring"
    COMPLETED = "completed"


_MOVES: Final = frozenset(
    {
        (ChangelogState.REGISTERED, ChangelogState.RESTORING),
        (ChangelogState.RESTORING, ChangelogState.COMPLETED),
    }
)


class RestoredChangelog:
    """One changelog: its bounds, its position, and the records that were read and not yet applied.

    Attributes:
        limit_group: consumer group whose committed offset limits the restore; None unless the changelog is a source
            topic.
        store_offset: last applied offset; None where none was applied.
        leader_epoch: of the record at ``store_offset``; -1 where it is not known.
        identity: the changelog's when it was looked up; its lineage reaches to ``known_end_offset``, the log end of
            that moment.
        looked_up_ms: wall clock before ``known_end_offset`` was looked up.
        read_since_ms: wall clock as in ``CheckpointMeta``; what is read within ``delete.retention.ms`` of it misses no
            deletion.
        asked_ms: wall clock before the last read.
        position: next offset to read; None until the beginning of the changelog was looked up.
        starting_offset: position at the start.
        log_end_offset: end of the changelog as last seen, exclusive.
        total_restored: records applied since the start.
        size_bytes: log bytes read since the start; ``remote_bytes`` of them from the tier.
        is_idle: the last read found nothing after ``position``.
        has_ended: the listener was told that the restore ends early; nothing follows for this object.
    """

    def __init__(
        self,
        partition: TopicPartition,
        task: RestoreTask,
        store: RestoreStore,
        *,
        limit_group: str | None,
        listener: RestoreListener,
    ) -> None:
        self.partition = partition
        self.task = task
        self.store = store
        self.limit_group = limit_group
        self.listener = listener
        self.identity = ChangelogIdentity(topic_id=None, lineage=Lineage(), delete_retention_ms=None)
        self.store_offset: int | None = None
        self.leader_epoch = -1
        self.position: int | None = None
        self.starting_offset = 0
        self.log_end_offset = 0
        self.known_end_offset = 0
        self.looked_up_ms = 0
        self.read_since_ms = 0
        self.asked_ms = 0
        self.total_restored = 0
        self.size_bytes = 0
        self.remote_bytes = 0
        self.is_idle = False
        self.has_ended = False
        self._state = ChangelogState.REGISTERED
        # A standby of a source topic applies nothing before the committed offset is known.
        self._end_offset = 0 if limit_group is not None and not self.is_active else None
        self._buffer = ChangelogRecords()
        self._limit_index = 0  # invariant: 0 <= _limit_index <= len(_buffer)
        self._deadline_s: float | None = None
        self._is_checkpointed = False  # invariant: if True, the checkpoint has the offset _checkpointed_offset
        self._checkpointed_offset: int | None = None

    @property
    def is_active(self) -> bool:
        """Return True for a changelog of an active task, False for that of a standby."""
        return self.task.type is TaskType.ACTIVE

    @property
    def state(self) -> ChangelogState:
        """Return the present state."""
        return self._state

    @property
    def end_offset(self) -> int | None:
        """Return the exclusive end up to which records are applied; None where it is not known or there is none."""
        return self._end_offset

    @property
    def buffered(self) -> int:
        """Return the number of records that were read and not yet applied."""
        return len(self._buffer)

    @property
    def applicable(self) -> int:
        """Return the number of buffered records that lie below the end."""
        return self._limit_index

    @property
    def remaining(self) -> int:
        """Return the offsets that are left; a standby counts to the log end. Never negative: a log may shrink."""
        end = self._end_offset if self.is_active else self.log_end_offset
        return max((end or 0) - (self.position or 0), 0)

    def transit(self, state: ChangelogState) -> None:
        """Move on to ``state``.

        Raises:
            IllegalTransitionError: the diagram has no such move, or a standby would be completed.
        """
        is_standby_end = state is ChangelogState.COMPLETED and not self.is_active
        if (self._state, state) not in _MOVES or is_standby_end:
            raise IllegalTransitionError(f"changelog {self.partition}", self._state.name, state.name)
        self._state = state

    @property
    def has_moved(self) -> bool:
        """Return True unless the checkpoint has the present offset, and facts of this run beside it."""
        if self._state is ChangelogState.REGISTERED:
            return False
        return not self._is_checkpointed or self.store_offset != self._checkpointed_offset

    @property
    def offsets_to_checkpoint(self) -> int:
        """Return the offsets that the store advanced since the last checkpoint."""
        return _next(self.store_offset) - _next(self._checkpointed_offset)

    def begin_after(self, offset: int | None, *, position: int | None, log_end_offset: int) -> None:
        """Set the start: after the last applied ``offset``, or at the beginning.

        Args:
            offset: last applied; None for the beginning.
            position: next offset to read; None if the beginning could not be looked up.
            log_end_offset: exclusive.
        """
        self.store_offset = self._checkpointed_offset = offset
        self.leader_epoch = -1 if offset is None else self._epoch_of(offset)
        self.position = position
        self.starting_offset = position or 0
        self.log_end_offset = self.known_end_offset = log_end_offset

    def checkpointed(self, offset: int | None) -> None:
        """Note that the checkpoint has ``offset``."""
        self._is_checkpointed = True
        self._checkpointed_offset = offset

    def limit_once(self, end_offset: int) -> None:
        """Set the end of an active restore, which stays.

        Raises:
            IllegalRestoreError: the end is known already, or the changelog is that of a standby.
        """
        if self._end_offset is not None:
            raise IllegalRestoreError(f"the end of changelog {self.partition} is set a second time")
        self._end_offset = end_offset

    def raise_limit(self, committed_offset: int) -> None:
        """Let a standby of a source topic apply records up to ``committed_offset``, exclusive.

        Raises:
            IllegalRestoreError: the limit is higher already: a committed offset never goes down.
        """
        if committed_offset < (self._end_offset or 0):
            raise IllegalRestoreError(
                f"the committed offset of {self.partition} went from {self._end_offset} down to {committed_offset}"
            )
        self._end_offset = committed_offset
        self._limit_index = bisect_left(self._buffer.offsets, committed_offset)

    def buffer(self, read: ReadResult) -> int:
        """Take what a read from ``position`` returned, and return the number of records without a key, left out."""
        if read.at_end and read.next_offset == self.position:
            self.read_since_ms = self.asked_ms
        records = read.records.with_keys()
        self._buffer.extend(records)
        end = self._end_offset
        self._limit_index = len(self._buffer) if end is None else bisect_left(self._buffer.offsets, end)
        self.position = read.next_offset
        self.log_end_offset = max(self.log_end_offset, read.next_offset)
        self.size_bytes += read.size_bytes
        self.remote_bytes += read.remote_bytes
        self.is_idle = read.at_end
        return len(read.records) - len(records)

    def is_batch_due(self, *, batch_records: int, batch_bytes: int) -> bool:
        """Return True if records are to be applied: a batch is full, or no more come before the end."""
        if not self._limit_index:
            return False
        is_last = self.is_idle or self._limit_index < len(self._buffer) or self._is_position_at_end()
        if is_last or self._limit_index >= batch_records:
            return True
        return self._buffer.part(0, self._limit_index).payload_bytes >= batch_bytes

    def next_batch(self, *, batch_records: int, batch_bytes: int) -> ChangelogRecords:
        """Return the next records to apply; they stay in the buffer until ``applied``.

        At most ``batch_records``, and no more than it takes to reach ``batch_bytes`` of keys and values.
        """
        batch = self._buffer.part(0, min(self._limit_index, batch_records))
        if batch.payload_bytes <= batch_bytes:
            return batch
        sizes = (len(key or b"") + len(value or b"") for key, value in zip(batch.keys, batch.values, strict=True))
        return batch.part(0, bisect_left(list(accumulate(sizes)), batch_bytes) + 1)

    def applied(self, batch: ChangelogRecords) -> None:
        """Note that the store has ``batch``, the first records of the buffer."""
        self._buffer.drop(len(batch))
        self._limit_index -= len(batch)
        self.store_offset = batch.offsets[-1]
        epoch = batch.leader_epochs[-1]
        self.leader_epoch = epoch if epoch >= 0 else self._epoch_of(batch.offsets[-1])
        self.total_restored += len(batch)
        self._deadline_s = None

    def completed(self) -> None:
        """Note that every record below the end is in the store."""
        if self._end_offset == self.known_end_offset:
            self.read_since_ms = self.looked_up_ms

    def is_complete(self) -> bool:
        """Return True if every record below the end is in the store; a standby is never complete."""
        if not self.is_active or self._end_offset is None:
            return False
        if self._end_offset == 0:
            return True
        return self._buffer.offsets[0] >= self._end_offset if self._buffer else self._is_position_at_end()

    def note_failure(self, now_s: float, *, timeout_s: float) -> bool:
        """Note a failure, or a time without progress; return True if the deadline has passed.

        The first failure sets the deadline. Progress clears it.
        """
        if self._deadline_s is None:
            self._deadline_s = now_s + timeout_s
        return now_s > self._deadline_s

    def note_progress(self) -> None:
        """Clear the deadline."""
        self._deadline_s = None

    @property
    def has_deadline(self) -> bool:
        """Return True if there was a failure since the last progress."""
        return self._deadline_s is not None

    @property
    def wants_more(self) -> bool:
        """Return True if a read would bring records that the restore needs, as far as is known."""
        return not self.is_idle and not self._is_position_at_end()

    def _epoch_of(self, offset: int) -> int:
        epoch = self.identity.lineage.epoch_for(offset)
        return -1 if epoch is None else epoch

    def _is_position_at_end(self) -> bool:
        return self._end_offset is not None and self.position is not None and self.position >= self._end_offset


def _next(offset: int | None) -> int:
    return 0 if offset is None else offset + 1
