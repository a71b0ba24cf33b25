"""Clients in Java as their users run them: the console consumer, and tools that ask for offsets and groups."""

import base64
import tempfile
from typing import Any
from uuid import uuid4

from tests.services.kafka_clients.java_tools import JavaTools, ToolResult
from tests.services.kafka_clients.partitions import Counts, Records, isolation_level

_QUICK = {"fetch.max.wait.ms": "50"}  # closing waits for the request that is under way
_IDLE_MS = "30000"


def console_consumer(tools: JavaTools, bootstrap: str, wanted: Counts, *, committed: bool) -> Records:
    """Read each topic with ``kafka-console-consumer`` until it has printed the number of records that are wanted.

    The consumer subscribes, with a group that it makes up. Separators are random, so that any bytes may be printed.
    """
    found: Records = {partition: [] for partition in wanted}
    for topic in dict.fromkeys(topic for topic, _ in wanted):
        count = sum(number for (name, _), number in wanted.items() if name == topic)
        if count:
            for partition, record in _consume(tools, bootstrap, topic, count, committed=committed):
                found[topic, partition].append(record)
    return found


def _consume(
    tools: JavaTools, bootstrap: str, topic: str, count: int, *, committed: bool
) -> list[tuple[int, dict[str, Any]]]:
    between, header_end, line_end, null = (uuid4().hex for _ in range(4))
    printed = {
        **{f"print.{what}": "true" for what in ("timestamp", "partition", "offset", "headers", "key")},
        "key.separator": between,
        "headers.separator": header_end,
        "line.separator": line_end,
        "null.literal": null,
    }
    option = "--property" if tools.is_old else "--formatter-property"
    result = tools.done(
        "kafka-console-consumer",
        bootstrap,
        *("--topic", topic, "--from-beginning", "--max-messages", str(count), "--timeout-ms", _IDLE_MS),
        *("--isolation-level", isolation_level(committed=committed)),
        *tools.consumer_settings(_QUICK),
        *(word for name, value in printed.items() for word in (option, f"{name}={value}")),
    )
    lines = result.output.split(line_end.encode())
    assert lines.pop() == b"", f"the console consumer printed something else: {result.output[-500:]!r}"
    return [_parsed(line.split(between.encode()), header_end.encode(), null.encode()) for line in lines]


def _parsed(fields: list[bytes], header_end: bytes, null: bytes) -> tuple[int, dict[str, Any]]:
    timestamp, partition, offset, headers, key, value = fields
    kind, _, time_ms = timestamp.decode().partition(":")
    pairs = [] if headers == b"NO_HEADERS" else [header.partition(b":") for header in headers.split(header_end)]
    record = {
        "offset": _number(offset, b"Offset"),
        "timestamp": int(time_ms),
        "timestampType": kind,
        "key": _base64(key, null),
        "value": _base64(value, null),
        "headers": [[name.decode(), _base64(content, null)] for name, _, content in pairs],
    }
    return _number(partition, b"Partition"), record


def _number(field: bytes, name: bytes) -> int:
    found, _, number = field.partition(b":")
    assert found == name, field
    return int(number)


def _base64(printed: bytes, null: bytes) -> str | None:
    return None if printed == null else base64.b64encode(printed).decode()


def perf_test(tools: JavaTools, bootstrap: str, topic: str, count: int, *, committed: bool) -> int:
    """Return the number of records that ``kafka-consumer-perf-test`` reads of a topic, at least ``count`` wanted."""
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.write(f"isolation.level={isolation_level(committed=committed)}\nfetch.max.wait.ms=50\n")
        file.flush()
        arguments = (
            ("--messages", str(count), "--consumer.config", file.name)
            if tools.is_old
            else ("--num-records", str(count), "--command-config", file.name)
        )
        result = tools.done(
            "kafka-consumer-perf-test", bootstrap, "--topic", topic, "--hide-header", "--timeout", _IDLE_MS, *arguments
        )
    return int(result.lines[-1].split(", ")[4])


def get_offsets(tools: JavaTools, bootstrap: str, topic: str, time: str) -> dict[int, int]:
    """Return what ``kafka-get-offsets`` prints for a topic, by partition; ``time`` is a number or a name."""
    result = tools.done("kafka-get-offsets", bootstrap, "--topic", topic, "--time", time)
    rows = (line.rsplit(":", 2) for line in result.lines)
    return {int(partition): int(offset) for _, partition, offset in rows if offset}


def describe_group(tools: JavaTools, bootstrap: str, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the committed offset and the log end that ``kafka-consumer-groups --describe`` prints."""
    result = tools.done("kafka-consumer-groups", bootstrap, "--describe", "--group", group)
    rows = (line.split() for line in result.lines)
    return {
        (row[1], int(row[2])): (int(row[3]), int(row[4]))
        for row in rows
        if len(row) > 5 and row[0] == group and row[3].isdigit()
    }


def list_groups(tools: JavaTools, bootstrap: str) -> set[str]:
    """Return the groups that ``kafka-consumer-groups --list`` prints."""
    return set(tools.done("kafka-consumer-groups", bootstrap, "--list").lines)


def reset_offsets(tools: JavaTools, bootstrap: str, group: str, topic: str, *target: str) -> None:
    """Set the offsets of a group that has no member, with ``kafka-consumer-groups --reset-offsets``."""
    change = ("--reset-offsets", "--execute", "--group", group, "--topic", topic, *target)
    result = tools.done("kafka-consumer-groups", bootstrap, *change)
    assert "Error" not in result.output.decode(), result.output.decode()


def delete_group(tools: JavaTools, bootstrap: str, group: str) -> None:
    """Delete a group with ``kafka-consumer-groups --delete``."""
    result = tools.done("kafka-consumer-groups", bootstrap, "--delete", "--group", group)
    assert "successful" in result.output.decode(), result.output.decode()


def produce(tools: JavaTools, bootstrap: str, topic: str, line: str) -> ToolResult:
    """Send a line with ``kafka-console-producer``; its exit code is 0 even if the record is refused."""
    option = "--producer-property" if tools.is_old else "--command-property"
    quick = (option, "max.block.ms=5000", option, "delivery.timeout.ms=5000", option, "request.timeout.ms=4000")
    return tools.run("kafka-console-producer", bootstrap, "--topic", topic, *quick, given=f"{line}\n".encode())
