"""Records written anew, in plain Python."""

import struct
from array import array
from itertools import pairwise

from tierd.kernels.arrays import Numbers
from tierd.kernels.columns import RecordFault
from tierd.kernels.reference.varints import FaultError, encode_varint, read_varint, read_varlong, wrap

_HEADER_BYTES = 61
_BASE_TIMESTAMP = struct.Struct(">q")
_LENGTH_AT, _CRC_AT, _BASE_TIMESTAMP_AT, _COUNT_AT = 8, 17, 27, 57


def select_records(
    payload: bytes | memoryview, count: int, keep: Numbers, *, timestamp_shift_ms: int = 0
) -> bytes | RecordFault:
    """Keep some of the records of magic 2 that fill ``payload`` (log-format 2.3 and 9.6).

    Only the length of a record is read, and its timestamp when that changes: ``decode_records`` checks the rest.

    Args:
        payload: records, uncompressed; below 2 GiB.
        count: number of the records.
        keep: bool[count], which of them. Kept ones are copied byte for byte, unless their timestamps move.
        timestamp_shift_ms: number to add to the timestamp deltas: the old base less the new one. Wraps as in Java.

    Returns:
        The kept records, or the fault if the payload does not hold ``count`` records.

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


def rewrite_batches(
    data: bytes | memoryview,
    bounds: Numbers,
    first_record: Numbers,
    keep: Numbers,
    timestamps_ms: tuple[Numbers, Numbers],
) -> tuple[memoryview, memoryview] | RecordFault:
    """Keep some of the records of many batches of magic 2, as the log cleaner does (log-format 9.6).

    A batch that loses no record stays byte for byte; a batch that loses all is left out. Any other batch gets a header
    that fits the kept records, with a checksum of 0.

    Args:
        data: neighbouring batches, uncompressed, that were decoded; below 1 GiB.
        bounds: int64[n + 1], where in ``data`` each begins, and the last one ends; 61 bytes apart at least.
        first_record: int64[n + 1], where in ``keep`` those of each begin, and those of the last one end.
        keep: bool[m], which records.
        timestamps_ms: int64[n] and int64[n], base and maximum of the batches that lose some.

    Returns:
        The batches and the position at which each ends, int64[n]; or the fault of a batch.

    Raises:
        ValueError: bounds that are impossible.
    """
    starts, firsts = check_bounds(data, bounds, first_record, keep, timestamps_ms)
    out, ends = bytearray(), array("q")
    for index, (base_ms, max_ms) in enumerate(zip(*(each.tolist() for each in timestamps_ms), strict=True)):
        batch = data[starts[index] : starts[index + 1]]
        chosen = keep[firsts[index] : firsts[index + 1]]
        count = sum(map(bool, chosen.tolist()))
        if count == len(chosen):
            out += batch
        elif count:
            (old_ms,) = _BASE_TIMESTAMP.unpack_from(batch, _BASE_TIMESTAMP_AT)
            records = select_records(batch[_HEADER_BYTES:], len(chosen), chosen, timestamp_shift_ms=old_ms - base_ms)
            if isinstance(records, RecordFault):
                return records
            out += _header_of(batch, len(records), base_ms, max_ms, count) + records
        ends.append(len(out))
    return memoryview(out), memoryview(ends)


def check_bounds(
    data: bytes | memoryview,
    bounds: Numbers,
    first_record: Numbers,
    keep: Numbers,
    timestamps_ms: tuple[Numbers, Numbers],
) -> tuple[list[int], list[int]]:
    """Check the bounds of batches and of their records, and return them.

    Raises:
        ValueError: bounds that do not ascend, or not far enough, or that lie outside.
    """
    starts, firsts = bounds.tolist(), first_record.tolist()
    gaps = (end - start for start, end in pairwise(starts))
    if not starts or starts[0] < 0 or starts[-1] > len(data) or any(gap < _HEADER_BYTES for gap in gaps):
        raise ValueError(f"{len(data)} bytes have no batches at {starts}")
    if len(firsts) != len(starts) or firsts[0] < 0 or firsts[-1] > len(keep) or firsts != sorted(firsts):
        raise ValueError(f"{len(keep)} choices are not for records that begin at {firsts}")
    if any(len(each) != len(starts) - 1 for each in timestamps_ms):
        raise ValueError(f"timestamps of {[len(each) for each in timestamps_ms]} batches, not of {len(starts) - 1}")
    return starts, firsts


def _header_of(batch: bytes | memoryview, size: int, base_ms: int, max_ms: int, count: int) -> bytearray:
    """Return the header of a batch with other records; of the attributes only the lower byte, which has every flag."""
    header = bytearray(batch[:_HEADER_BYTES])
    struct.pack_into(">i", header, _LENGTH_AT, size + _HEADER_BYTES - 12)
    struct.pack_into(">ib", header, _CRC_AT, 0, 0)
    struct.pack_into(">qq", header, _BASE_TIMESTAMP_AT, base_ms, max_ms)
    struct.pack_into(">i", header, _COUNT_AT, count)
    return header


def _bounds(payload: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the positions at which the body of the record at ``at`` begins and ends."""
    length, body = read_varint(payload, at)
    if length < 0 or body + length > len(payload):
        raise FaultError(RecordFault.RECORD_SIZE)
    return body, body + length


def _shifted(payload: bytes | memoryview, body: int, end: int, shift_ms: int) -> bytes:
    """Return the record with the body from ``body`` to ``end``, its timestamp moved."""
    delta_ms, rest = read_varlong(payload, body + 1)
    if rest > end:
        raise FaultError(RecordFault.NOT_FILLED)
    moved = encode_varint(wrap(delta_ms + shift_ms))
    return _sized(bytes(payload[body : body + 1]) + moved + bytes(payload[rest:end]))


def _sized(body: bytes) -> bytes:
    return encode_varint(len(body)) + body
