"""LogEndHistory: the log end offsets and sizes of the last time, in bounded memory, for lags. Pure.

::

    marks     | older, merged in pairs again and again | newer, one per append or millisecond |
               since 0 s: end 500     since 8 s: end 900   9.001 s: end 910   9.004 s: end 915
"""

from bisect import bisect_right
from typing import Final, NamedTuple

MARKS: Final = 128
_RESOLUTION_S: Final = 0.001


class _Mark(NamedTuple):
    since_s: float
    end_offset: int  # at the end of the time that begins with ``since_s``
    total_bytes: int  # appended since the history began, at that moment


class LogEndHistory:
    """Log ends by time. An answer about old times may be too high, and never too low."""

    def __init__(self, log_end_offset: int, now_s: float) -> None:
        """Begin with the present log end."""
        self._marks = [_Mark(now_s, log_end_offset, 0)]
        self._seen_bytes = self._seen_offsets = 0

    @property
    def log_end_offset(self) -> int:
        """Return the newest log end."""
        return self._marks[-1].end_offset

    def note(self, end_offset: int, size_bytes: int, now_s: float) -> None:
        """Take note of an append of ``size_bytes`` that ends at ``end_offset``."""
        last = self._marks[-1]
        self.note_size(end_offset - last.end_offset, size_bytes)
        total_bytes = last.total_bytes + size_bytes
        if now_s - last.since_s < _RESOLUTION_S and len(self._marks) > 1:
            self._marks[-1] = _Mark(last.since_s, end_offset, total_bytes)
            return
        self._marks.append(_Mark(now_s, end_offset, total_bytes))
        if len(self._marks) > MARKS:
            self._merge_older()

    def note_size(self, offsets: int, size_bytes: int) -> None:
        """Take note of the size of records that were read, for estimates."""
        self._seen_offsets += max(offsets, 0)
        self._seen_bytes += size_bytes

    def end_at(self, at_s: float) -> int:
        """Return the log end at a time; of a time before the history, the first log end that is known."""
        index = bisect_right(self._marks, at_s, key=lambda mark: mark.since_s)
        return self._marks[max(index - 1, 0)].end_offset

    def bytes_after(self, offset: int) -> int:
        """Return the size of the records from ``offset`` on, at most a few appends too high; older ones by estimate."""
        index = bisect_right(self._marks, offset, key=lambda mark: mark.end_offset)
        total = self._marks[-1].total_bytes
        if index:
            return total - self._marks[index - 1].total_bytes
        return total + round((self._marks[0].end_offset - offset) * self._bytes_per_offset)

    @property
    def _bytes_per_offset(self) -> float:
        return self._seen_bytes / self._seen_offsets if self._seen_offsets else 0.0

    def _merge_older(self) -> None:
        """Merge pairs of the older half. The first mark, of the time before all appends, stays exact."""
        first, half = self._marks[0], len(self._marks) // 2 // 2 * 2 + 1
        older = self._marks[1:half]
        merged = [late._replace(since_s=early.since_s) for early, late in zip(older[::2], older[1::2], strict=True)]
        self._marks = [first, *merged, *self._marks[half:]]
