"""Records as lines of text, for people."""

from datetime import UTC, datetime

from tierd.control_characters import visible
from tierd.log import Record


def as_text_line(record: Record) -> bytes:
    """Return offset, timestamp, key and value between tabs; no byte of a record can move the cursor or hide a line."""
    fields = (str(record.offset), _time(record.timestamp_ms), _text(record.key), _text(record.value))
    return "\t".join(fields).encode() + b"\n"


def _time(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):  # records may carry any 64-bit number
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z" if timestamp_ms >= 0 else str(timestamp_ms)


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    return visible(data.decode("utf-8", errors="backslashreplace"))
