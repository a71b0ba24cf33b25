"""The clients that read records, each under its name and with one signature, and their comparison with an oracle."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

from tests.scenarios.oracle import assert_same_records
from tests.services.kafka_clients import aiokafka_client, franz_go, kcat, librdkafka
from tests.services.kafka_clients.java_clients import console_consumer
from tests.services.kafka_clients.java_tools import JavaTools
from tests.services.kafka_clients.partitions import Counts, Partition, Records
from tests.services.kafka_clients.programs import installed_program
from tests.services.kafka_clients.spark_source import SparkSource
from tests.services.kafka_node import require_kafka

Expected = Mapping[Partition, Sequence[Mapping[str, Any]]]
"""The records that every client has to read of each partition."""

JAVA_CONSOLES: Final = {"console-3.9.2": "3.9.2", "console-4.3.1": "4.3.1"}
NAMES: Final = ("librdkafka", "aiokafka", "franz-go", "kcat", *JAVA_CONSOLES, "spark")


class Read(Protocol):
    """Call that reads partitions with one client."""

    def __call__(self, bootstrap: str, wanted: Counts, *, committed: bool) -> Records:
        """Return the records of each wanted partition, from its start to its end."""


@dataclass(frozen=True, slots=True)
class ReadingClient:
    """One client.

    Attributes:
        shown: maps a record of an oracle to what this client shows of it.
    """

    name: str
    read: Read
    shown: Callable[[Mapping[str, Any]], dict[str, Any]]

    def assert_reads(self, bootstrap: str, expected: Expected, *, committed: bool) -> None:
        """Fail unless this client reads the expected records of every partition, in order, and no others."""
        counts = {partition: len(records) for partition, records in expected.items()}
        found = self.read(bootstrap, counts, committed=committed)
        for (topic, number), records in expected.items():
            what = f"{topic}-{number} by {self.name}{' committed' if committed else ''}"
            assert_same_records(found[topic, number], [self.shown(record) for record in records], what=what)


class ReadingClients:
    """The clients by name, made when they are asked for: Java and Spark stay warm until the end of the context."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._tools: dict[str, JavaTools] = {}
        self._spark: SparkSource | None = None
        self._running = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.__exit__(kind, error, trace)

    def client(self, name: str) -> ReadingClient:
        """Return a client of ``NAMES``.

        Raises:
            KafkaUnavailableError: it is not installed on this machine.
        """
        match name:
            case "librdkafka":
                return ReadingClient(name, librdkafka.read, dict)
            case "aiokafka":
                return ReadingClient(name, aiokafka_client.read, _without_epoch)
            case "franz-go":
                installed_program(franz_go.PROGRAM)
                return ReadingClient(name, franz_go.read, dict)
            case "kcat":
                installed_program("kcat")
                return ReadingClient(name, kcat.read, kcat.shown)
            case "spark":
                return ReadingClient(name, self.spark().read, _without_epoch)
            case _:
                return ReadingClient(name, partial(console_consumer, self.tools(JAVA_CONSOLES[name])), _without_epoch)

    def tools(self, version: str) -> JavaTools:
        """Return the warm command line tools of a Kafka version."""
        if version not in self._tools:
            require_kafka(version)
            tools = JavaTools(version, self._scratch / f"java-tools-{version}.log")
            self._tools[version] = self._running.enter_context(tools)
        return self._tools[version]

    def spark(self) -> SparkSource:
        """Return Spark's own source for Kafka, in a warm session."""
        if self._spark is None:
            self._spark = self._running.enter_context(SparkSource(self._scratch))
        return self._spark


def _without_epoch(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "leaderEpoch"}
