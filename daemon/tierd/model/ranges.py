"""Byte and offset ranges. Both ends are inclusive, as in Kafka and HTTP."""

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes ``start`` to ``end``, both inclusive.

    Raises:
        ValueError: a negative start, or an end before the start.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start < 0 or self.end < self.start:
            raise ValueError(f"bytes {self.start}-{self.end} are no range: 0 <= start <= end")

    @classmethod
    def of_size(cls, start: int, size: int) -> Self:
        """Return the ``size`` bytes from ``start`` on; ``size`` is at least 1."""
        return cls(start, start + size - 1)

    @property
    def size(self) -> int:
        """Return the size of the range in bytes, before any clipping."""
        return self.end - self.start + 1

    def clipped(self, object_size: int) -> Self | None:
        """Return the part that lies in an object of ``object_size`` bytes, None when there is none."""
        if self.start >= object_size:
            return None
        return type(self)(self.start, min(self.end, object_size - 1))


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start`` to ``end``, both inclusive.

    Raises:
        ValueError: a negative start, or an end before the start.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start < 0 or self.end < self.start:
            raise ValueError(f"offsets {self.start}-{self.end} are no range: 0 <= start <= end")

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset <= self.end

    def __str__(self) -> str:
        return f"[{self.start}-{self.end}]"
