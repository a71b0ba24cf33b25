"""Records as lines: JSON for programs (a contract, see docs), and text for people."""

import json
from base64 import b64encode
from datetime import UTC, datetime

from tierd.control_characters import visible
from tierd.log import Record


def as_json_line(record: Record) -> bytes:
    """Return one JSON object with a newline at its end."""
    line = {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestampType": record.timestamp_type,
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
        "leaderEpoch": record.leader_epoch,
    }
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def as_text_line(record: Record) -> bytes:
    """Return offset, timestamp, key and value between tabs; no byte of a record can move the cursor or hide a line."""
    fields = (str(record.offset), _time(record.timestamp_ms), _text(record.key), _text(record.value))
    return "\t".join(fields).encode() + b"\n"


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


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
