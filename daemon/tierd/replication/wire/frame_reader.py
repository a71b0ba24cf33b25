"""``FrameReader``: guarded reads of one frame. No read goes beyond it, and no length that it claims is allocated."""

import struct
from uuid import UUID

from tierd.errors import DamagedMessageError

_VARINT_BYTES = 5
_UUID_BYTES = 16
MAX_ITEMS = 200_000
"""Items that the arrays of one message may have together: an item takes up to ten times the memory of its bytes."""


class FrameReader:
    """Reader of the fields of a frame without its size, in the flexible encodings of Kafka's protocol (KIP-482)."""

    def __init__(self, frame: memoryview) -> None:
        """Begin at the first byte."""
        self._frame = frame
        self._position = 0
        self._items = 0

    @property
    def left_bytes(self) -> int:
        """Return the number of bytes behind the present position."""
        return len(self._frame) - self._position

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Return the next numbers."""
        start = self._advance(layout.size)
        return layout.unpack_from(self._frame, start)

    def varint(self) -> int:
        """Return the next unsigned varint, of 32 bits."""
        position = self._position
        if position < len(self._frame) and self._frame[position] <= 0x7F:  # most of them
            self._position = position + 1
            return self._frame[position]
        value = 0
        for shift in range(0, 7 * _VARINT_BYTES, 7):
            byte = self._frame[self._advance(1)]
            value |= (byte & 0x7F) << shift
            if byte <= 0x7F:
                return value
        raise self.damaged("a number of more than 32 bits")

    def uuid(self) -> UUID:
        """Return the next 16 bytes."""
        start = self._advance(_UUID_BYTES)
        return UUID(bytes=bytes(self._frame[start : start + _UUID_BYTES]))

    def string(self) -> str:
        """Return the next compact string."""
        size = self.varint()
        if not size:
            raise self.damaged("no text where one belongs")
        return self.text(size - 1)

    def text(self, size_bytes: int) -> str:
        """Return the next bytes as text."""
        start = self._advance(size_bytes)
        try:
            return bytes(self._frame[start : start + size_bytes]).decode()
        except UnicodeDecodeError as error:
            raise self.damaged("text that is not UTF-8") from error

    def records(self) -> memoryview | None:
        """Return the next compact nullable bytes: a part of the frame, not a copy."""
        size = self.varint()
        if not size:
            return None
        start = self._advance(size - 1)
        return self._frame[start : start + size - 1]

    def count(self, *, item_bytes: int) -> int | None:
        """Return the number of items of the next compact array, each of ``item_bytes`` at least; None for no array."""
        count = self.varint() - 1
        if count > self.left_bytes // item_bytes:
            raise self.damaged(f"{count} items of {item_bytes} bytes or more")
        if count < 0:
            return None
        self._items += count
        if self._items > MAX_ITEMS:
            raise self.damaged(f"more than {MAX_ITEMS} items")
        return count

    def skip(self, size_bytes: int) -> None:
        """Pass over bytes."""
        self._advance(size_bytes)

    def damaged(self, problem: str) -> DamagedMessageError:
        """Return the error for the present position."""
        return DamagedMessageError(f"a message of {len(self._frame)} bytes has {problem} before byte {self._position}")

    def _advance(self, size_bytes: int) -> int:
        start = self._position
        if size_bytes > len(self._frame) - start:
            raise self.damaged(f"a field of {size_bytes} bytes and {len(self._frame) - start} bytes left")
        self._position = start + size_bytes
        return start
