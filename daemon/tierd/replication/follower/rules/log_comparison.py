"""LogComparison: a follower's log beside its leader's, from the log end down to a place where both agree. Pure.

Leader epochs and end offsets do not show what a broker does that is killed and keeps its leader epoch: it loses records
that were not flushed, and writes others at their offsets. So a follower compares records, once for each version of the
leader's log (``PartitionLeadership.log_version``)::

    leader     a b c d x y z v w …          e f g were lost, x y z v w were written in the same epoch
    follower   a b c d e f g
                       ▲     ◄─ compared in ranges, each larger than the one before, from the end downwards
                       └─ the follower truncates, and compares once more

    FETCHING ──the leader names another version──► COMPARING ──agrees──► FETCHING with this version
        ▲                                            │   ▲ └─ differs: the range below
        └──────── truncated, or cut once more ◄──────┘   └──────────────────┘
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

ComparedSpan = tuple[int, int]

COMPARED_BYTES: Final = 16 << 10
"""Size of the first range, about. A log that was cut back ends with the batches of before only by a rare coincidence:
producers repeat their last requests, and one batch alone may get the offset that it had before."""
_GROWTH: Final = 4
_MAX_BYTES: Final = 512 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LogComparison:
    """Range that is compared next.

    Attributes:
        version: of the leader's log.
        log_end_offset: of the follower's log; with another one, the comparison begins anew.
        lowest_offset: log start of the leader, below which nothing can be compared.
        below: exclusive end of the range.
        size_bytes: of the range, about.
        start: first offset of the range; None where its size decides.
        differs_at: the lowest offset at which a difference is known; None before the first one.
    """

    version: int
    log_end_offset: int
    lowest_offset: int
    below: int
    size_bytes: int = COMPARED_BYTES
    start: int | None = None
    differs_at: int | None = None

    @property
    def max_bytes(self) -> int:
        """Return the most bytes to ask for: the records of the leader may be larger."""
        return 2 * self.size_bytes

    def go_down(self, start: int, differs_at: int) -> "LogComparison":
        """Return the range below ``start``, after a difference at ``differs_at`` and nothing that agrees."""
        size_bytes = min(self.size_bytes * _GROWTH, _MAX_BYTES)
        return replace(self, below=start, size_bytes=size_bytes, start=None, differs_at=differs_at)


def first_gap(theirs: Iterable[ComparedSpan], own: Iterable[ComparedSpan], *, start: int, end: int) -> int | None:
    """Return the first offset of ``[start, end)`` that batches of one side alone have; None without one.

    A truncation inside a batch leaves a gap before the log end, which the leader may fill with records.

    Args:
        theirs: first and exclusive last offsets of the batches of the leader, ascending.
        own: those of the log.
        start: where both sides were read from.
        end: exclusive.
    """
    for one, other in zip_longest(_joined(theirs, start, end), _joined(own, start, end), fillvalue=(end, end)):
        if one != other:
            return min(one[0], other[0]) if one[0] != other[0] else min(one[1], other[1])
    return None


def _joined(spans: Iterable[ComparedSpan], start: int, end: int) -> list[ComparedSpan]:
    """Return the spans inside of ``[start, end)``, those that touch as one."""
    joined: list[ComparedSpan] = []
    for base, next_offset in spans:
        first, after = max(base, start), min(next_offset, end)
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], after)
        elif first < after:
            joined.append((first, after))
    return joined
