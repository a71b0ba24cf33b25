"""Records written anew, in plain Python."""

from collections.abc import Sequence

from tierd.kernels.arrays import Numbers
from tierd.kernels.columns import RecordFault
from tierd.kernels.reference.varints import FaultError, encode_varint, read_varint, read_varlong, wrap


def select_records(
    payload: bytes | memoryview, count: int, keep: Numbers, *, timestamp_shift_ms: int = 0
) -> bytes | RecordFault:
    """Keep some of the records of magic 2 that fill ``payload`` (log-format 2.3 and 9.6).

    Only the length of a record is looked at, and its timestamp when that changes: ``decode_records`` tells whether the
    rest is sound.

    Args:
        payload: records, uncompressed; below 2 GiB.
        count: how many.
        keep: bool[count], which of them. Kept ones are copied byte for byte, unless their timestamps move.
        timestamp_shift_ms: what to add to the timestamp deltas: the old base less the new one. Wraps as in Java.

    Returns:
        The kept records, or why the payload holds no ``count`` records.

    Raises:
        ValueError: ``keep`` has another length than ``count``, which is not negative.
    """
    if count < 0:
        return RecordFault.NEGATIVE_COUNT
    if len(keep) != count:
        raise ValueError(f"{len(keep)} choices for {count} records")
    shift_ms, at = wrap(timestamp_shift_ms), 0
    kept: list[bytes | memoryview] = []
    try:
        for is_kept in keep.tolist():
            body, end = _bounds(payload, at)
            if is_kept:
                kept.append(_shifted(payload, body, end, shift_ms) if shift_ms else payload[at:end])
            at = end
    except IndexError:
        return RecordFault.BYTES_END
    except FaultError as error:
        return error.fault
    return b"".join(kept) if at == len(payload) else RecordFault.BYTES_LEFT


def encode_records(
    offset_delta: Numbers,
    timestamp_delta_ms: Numbers,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[bytes] = (),
) -> bytes:
    """Encode records of magic 2, one behind the other (log-format 2.3).

    Args:
        offset_delta: int32[n].
        timestamp_delta_ms: int64[n].
        keys: n of them.
        values: n of them.
        headers: of each record what follows its value: the count of its headers and the headers, encoded; no bytes
            stand for none. May be empty when no record has any.

    Raises:
        ValueError: columns of different lengths.
    """
    columns = (offset_delta.tolist(), timestamp_delta_ms.tolist(), keys, values, headers or [b""] * len(keys))
    return b"".join(
        _sized(b"\0" + encode_varint(stamp_ms) + encode_varint(offset) + _field(key) + _field(value) + (rest or b"\0"))
        for offset, stamp_ms, key, value, rest in zip(*columns, strict=True)
    )


def _bounds(payload: bytes | memoryview, at: int) -> tuple[int, int]:
    """Where the body of the record at ``at`` begins, and where it ends."""
    length, body = read_varint(payload, at)
    if length < 0 or body + length > len(payload):
        raise FaultError(RecordFault.RECORD_SIZE)
    return body, body + length


def _shifted(payload: bytes | memoryview, body: int, end: int, shift_ms: int) -> bytes:
    """The record with the body from ``body`` to ``end``, its timestamp moved."""
    delta_ms, rest = read_varlong(payload, body + 1)
    if rest > end:
        raise FaultError(RecordFault.NOT_FILLED)
    moved = encode_varint(wrap(delta_ms + shift_ms))
    return _sized(bytes(payload[body : body + 1]) + moved + bytes(payload[rest:end]))


def _sized(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def _field(content: bytes | None) -> bytes:
    return encode_varint(-1) if content is None else _sized(content)
