"""OffsetSet: the offsets of a group that are the latest of their key, in little memory, be they dense or sparse."""

from collections.abc import Iterator
from typing import Self

import numpy as np

from tierd.pipeline.rewriting.record_rows import RecordRows

_PAGE_BITS = 16
_PAGE_OFFSETS = 1 << _PAGE_BITS
_LARGEST_LIST = _PAGE_OFFSETS // 16  # two bytes an offset: above that, a bit for every offset takes less


class OffsetSet:
    """Offsets from ``base_offset`` on, in pages of 65536: of a page a bitmap, or a sorted list where that is smaller.

    Attributes:
        base_offset: of the group.
        span: number of offsets of the group: each offset is below ``base_offset + span``.
    """

    def __init__(self, base_offset: int, span: int) -> None:
        """Begin with no offset."""
        self.base_offset = base_offset
        self.span = span
        self._pages: dict[int, np.ndarray] = {}  # uint8[8192], bits from the lowest on; or uint16[n], ascending

    @classmethod
    def of(cls, base_offset: int, end_offset: int, offsets: np.ndarray) -> Self:
        """Return a set of ``offsets``.

        Args:
            base_offset: of the group.
            end_offset: of the group, exclusive.
            offsets: int64[n], in any order.

        Raises:
            ValueError: an offset is not of the group.
        """
        found = cls(base_offset, end_offset - base_offset)
        found.union_in_place(offsets)
        return found

    def __len__(self) -> int:
        return sum(map(_count, self._pages.values()))

    def union_in_place(self, offsets: np.ndarray) -> None:
        """Add offsets, int64[n], in any order.

        Raises:
            ValueError: an offset is not of the group; nothing was added.
        """
        if not offsets.size:
            return
        relative = np.sort(offsets - self.base_offset)  # mostly ascending runs; faster than np.unique by its hashes
        relative = relative[np.diff(relative, prepend=relative[0] - 1) > 0]
        if relative[0] < 0 or relative[-1] >= self.span:
            outside = int(relative[0] if relative[0] < 0 else relative[-1]) + self.base_offset
            raise ValueError(f"offset {outside} is not within {self.span} of {self.base_offset}")
        for number, low in _by_page(relative):
            known = self._pages.get(number)
            self._pages[number] = _packed(low if known is None else np.union1d(_unpacked(known), low))

    def contains(self, offsets: np.ndarray) -> np.ndarray:
        """Return which of ``offsets``, int64[n] ascending, are in the set: bool[n]."""
        relative = offsets - self.base_offset
        if relative.size and relative[0] >> _PAGE_BITS == relative[-1] >> _PAGE_BITS:
            return self._in_page(int(relative[0]) >> _PAGE_BITS, relative & _PAGE_OFFSETS - 1)
        pages = [self._in_page(number, low) for number, low in _by_page(relative)]
        return np.concatenate(pages) if pages else np.zeros(0, dtype=np.bool_)

    def keeps(self, rows: RecordRows) -> np.ndarray:
        """Return which records are the latest of their key, bool[n]: their offsets are in the set."""
        return self.contains(rows.offset)

    def _in_page(self, number: int, low: np.ndarray) -> np.ndarray:
        page = self._pages.get(number)
        if page is None:
            return np.zeros(low.size, dtype=np.bool_)
        if page.dtype == np.uint8:
            found: np.ndarray = (page[low >> 3] >> (low & 7).astype(np.uint8) & 1).astype(np.bool_)
        else:
            found = page[np.minimum(np.searchsorted(page, low), page.size - 1)] == low
        return found


def _by_page(relative: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number and the lower bits of each page's part of ascending offsets."""
    numbers = relative >> _PAGE_BITS
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), relative.size], strict=False):
        yield int(numbers[start]), relative[start:end] & _PAGE_OFFSETS - 1


def _packed(low: np.ndarray) -> np.ndarray:
    if low.size <= _LARGEST_LIST:
        return low.astype(np.uint16)
    bits = np.zeros(_PAGE_OFFSETS, dtype=np.uint8)
    bits[low] = 1
    return np.packbits(bits, bitorder="little")


def _unpacked(page: np.ndarray) -> np.ndarray:
    if page.dtype == np.uint8:
        return np.flatnonzero(np.unpackbits(page, bitorder="little"))
    return page.astype(np.int64)


def _count(page: np.ndarray) -> int:
    return int(np.bitwise_count(page).sum()) if page.dtype == np.uint8 else page.size
