"""AbortedRanges: offsets of aborted transactions, by producer."""

from bisect import bisect_right
from collections.abc import Iterable

from tierd.log import AbortedTransaction


class AbortedRanges:
    """Lookup of aborted transactions; a producer has one transaction at a time, so its ranges do not overlap."""

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        """Sort the transactions; one that is given twice counts once."""
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for each in transactions:
            self._ranges.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
        for ranges in self._ranges.values():
            ranges.sort()

    def contains(self, producer_id: int, offset: int) -> bool:
        """Return True if a transaction of the producer was aborted that has the record at ``offset``."""
        ranges = self._ranges.get(producer_id)
        if ranges is None:
            return False
        at = bisect_right(ranges, offset, key=lambda each: each[0])
        return at > 0 and offset <= ranges[at - 1][1]
