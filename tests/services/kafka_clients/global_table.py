"""A Kafka Streams application that is one global table, through ``GlobalTableHarness.java``."""

import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from tests.services.kafka_clients.partitions import isolation_level
from tests.services.kafka_node import KAFKA_SCRIPT, kafka_environment

_DEADLINE_S = 90.0


def read_table(bootstrap: str, topic: str, *, version: str, committed: bool) -> dict[str, str]:
    """Return the keys and values of the table when it is filled, both in Base64."""
    with tempfile.TemporaryDirectory() as state_dir:
        harness = str(KAFKA_SCRIPT.parent / "GlobalTableHarness.java")
        done = subprocess.run(
            [str(KAFKA_SCRIPT), "tool", harness, bootstrap, topic, isolation_level(committed=committed), state_dir],
            env=kafka_environment({"KAFKA_VERSION": version, "KAFKA_LOG_LEVEL": "warn"}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    *lines, end = done.stdout.splitlines() or [""]
    assert end == "filled", f"the table was not filled: {done.stdout[-500:]}{done.stderr[-3000:]}"
    rows = (line.partition(" ") for line in lines)
    return {key: value for key, _, value in rows}


def table_of(records: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the table that records make: the last value of each key, without keys whose last value is null."""
    last = {record["key"]: record["value"] for record in records if record["key"] is not None}
    return {key: value for key, value in last.items() if value is not None}
