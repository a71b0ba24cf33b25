"""ExposedOffsets: the offsets that a log shows to its readers (log-format 4.5).

::

    log start ≤ last stable offset ≤ high watermark ≤ log end
    log start ≤ local log start; the two differ only in a tiered log

Any thread may move the high watermark while the writer of the log appends. High watermark and first unstable offset are
published together, so that no reader takes an undecided transaction for decided.
"""

from dataclasses import dataclass, replace
from threading import RLock

from tierd.errors import OffsetOutOfRangeError
from tierd.log.partition.log_observer import LogObserver
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.records.log_offset import LogOffset
from tierd.log.segments.segmented_log import SegmentedLog


@dataclass(frozen=True, slots=True)
class _Visible:
    high_watermark: LogOffset
    first_unstable: LogOffset | None = None

    @property
    def last_stable(self) -> LogOffset:
        unstable = self.first_unstable
        return unstable if unstable and unstable.offset < self.high_watermark.offset else self.high_watermark


class ExposedOffsets:
    """High watermark, last stable offset and log starts of a log; ``segments`` publishes its log end.

    Attributes:
        lock: guards the producer state and the offsets published from it; no append holds it while it writes.
        highest_remote_offset: inclusive; -1 until something is known to be in the tier.
        observer: is told of every change of the log; None without one.
    """

    def __init__(
        self, segments: SegmentedLog, producers: ProducerStateManager, *, log_start_offset: int, is_tiered: bool
    ) -> None:
        self.lock = RLock()
        self.highest_remote_offset = -1
        self.observer: LogObserver | None = None
        self._segments = segments
        self._producers = producers
        self.local_log_start_offset = max(log_start_offset, segments.segments.values[0].base_offset)
        self.log_start_offset = log_start_offset if is_tiered else self.local_log_start_offset
        self._visible = _Visible(LogOffset(self.log_start_offset))
        self._keep_recovery_point()
        self.refresh_first_unstable()

    @property
    def high_watermark(self) -> LogOffset:
        """Return the exclusive end of the records that every replica has; its place in the log may be unknown."""
        return self._visible.high_watermark

    @property
    def first_unstable(self) -> LogOffset | None:
        """Return the first offset of the earliest transaction that is open, or ended above the high watermark."""
        return self._visible.first_unstable

    @property
    def last_stable(self) -> LogOffset:
        """Return the exclusive end of the records that belong to no undecided transaction."""
        return self._visible.last_stable

    def update_high_watermark(self, candidate: LogOffset) -> int:
        """Set the high watermark, within [log start, log end]; return its new value. It may fall."""
        with self.lock:
            end = self._segments.log_end
            if candidate.offset < self.log_start_offset:
                candidate = LogOffset(self.log_start_offset)
            elif candidate.offset >= end.offset:
                candidate = end
            self._set_high_watermark(candidate)
            return candidate.offset

    def increment_high_watermark(self, candidate: LogOffset) -> bool:
        """Raise it; return whether it rose, or is now known to lie in a newer segment.

        Raises:
            ValueError: above the log end.
        """
        with self.lock:
            end = self._segments.log_end.offset
            if candidate.offset > end:
                raise ValueError(f"high watermark {candidate.offset} is above the log end offset {end}")
            old = self.high_watermark
            rises = candidate.offset > old.offset
            if rises or (candidate.offset == old.offset and old.is_on_older_segment_than(candidate)):
                self._set_high_watermark(candidate)
                return True
            return False

    def follow_log_end(self) -> None:
        """Bring the high watermark down to the log end, or off the end of an older segment."""
        end = self._segments.log_end
        if self._visible.high_watermark.offset < end.offset:
            return
        with self.lock:
            if self._visible.high_watermark.offset >= end.offset:  # no other thread has lowered it meanwhile
                self._set_high_watermark(end)

    def refresh_first_unstable(self) -> None:
        """Publish the first unstable offset of the producer state."""
        with self.lock:
            unstable = self._first_unstable()
            if unstable != self._visible.first_unstable:
                self._visible = replace(self._visible, first_unstable=unstable)

    def cut_highest_remote(self, offset: int) -> None:
        """Lower the highest remote offset below ``offset``, where the log was cut (remote-tiering 17.2)."""
        self.highest_remote_offset = min(self.highest_remote_offset, offset - 1)

    def raise_log_start(self, offset: int) -> bool:
        """Move the log start up; return whether it moved (log-format 10, delete records).

        Raises:
            OffsetOutOfRangeError: above the high watermark.
        """
        with self.lock:
            if offset > self.high_watermark.offset:
                raise OffsetOutOfRangeError(
                    f"the log cannot begin at {offset}, above its high watermark {self.high_watermark.offset}",
                    remedy="ask for an offset up to the high watermark",
                )
            self.local_log_start_offset = max(self.local_log_start_offset, offset)
            if offset <= self.log_start_offset:
                return False
            self.log_start_offset = offset
            self._keep_recovery_point()
            self._producers.on_log_start_incremented(offset)
            self.refresh_first_unstable()
            if self.observer is not None:
                self.observer.on_log_start_offset(self.local_log_start_offset)
            return True

    def raise_local_log_start(self, offset: int) -> bool:
        """Move only the local log start up, over records that are in the tier; return True if it moved."""
        moves = offset > self.local_log_start_offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        if moves and self.observer is not None:
            self.observer.on_log_start_offset(self.local_log_start_offset)
        return moves

    def reset_log_start(self, offset: int, *, local: int | None = None) -> None:
        """Set it after a truncation, lower too; the local one never lies below it."""
        self.log_start_offset = offset
        self.local_log_start_offset = offset if local is None else max(local, offset)

    def locate(self, wanted: LogOffset) -> LogOffset:
        """Return ``wanted`` with its place in the log; an unknown place is looked up and kept.

        An offset that is only in the tier has none.

        Raises:
            OSError: a file cannot be read.
        """
        if not wanted.is_offset_only:
            return wanted
        found = self._segments.reader.locate_if_known(wanted.offset, log_start_offset=self.log_start_offset)
        with self.lock:
            visible = self._visible
            if visible.high_watermark is wanted:
                self._visible = replace(visible, high_watermark=found)
            elif visible.first_unstable is wanted:
                self._visible = replace(visible, first_unstable=found)
        return found

    def _set_high_watermark(self, value: LogOffset) -> None:
        self._producers.on_high_watermark_updated(value.offset)
        self._visible = _Visible(value, self._first_unstable())
        if self.observer is not None:
            self.observer.on_high_watermark(value.offset)

    def _first_unstable(self) -> LogOffset | None:
        unstable = self._producers.first_unstable_offset
        if unstable is None or unstable.offset >= self.log_start_offset:
            return unstable
        return LogOffset(self.log_start_offset)

    def _keep_recovery_point(self) -> None:
        if self._segments.recovery_point < self.log_start_offset:
            self._segments.update_recovery_point(self.log_start_offset)
