"""Rows of the readers in Python, in the form of the oracles."""

import base64
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tierd.arrow import TIMESTAMP_TYPES

_TYPE_NAMES = {number: name for name, number in TIMESTAMP_TYPES.items()}


def by_partition(table: pa.Table) -> dict[str, list[dict[str, Any]]]:
    """Return the rows by the name of their partition, as the oracles have them."""
    milliseconds = table.column("timestamp").cast(pa.int64()).to_pylist()
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row, timestamp_ms in zip(table.drop_columns(["timestamp"]).to_pylist(), milliseconds, strict=True):
        found[f"{row['topic']}-{row['partition']}"].append(_as_oracle(row, timestamp_ms))
    return found


def offsets_of(table: pa.Table) -> list[tuple[int, int]]:
    """Return partition and offset of every row, in order."""
    rows = table.select(["partition", "offset"]).to_pylist()
    return [(row["partition"], row["offset"]) for row in rows]


def _as_oracle(row: Mapping[str, Any], timestamp_ms: int | None) -> dict[str, Any]:
    return {
        "offset": row["offset"],
        "timestamp": timestamp_ms,
        "timestampType": _TYPE_NAMES[row["timestampType"]],
        "leaderEpoch": row["leaderEpoch"],
        "key": _text(row["key"]),
        "value": _text(row["value"]),
        "headers": [[header["key"], _text(header["value"])] for header in row["headers"]],
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()
