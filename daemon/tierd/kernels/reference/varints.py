"""Numbers of zigzag and base 128, read and written (log-format 2.3); faults are raised and caught in this package."""

from tierd.kernels.columns import RecordFault

_INT_MASK = 0xFFFFFFFF
_LONG_MASK = 0xFFFFFFFFFFFFFFFF


class FaultError(Exception):
    """Bytes that are no records; the kernels return the fault to their callers instead."""

    def __init__(self, fault: RecordFault) -> None:
        super().__init__(fault)
        self.fault = fault


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return value and end of a number of 32 bits."""
    value, at = _groups(data, at, 5)
    value &= _INT_MASK
    return (value >> 1) ^ -(value & 1), at


def read_varlong(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return value and end of a number of 64 bits."""
    value, at = _groups(data, at, 10)
    value &= _LONG_MASK
    return (value >> 1) ^ -(value & 1), at


def _groups(data: bytes | memoryview, at: int, most: int) -> tuple[int, int]:
    value = 0
    for index in range(most):
        byte = data[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    raise FaultError(RecordFault.NUMBER_TOO_LONG)


def encode_varint(number: int) -> bytes:
    """Encode a number of 32 or 64 bits in as few bytes as it takes."""
    rest = (number << 1) ^ (number >> 63)
    groups = bytearray()
    while rest > 0x7F:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    groups.append(rest)
    return bytes(groups)


def read_field(data: bytes | memoryview, at: int, end: int) -> tuple[int, int, int]:
    """Return start, size (-1 for null) and end of a field."""
    size, at = read_varint(data, at)
    if size == -1:
        return at, -1, at
    if size < 0 or at + size > end:
        raise FaultError(RecordFault.FIELD_SIZE)
    return at, size, at + size


def wrap(number: int) -> int:
    """Wrap a number into a signed 64-bit one, as Java adds."""
    number &= _LONG_MASK
    return number - (1 << 64) if number >> 63 else number
