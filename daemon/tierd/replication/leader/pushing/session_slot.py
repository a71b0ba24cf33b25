"""``SessionSlot``: one push session at its pusher: what the follower lacks, and when the slot is due (2.3, 2.8)."""

from collections import deque
from enum import Enum
from math import floor
from typing import Final

from tierd.replication.leader.logs.leader_log import FileRecords
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.pushing.queued_records import OpeningRange, PendingOffset, QueuedRecords
from tierd.replication.model.push_session import PushSession, PushSessionEndReason

KEEPALIVE_STEPS: Final = 8
"""Moments at which keepalives are due, in the time of one silence."""
NEVER: Final = float("inf")
END_SIGNAL_MAX_S: Final = 60.0


class SlotState(Enum):
    """Life of a slot.

    ::

        OPENING --first records acknowledged--> STREAMING
           |                                        |
           +-------------- end of session ----------+--> STOPPING --signal answered, or 60 s--> ENDED
           +-------------- end without a signal ----+--------------------------------------> ENDED
    """

    OPENING = "opening"
    STREAMING = "streaming"
    STOPPING = "stopping"
    ENDED = "ended"


class AckOutcome(Enum):
    """Position of a follower's log end offset among the records of a slot."""

    TAKEN = "taken"
    BELOW = "below"
    """Below what the follower acknowledged before, or inside a batch."""
    ABOVE = "above"
    """Above what the leader has appended for the session."""


class SessionSlot:
    """Session with the records that its follower has not acknowledged. A lane changes it, one event at a time.

    Attributes:
        next_offset: append offset of the next append; None before the first one.
        acked_offset: log end offset of the follower; requests expect it.
        acked_epoch: leader epoch of the record before ``acked_offset``, -1 for none.
        records: appends behind the opening range, in order.
        unacked_bytes: of ``records`` and of the opening chunk.
        is_in_flight: a request with the slot has no answer; nothing else is sent for the slot.
        not_before_s: end of the wait after a retriable error.
        timer_at_s: time of the slot's next timer; see ``PushTimers``.
    """

    def __init__(self, session: PushSession, pusher: int, now_s: float) -> None:
        """Begin with nothing to send."""
        self.session = session
        self.pusher = pusher
        self.state = SlotState.OPENING
        self.next_offset: int | None = None
        self.acked_offset = -1
        self.acked_epoch = -1
        self.opening: OpeningRange | None = None
        self.records: deque[QueuedRecords] = deque()
        self.unacked_bytes = 0
        self.high_watermark = PendingOffset()
        self.log_start_offset = PendingOffset()
        self.is_in_flight = False
        self.failures = 0
        self.corruptions = 0
        self.not_before_s = 0.0
        self.timer_at_s = NEVER
        self.end_reason: PushSessionEndReason | None = None
        self._progress_at_s = now_s
        self._sent_at_s = now_s
        self._ended_at_s = NEVER

    @property
    def is_live(self) -> bool:
        """Return True until the session ends."""
        return self.state in (SlotState.OPENING, SlotState.STREAMING)

    @property
    def is_waiting(self) -> bool:
        """Return True if the follower lacks records, or the opening request."""
        return bool(self.records) or self.opening is not None

    @property
    def oldest_unacked_at_s(self) -> float:
        """Return the time of the oldest append that the follower lacks; infinite for none."""
        if self.opening is not None:
            return self.opening.queued_at_s
        return self.records[0].queued_at_s if self.records else NEVER

    def begin_with(self, file: FileRecords, last_epoch: int, now_s: float) -> None:
        """Take the file range that closes the gap between follower and leader."""
        self.opening = OpeningRange(file, now_s)
        self.acked_offset, self.acked_epoch = file.first_offset, last_epoch
        self.next_offset = file.next_offset
        self._progress_at_s = now_s

    def append(self, queued: QueuedRecords, next_offset: int, last_epoch: int) -> None:
        """Queue an append; ``last_epoch`` is of the record before it, and counts for a session's first append."""
        if self.next_offset is None:
            self.acked_offset, self.acked_epoch = queued.start_offset, last_epoch
        if not self.is_waiting:
            self._progress_at_s = queued.queued_at_s
        queued.ref.retain(self.pusher)
        self.records.append(queued)
        self.unacked_bytes += queued.ref.size_bytes
        self.next_offset = next_offset

    def load_chunk(self, chunk: QueuedRecords) -> None:
        """Take the chunk that was read, unless the follower has it already."""
        assert self.opening is not None
        chunk.ref.retain(self.pusher)
        self.unacked_bytes += chunk.ref.size_bytes
        self.opening.chunk, self.opening.reservation = chunk, None
        if chunk.end_offset <= self.acked_offset:
            self._drop_acked(self.acked_offset)
            return
        epoch = chunk.skip_to(self.acked_offset)
        if epoch is not None:  # a part of the chunk was acknowledged, and then it was read again
            self.acked_epoch = epoch
        chunk.start_offset = self.acked_offset

    def drop_chunk(self) -> bool:
        """Forget the chunk, so that it is read again; return False if there is none."""
        if self.opening is None or self.opening.chunk is None:
            return False
        self._release(self.opening.chunk)
        self.opening.chunk = None
        return True

    def sendable(self) -> tuple[QueuedRecords, ...] | deque[QueuedRecords]:
        """Return what may be sent now: of a session that opens, the chunk or the first append alone."""
        if self.opening is not None:
            return () if self.opening.chunk is None else (self.opening.chunk,)
        if self.state is SlotState.OPENING:
            return (self.records[0],) if self.records else ()
        return self.records

    def due_at_s(self, settings: PushSettings) -> float:
        """Return the time from which the slot belongs into a request; ``NEVER`` while it is in one, or reads."""
        if self.is_in_flight or self.state is SlotState.ENDED:
            return NEVER
        if self.state is SlotState.STOPPING:
            return max(self._ended_at_s, self.not_before_s)
        if self.state is SlotState.OPENING:
            return self.not_before_s if self._can_open() else NEVER
        due = self._keepalive_at_s(settings)
        if self.records:
            linger = 0.0 if self.unacked_bytes >= settings.batch_min_bytes else settings.linger_s
            due = min(due, self.records[0].queued_at_s + linger)
        for pending in (self.high_watermark, self.log_start_offset):
            if pending.newest > pending.confirmed and pending.to_send(self.acked_offset) >= 0:
                due = min(due, pending.since_s + settings.high_watermark_linger_s)
        return max(due, self.not_before_s)

    def _keepalive_at_s(self, settings: PushSettings) -> float:
        """Return the end of the allowed silence, or up to a step before it: many idle slots share a request then."""
        step_s = settings.keepalive_s / KEEPALIVE_STEPS
        return floor((self._sent_at_s + settings.keepalive_s) / step_s) * step_s

    def deadline_s(self, settings: PushSettings) -> float:
        """Return the time at which the session, or the attempt to report its end, is abandoned."""
        if self.state is SlotState.STOPPING:
            return self._ended_at_s + END_SIGNAL_MAX_S
        if self.is_live and self.is_waiting:
            return self._progress_at_s + settings.session_unacked_max_s
        return NEVER

    def note_sent(self, now_s: float) -> None:
        """Take note of a request with the slot."""
        self.is_in_flight, self._sent_at_s = True, now_s

    def accept(self, log_end_offset: int, now_s: float) -> AckOutcome:
        """Take the follower's log end offset as an acknowledgement; after another outcome the session has to end."""
        assert self.next_offset is not None
        if log_end_offset > self.next_offset:
            return AckOutcome.ABOVE
        if log_end_offset < self.acked_offset or not self._drop_acked(log_end_offset):
            return AckOutcome.BELOW
        if log_end_offset > self.acked_offset:
            self.acked_offset = log_end_offset
            self._note_progress(now_s)
        return AckOutcome.TAKEN

    def note_success(self, now_s: float) -> FileRecords | None:
        """Take note of a request that the follower took; return the file range if it is not needed any more."""
        self.failures = 0
        if self.state is not SlotState.OPENING:
            return None
        if self.opening is None:
            self.state = SlotState.STREAMING
        elif self.opening.is_sent:
            file, self.opening, self.state = self.opening.file, None, SlotState.STREAMING
            self._note_progress(now_s)
            return file
        return None

    def end(self, reason: PushSessionEndReason, now_s: float, *, is_silent: bool) -> FileRecords | None:
        """End the session and release its records; return the file range unless it is being read.

        The slot is ``STOPPING`` until the follower was told, or ``ENDED`` at once with ``is_silent``.
        """
        self.state = SlotState.ENDED if is_silent else SlotState.STOPPING
        self.end_reason, self._ended_at_s = reason, now_s
        self.failures, self.not_before_s = 0, 0.0
        for queued in self.records:
            queued.ref.release(self.pusher)
        self.records.clear()
        self.drop_chunk()
        self.unacked_bytes = 0
        opening, self.opening = self.opening, None
        return None if opening is None or opening.reservation is not None else opening.file

    def _can_open(self) -> bool:
        if self.opening is None:
            return bool(self.records)
        return self.opening.chunk is not None or (self.opening.file.size_bytes == 0)

    def _note_progress(self, now_s: float) -> None:
        self._progress_at_s, self.corruptions = now_s, 0

    def _drop_acked(self, offset: int) -> bool:
        """Drop what lies below ``offset``; return False if it is inside a batch: the session cannot go on."""
        opening = self.opening
        chunk = None if opening is None else opening.chunk
        if chunk is not None and opening is not None:
            if chunk.end_offset > offset:
                return self._skip(chunk, offset)
            self.acked_epoch = chunk.last_epoch
            opening.position += chunk.ref.size_bytes
            self.drop_chunk()
        while self.records and self.records[0].end_offset <= offset:
            queued = self.records.popleft()
            self.acked_epoch = queued.last_epoch
            self._release(queued)
        return not self.records or self._skip(self.records[0], offset)

    def _skip(self, queued: QueuedRecords, offset: int) -> bool:
        if offset <= queued.start_offset:
            return True
        epoch = queued.skip_to(offset)
        if epoch is None:
            return False
        self.acked_epoch = epoch
        return True

    def _release(self, queued: QueuedRecords) -> None:
        self.unacked_bytes -= queued.ref.size_bytes
        queued.ref.release(self.pusher)
