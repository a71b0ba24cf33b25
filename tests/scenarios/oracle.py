"""Records of Kafka's own consumer, and the comparison of ``tierd cat --json`` with them."""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]


def read_oracle(file: Path) -> list[Record]:
    """Return the records of a ``.jsonl.gz`` file."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def assert_same_records(actual: Sequence[Record], expected: Sequence[Record], *, what: str) -> None:
    """Fail unless both have the same records in the same order; a leader epoch counts if the oracle has one."""
    for n, (got, wanted) in enumerate(zip(actual, expected, strict=False)):
        assert _comparable(got, wanted) == wanted, f"{what}: record {n} differs:\n got {dict(got)}\nwant {dict(wanted)}"
    offsets = [record["offset"] for record in actual]
    if len(actual) != len(expected):
        wanted_offsets = [record["offset"] for record in expected]
        missing = sorted(set(wanted_offsets) - set(offsets))[:5]
        surplus = sorted(set(offsets) - set(wanted_offsets))[:5]
        raise AssertionError(
            f"{what}: {len(actual)} records, {len(expected)} expected; missing {missing}…, surplus {surplus}…, "
            f"last {offsets[-1:]} of {wanted_offsets[-1:]}"
        )


def _comparable(got: Record, wanted: Record) -> dict[str, Any]:
    return {key: value for key, value in got.items() if key in wanted} | (
        {"leaderEpoch": None} if wanted.get("leaderEpoch", 0) is None else {}
    )
