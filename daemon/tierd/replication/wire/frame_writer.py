"""``FrameWriter``: a frame as pieces for ``writelines``: small pieces of its own, and record bytes that are not copied.

::

    int32 size | head | fields ... | records of the caller | fields ... | records of the caller | fields
"""

import struct
from collections.abc import Sequence
from uuid import UUID

from tierd.replication.model.messages import RecordBytes

SIZE_BYTES = 4
COPIED_BYTES = 1024
"""Records of fewer bytes are copied: a piece of its own, and with TLS a TLS record of its own, costs more."""


class FrameWriter:
    """Writer of one frame, in the flexible encodings of Kafka's protocol (KIP-482)."""

    def __init__(self) -> None:
        """Begin with room for the size."""
        self._pieces: list[RecordBytes] = []
        self._chunk = bytearray(SIZE_BYTES)
        self._written_bytes = 0

    def pack(self, layout: struct.Struct, *values: int) -> None:
        """Append numbers."""
        self._chunk += layout.pack(*values)

    def varint(self, value: int) -> None:
        """Append an unsigned varint."""
        while value > 0x7F:
            self._chunk.append(value & 0x7F | 0x80)
            value >>= 7
        self._chunk.append(value)

    def uuid(self, value: UUID) -> None:
        """Append 16 bytes."""
        self._chunk += value.bytes

    def string(self, value: str) -> None:
        """Append a compact string."""
        data = value.encode()
        self.varint(len(data) + 1)
        self._chunk += data

    def records(self, pieces: Sequence[RecordBytes] | None) -> None:
        """Append compact nullable bytes; pieces of ``COPIED_BYTES`` or more are kept, not copied."""
        if pieces is None:
            self.varint(0)
            return
        self.varint(sum(map(len, pieces)) + 1)
        for piece in pieces:
            if len(piece) < COPIED_BYTES:
                self._chunk += piece
            else:
                self._end_chunk()
                self._pieces.append(piece)
                self._written_bytes += len(piece)

    def raw(self, data: bytes) -> None:
        """Append bytes as they are."""
        self._chunk += data

    def finish(self) -> list[RecordBytes]:
        """Return the pieces of the frame, its size first."""
        self._end_chunk()
        first = bytearray(self._pieces[0])
        first[:SIZE_BYTES] = (self._written_bytes - SIZE_BYTES).to_bytes(SIZE_BYTES, "big")
        self._pieces[0] = bytes(first)
        return self._pieces

    def _end_chunk(self) -> None:
        if self._chunk:
            self._pieces.append(bytes(self._chunk))
            self._written_bytes += len(self._chunk)
            self._chunk = bytearray()
