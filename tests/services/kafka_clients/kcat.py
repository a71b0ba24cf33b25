"""The client kcat, one run for each topic.

It prints neither the type of a timestamp nor headers apart, and of the value of a header only what is
in front of a zero byte.
"""

import base64
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from tests.services.kafka_clients.partitions import Counts, Records, isolation_level
from tests.services.kafka_clients.programs import installed_program, run_program


def read(bootstrap: str, wanted: Counts, *, committed: bool) -> Records:
    """Read topics to their ends."""
    found: Records = {partition: [] for partition in wanted}
    for topic in dict.fromkeys(topic for topic, _ in wanted):
        for partition, record in _read_topic(bootstrap, topic, committed=committed):
            found[topic, partition].append(record)
    return found


def shown(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record of an oracle as kcat shows it."""
    headers = b",".join(name.encode() + b"=" + _plain(value, null=b"NULL") for name, value in record["headers"])
    kept = {name: record[name] for name in ("offset", "timestamp", "key", "value")}
    return {**kept, "headers": _base64(headers)}


def _read_topic(bootstrap: str, topic: str, *, committed: bool) -> list[tuple[int, dict[str, Any]]]:
    line_end = uuid4().hex
    settings = {
        "isolation.level": isolation_level(committed=committed),
        "fetch.wait.max.ms": "50",
        "check.crcs": "true",
    }
    command = [
        *(installed_program("kcat"), "-C", "-q", "-e", "-b", bootstrap, "-t", topic, "-o", "beginning"),
        *(word for name, value in settings.items() for word in ("-X", f"{name}={value}")),
        *("-f", f"%p %o %T %K %S\n%k%s%h{line_end}"),
    ]
    *lines, rest = run_program(command).split(line_end.encode())
    assert rest == b"", rest[:200]
    return [_parsed(line) for line in lines]


def _parsed(line: bytes) -> tuple[int, dict[str, Any]]:
    numbers, _, content = line.partition(b"\n")
    partition, offset, time_ms, key_size, value_size = map(int, numbers.split())
    key_end = max(0, key_size)
    value_end = key_end + max(0, value_size)
    record = {
        "offset": offset,
        "timestamp": time_ms,
        "key": None if key_size < 0 else _base64(content[:key_end]),
        "value": None if value_size < 0 else _base64(content[key_end:value_end]),
        "headers": _base64(content[value_end:]),
    }
    return partition, record


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _plain(value: str | None, *, null: bytes) -> bytes:
    return null if value is None else base64.b64decode(value).partition(b"\0")[0]
