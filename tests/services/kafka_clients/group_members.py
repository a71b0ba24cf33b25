"""Members of consumer groups, each a process of a real client that subscribes, commits, and tells what it has read."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from tests.services.kafka_clients.franz_go import PROGRAM
from tests.services.kafka_clients.programs import installed_program
from tests.services.kafka_node import KAFKA_SCRIPT, kafka_environment
from tests.services.waiting import wait_until

END_DEADLINE_S: Final = 30.0
_PRINTED: Final = re.compile(r"Partition:(\d+)\tOffset:(\d+)")
_CONSOLE_SETTINGS: Final = {
    "auto.commit.interval.ms": "200",
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "300",
    "fetch.max.wait.ms": "100",
    "metadata.max.age.ms": "2000",
    "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
}


class Place(NamedTuple):
    """Partition and offset of a record that a member has read, and committed or is about to commit."""

    partition: int
    offset: int


class GroupMember:
    """Process of one member; a context manager that kills it at the end, unless it was stopped."""

    def __init__(self, name: str, command: Sequence[str], output: Path, *, environment: dict[str, str] | None) -> None:
        self.name = name
        self._command = command
        self._output = output
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
                env=self._environment,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def _errors(self) -> Path:
        return self._output.with_suffix(".err")

    def check(self) -> None:
        """Fail if the member has ended by itself."""
        ended = None if self._process is None else self._process.poll()
        assert ended is None, f"{self.name} has ended with {ended}: {self.log_tail()}"

    def seen(self) -> list[Place]:
        """Return the records so far, in the order in which the member read them."""
        return [place for line in self._lines() for place in _places(line)]

    def stop(self) -> None:
        """Let the member leave its group and end."""
        assert self._process is not None, f"{self.name} is not running"
        assert self._process.stdin is not None, "it has a pipe"
        self._process.stdin.close()  # the programs of the tests take this for their end, the console consumer does not
        if self._environment is not None:
            self._process.send_signal(signal.SIGTERM)
        ended = self._process.wait(END_DEADLINE_S)
        self._process = None
        assert ended in (0, 128 + signal.SIGTERM, 130), f"{self.name} ended with {ended}: {self.log_tail()}"

    def kill(self) -> None:
        """End the member without a word to its group."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def log_tail(self) -> str:
        """Return the end of what the client said of itself."""
        return self._errors.read_text(errors="replace")[-2000:]

    def _lines(self) -> list[str]:
        whole, _, _ = self._output.read_text(errors="replace").rpartition("\n")
        return whole.splitlines()


class GroupMembers:
    """Maker of the members of one group that read one topic of a server."""

    def __init__(self, bootstrap: str, group: str, topic: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._topic = topic
        self._folder = folder
        self._count = 0

    def member(self, name: str) -> GroupMember:
        """Return a member, not started: ``librdkafka``, ``aiokafka``, ``franz-go`` or ``console-<version>``.

        Raises:
            KafkaUnavailableError: the client is not installed on this machine.
        """
        self._count += 1
        output = self._folder / f"member-{self._count}-{name}.out"
        if name.startswith("console-"):
            environment = kafka_environment({"KAFKA_VERSION": name.removeprefix("console-"), "KAFKA_LOG_LEVEL": "warn"})
            return GroupMember(name, self._console(name), output, environment=environment)
        if name == "franz-go":
            program = installed_program(PROGRAM)
            command = [program, "group", self._bootstrap, "read_committed", self._group, self._topic]
        else:
            module = "tests.services.kafka_clients.python_member"
            command = [sys.executable, "-m", module, name, self._bootstrap, self._group, self._topic]
        return GroupMember(name, command, output, environment=None)

    def _console(self, name: str) -> list[str]:
        option, setting = (
            ("--property", "--consumer-property")
            if name.startswith("console-3.")
            else ("--formatter-property", "--command-property")
        )
        tool = [str(KAFKA_SCRIPT), "tool", "ConsoleConsumer", "--bootstrap-server", self._bootstrap]
        shown = {"partition": "true", "offset": "true", "value": "false"}
        printed = [word for what, wanted in shown.items() for word in (option, f"print.{what}={wanted}")]
        settings = [word for key, value in _CONSOLE_SETTINGS.items() for word in (setting, f"{key}={value}")]
        subscribed = ["--topic", self._topic, "--group", self._group, "--from-beginning"]
        return [*tool, *subscribed, "--isolation-level", "read_committed", *printed, *settings]


def wait_seen(members: Sequence[GroupMember], wanted: set[Place], *, deadline_s: float = 60.0) -> None:
    """Wait until the members together have read the wanted records; each member that was not ended has to run."""

    def missing() -> set[Place]:
        return wanted - {place for member in members for place in member.seen()}

    def complete() -> bool:
        for member in members:
            member.check()
        return not missing()

    wait_until(
        complete,
        what=f"{len(wanted)} records by {[member.name for member in members]}",
        deadline_s=deadline_s,
        last_seen=lambda: f"missing {sorted(missing())[:5]}… {[member.log_tail()[-300:] for member in members]}",
        interval_s=0.1,
    )


def _places(line: str) -> list[Place]:
    if printed := _PRINTED.match(line):
        return [Place(int(printed[1]), int(printed[2]))]
    told = json.loads(line) if line.startswith("{") else {}
    return [Place(told["partition"], told["offset"])] if "offset" in told else []
