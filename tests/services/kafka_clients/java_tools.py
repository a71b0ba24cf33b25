"""Kafka's own command line tools of one version, in one Java that stays warm for any number of runs."""

import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import IO, Final, Self

from tests.services.kafka_node import KAFKA_SCRIPT, kafka_environment
from tests.services.waiting import is_readable

_SOURCE: Final = KAFKA_SCRIPT.parent / "ToolHarness.java"
_DEADLINE_S: Final = 90.0
_CLASSES: Final = {
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """End of one run of a tool."""

    exit_code: int
    output: bytes
    errors: str

    @property
    def lines(self) -> list[str]:
        """Return the lines of the output as text, without empty ones."""
        return [line for line in self.output.decode().splitlines() if line]


class JavaTools:
    """Tools of one Kafka version, one run at a time; a context manager."""

    def __init__(self, version: str, log: Path) -> None:
        """Choose the version; what Java prints beside the tools goes to ``log``."""
        self.version = version
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", str(KAFKA_SCRIPT), "tool", str(_SOURCE)],
                env=kafka_environment({"KAFKA_VERSION": self.version, "KAFKA_LOG_LEVEL": "warn"}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None, "it was entered"
        self._process.kill()
        self._process.communicate()

    @property
    def is_old(self) -> bool:
        """Return True for tools that have the options of Kafka 3."""
        return self.version.startswith("3.")

    def run(self, tool: str, bootstrap: str, *arguments: str, given: bytes = b"") -> ToolResult:
        """Run a tool by the name of its script against a cluster; it reads ``given`` from its standard input.

        Raises:
            AssertionError: the tool did not end before the deadline, or Java has ended.
        """
        assert self._process is not None, "it was entered"
        assert self._process.stdin is not None, "it has a pipe"
        assert self._process.stdout is not None, "it has a pipe"
        fields = [self._class_of(tool).encode(), given, b"--bootstrap-server", bootstrap.encode()]
        fields += [argument.encode() for argument in arguments]
        sized = b"".join(struct.pack(">i", len(field)) + field for field in fields)
        self._process.stdin.write(struct.pack(">i", len(fields)) + sized)
        answer = _Answer(self._process.stdout, monotonic() + _DEADLINE_S, tool, self._log)
        exit_code = answer.number()
        return ToolResult(exit_code, answer.field(), answer.field().decode(errors="replace"))

    def done(self, tool: str, bootstrap: str, *arguments: str) -> ToolResult:
        """Run a tool that has to succeed."""
        result = self.run(tool, bootstrap, *arguments)
        assert result.exit_code == 0, f"{tool} {self.version}: {result.output.decode()[-500:]}{result.errors[-3000:]}"
        return result

    def consumer_settings(self, settings: Mapping[str, str]) -> list[str]:
        """Return the options by which a consumer tool takes settings of the client."""
        option = "--consumer-property" if self.is_old else "--command-property"
        return [word for name, value in settings.items() for word in (option, f"{name}={value}")]

    def _class_of(self, tool: str) -> str:
        if tool == "kafka-console-producer" and self.is_old:
            return "kafka.tools.ConsoleProducer"
        return _CLASSES[tool]


class _Answer:
    """Fields of an answer of the harness, read with a deadline."""

    def __init__(self, source: IO[bytes], deadline_s: float, tool: str, log: Path) -> None:
        self._source = source
        self._deadline_s = deadline_s
        self._tool = tool
        self._log = log

    def number(self) -> int:
        """Return the next number."""
        value: int = struct.unpack(">i", self._read(4))[0]
        return value

    def field(self) -> bytes:
        """Return the next field that has its size in front."""
        return self._read(self.number())

    def _read(self, size: int) -> bytes:
        read = b""
        while len(read) < size:
            ready = is_readable(self._source, deadline_s=self._deadline_s - monotonic())
            assert ready, f"{self._tool} did not end in {_DEADLINE_S:g} s"
            part = self._source.read(size - len(read))
            assert part, f"{self._tool}: Java has ended: {self._log.read_text(errors='replace')[-3000:]}"
            read += part
        return read
