"""One record of magic 2 as bytes."""

from collections.abc import Sequence

from tierd.log.records.new_record import NewRecord, append_record
from tierd.log.records.record import Header


def encode_record(
    timestamp_delta_ms: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header] = (),
) -> bytes:
    """Return one record with its length before it."""
    out = bytearray()
    append_record(out, NewRecord(key, value, headers=tuple(headers)), timestamp_delta_ms, offset_delta)
    return bytes(out)
