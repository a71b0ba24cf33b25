"""A Kafka Streams application that is one global table, through ``GlobalTableHarness.java``."""

import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from tests.services.kafka_clients.partitions import isolation_level
from tests.services.kafka_node import KAFKA_SCRIPT, kafka_environment

_DEADLINE_S = 90.0
_END = "filled"

Table = dict[str, str]
"""Values by key, both in Base64."""


def read_tables(bootstrap: str, topic: str, *, version: str) -> dict[bool, Table]:
    """Return the table when it is filled, without (False) and with (True) the isolation of committed records."""
    isolations = (False, True)
    with tempfile.TemporaryDirectory() as state_dir:
        harness = str(KAFKA_SCRIPT.parent / "GlobalTableHarness.java")
        done = subprocess.run(
            [
                *(str(KAFKA_SCRIPT), "tool", harness, bootstrap, topic, state_dir),
                *(isolation_level(committed=committed) for committed in isolations),
            ],
            env=kafka_environment({"KAFKA_VERSION": version, "KAFKA_LOG_LEVEL": "warn"}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    tables: list[Table] = [{}]
    for line in done.stdout.splitlines():
        if line == _END:
            tables.append({})
        else:
            key, _, value = line.partition(" ")
            tables[-1][key] = value
    is_whole = len(tables) == len(isolations) + 1 and not tables[-1]
    assert is_whole, f"the table was not filled: {done.stdout[-500:]}{done.stderr[-3000:]}"
    return dict(zip(isolations, tables[:-1], strict=True))


def table_of(records: Iterable[Mapping[str, Any]]) -> Table:
    """Return the table that records make: the last value of each key, without keys whose last value is null."""
    last = {record["key"]: record["value"] for record in records if record["key"] is not None}
    return {key: value for key, value in last.items() if value is not None}
