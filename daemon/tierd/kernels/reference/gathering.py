"""Fields of many records brought together, in plain Python."""

from array import array
from collections.abc import Sequence

from tierd.kernels.arrays import Gathered, GatheredHeaders, Numbers, as_array
from tierd.kernels.columns import RecordFault
from tierd.kernels.reference.varints import FaultError, read_field

MOST_BYTES = (1 << 31) - 1
"""What offsets of 32 bits can count."""


def gather(payload: bytes | memoryview, starts: Numbers, sizes: Numbers) -> Gathered:
    """Copy fields behind one another, without the bytes between them: a column for Arrow.

    Args:
        payload: the bytes that hold the fields.
        starts: int32[n], where each begins, as in ``Columns``.
        sizes: int32[n]; a negative one is null, wherever it starts.

    Raises:
        ValueError: columns of different lengths, a field beyond the payload, or fields that overlap so much that they
            are 2 GiB or more.
    """
    fields = [
        _slice(payload, start, size) if size >= 0 else None
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    ]
    return _gathered(fields)


def gather_headers(
    payload: bytes | memoryview, headers_start: Numbers, header_count: Numbers
) -> GatheredHeaders | RecordFault:
    """Copy the headers of many records behind one another: a column of lists for Arrow.

    Args:
        payload: the bytes that hold the headers; below 2 GiB.
        headers_start: int32[n], where the first header of each record begins, as in ``Columns``.
        header_count: int32[n].

    Returns:
        The headers, with U+FFFD for what is no UTF-8 in a key, as in ``log.record``; or why there are no such headers.

    Raises:
        ValueError: columns of different lengths.
    """
    counts = header_count.tolist()
    rows = list(zip(headers_start.tolist(), counts, strict=True))
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    if min(counts, default=0) < 0 or 2 * sum(counts) > len(payload):
        return RecordFault.HEADER_COUNT
    offsets = array("i", [0])
    try:
        for start, count in rows:
            _add_headers(payload, start, count, keys, values)
            offsets.append(len(keys))
    except IndexError:
        return RecordFault.BYTES_END
    except FaultError as error:
        return error.fault
    return GatheredHeaders(as_array(offsets), as_text(keys), _gathered(values))


def as_text(keys: Sequence[bytes | None]) -> Gathered:
    """Return keys of headers, none null, with U+FFFD for bytes that are no UTF-8."""
    return _gathered([(key or b"").decode("utf-8", errors="replace").encode() for key in keys])


def _add_headers(
    payload: bytes | memoryview, at: int, count: int, keys: list[bytes | None], values: list[bytes | None]
) -> None:
    for _ in range(count):
        if at < 0:
            raise FaultError(RecordFault.BYTES_END)
        start, size, at = read_field(payload, at, len(payload))
        if size < 0:
            raise FaultError(RecordFault.HEADER_NAME)
        keys.append(bytes(payload[start : start + size]))
        start, size, at = read_field(payload, at, len(payload))
        values.append(bytes(payload[start : start + size]) if size >= 0 else None)


def _slice(payload: bytes | memoryview, start: int, size: int) -> bytes:
    if size and (start < 0 or start + size > len(payload)):
        raise ValueError(f"{size} bytes at {start} reach beyond the {len(payload)} of the payload")
    return bytes(payload[start : start + size])


def _gathered(fields: Sequence[bytes | None]) -> Gathered:
    offsets, validity = array("i", [0]), array("B", bytes((len(fields) + 7) // 8))
    total = 0
    for index, field in enumerate(fields):
        total += len(field or b"")
        if total > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes of fields")
        offsets.append(total)
        validity[index // 8] |= (field is not None) << index % 8
    return Gathered(as_array(offsets), as_array(array("B", b"".join(filter(None, fields)))), as_array(validity))
