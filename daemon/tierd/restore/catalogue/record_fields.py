"""RecordFields: fields of the records of Kafka's own topics, read from front to back; kio lacks these schemas.

Numbers are big-endian. A string is an ``int16`` length and UTF-8. The compact forms begin with an unsigned varint of
the length plus one.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

_MAX_VARINT_BYTES: Final = 5


class RecordFields:
    """Bytes of one key or value.

    Args:
        data: the bytes.
        error: makes the exception that is raised for bytes of another form, from its message.
    """

    def __init__(self, data: bytes, error: Callable[[str], Exception]) -> None:
        self._data = data
        self._error = error
        self._at = 0

    def number(self, form: str) -> int:
        """Read a number of a format of ``struct``."""
        number: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return number

    def unsigned_varint(self) -> int:
        """Read an unsigned varint of at most 35 bits."""
        value = 0
        for index in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise self._error("a number of more than five bytes")

    def uuid(self) -> UUID:
        """Read a UUID."""
        return UUID(bytes=self.take(16))

    def text(self) -> str:
        """Read a string."""
        return self._decoded(self.number(">h"))

    def compact_text(self) -> str:
        """Read a compact string."""
        return self._decoded(self.unsigned_varint() - 1)

    def compact_numbers(self) -> tuple[int, ...]:
        """Read a compact array of ``int32``; null is empty."""
        return tuple(self.number(">i") for _ in range(self.unsigned_varint() - 1))

    def tagged(self) -> Iterator[tuple[int, bytes]]:
        """Read the tagged fields at the end of a structure: tag and content of each."""
        for _ in range(self.unsigned_varint()):
            tag, size = self.unsigned_varint(), self.unsigned_varint()
            yield tag, self.take(size)

    def take(self, size: int) -> bytes:
        """Read bytes."""
        end = self._at + size
        if end > len(self._data):
            raise self._error(f"the bytes end at {len(self._data)}, inside a field")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _decoded(self, size: int) -> str:
        if size < 0:
            raise self._error(f"a text of {size} bytes")
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise self._error("a text that is not UTF-8") from error
