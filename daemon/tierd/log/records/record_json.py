"""JSON of records: a contract of ``tierd cat --json`` and of exports (docs/formats.md)."""

import json
from base64 import b64encode

from tierd.log.records.record import Record


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


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()
