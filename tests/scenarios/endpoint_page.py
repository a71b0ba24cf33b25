"""Blocks of docs/read-endpoint.md, and the runner of its commands: as printed, with other addresses and paths."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from ruamel.yaml import YAML

from tests.scenarios.installation import Installation, Settings
from tests.scenarios.log_dirs import base_offsets, delete_copied_segments, partition_dirs
from tests.services.kafka_clients.java_tools import JavaTools
from tests.services.ports import free_port
from tierd.cli.demo.writer import prepare

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "read-endpoint.md"
PRINTED_ADDRESS: Final = "127.0.0.1:9192"
_DEADLINE_S: Final = 120.0
_QUICK_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Xmx512m"


class Block(NamedTuple):
    """One fenced block; ``language`` is empty for a block that a test does not run."""

    heading: str
    language: str
    text: str


def blocks(page: Path = PAGE) -> list[Block]:
    """Return the blocks of a page in their order, each with the heading above it."""
    found, heading = [], ""
    for level, title, language, text in re.findall(
        r"^(#+) ([^\n]+)$|^```(\w*)\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL
    ):
        if level:
            heading = title
        else:
            found.append(Block(heading, language, text))
    return found


def block(heading: str, language: str) -> str:
    """Return the text of the only block of a language below a heading."""
    (found,) = (each.text for each in blocks() if (each.heading, each.language) == (heading, language))
    return found


def parsed_yaml(text: str) -> Settings:
    """Return the values of a configuration."""
    found: Settings = YAML(typ="safe").load(text)
    return found


class PageCommand(NamedTuple):
    """One command: its words, and the files that it reads from and writes to by the shell."""

    words: list[str]
    read_from: str = ""
    written_to: str = ""

    @classmethod
    def parsed(cls, line: str) -> "PageCommand":
        """Return the command of a line."""
        words, files = shlex.split(line), {"<": "", ">": ""}
        for sign in files:
            if sign in words:
                at = words.index(sign)
                files[sign] = words[at + 1]
                del words[at : at + 2]
        return cls(words, files["<"], files[">"])


@dataclass(frozen=True, slots=True)
class PageRun:
    """Surroundings in which commands of the page run.

    Attributes:
        folder: in which files of the page are.
        places: what is printed, and what stands for it here.
        tierd: answers the commands of tierd.
        tools: run the tools of Kafka.
        programs: shell scripts that stand for programs of the page, by name.
    """

    folder: Path
    places: Mapping[str, str]
    tierd: Installation | None = None
    tools: JavaTools | None = None
    programs: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def here(self, text: str) -> str:
        """Return a text of the page with the addresses and paths of this run."""
        for printed, place in self.places.items():
            text = text.replace(printed, place)
        return text

    def settings(self, heading: str) -> Settings:
        """Return the configuration below a heading."""
        return parsed_yaml(self.here(block(heading, "yaml")))

    def commands(self, heading: str) -> Iterator[tuple[str, str]]:
        """Run the commands below a heading, each of which has to succeed; yield each line with its output."""
        lines = [
            line
            for each in blocks()
            if (each.heading, each.language) == (heading, "bash")
            for line in each.text.splitlines()
        ]
        assert lines, f"no commands below {heading}"
        for line in lines:
            yield line, self.run(line)

    def run(self, line: str) -> str:
        """Run one command, and return everything that it printed."""
        command = PageCommand.parsed(self.here(line))
        name, *arguments = command.words
        if name == "tierd":
            return self._tierd(arguments, command)
        if name.startswith("kafka-"):
            return self._tool(name.removesuffix(".sh"), arguments, command)
        return self._shell(line)

    def _tierd(self, arguments: list[str], command: PageCommand) -> str:
        assert self.tierd is not None, "the page has commands of tierd"
        assert self.tierd.warm is not None, "it was made with a warm process"
        given = (self.folder / command.read_from).read_text() if command.read_from else ""
        is_told = "--config" in arguments or arguments[:2] == ["endpoint", "hash-password"]
        config = [] if is_told else ["--config", str(self.tierd.config_file)]
        done = self.tierd.warm.run(*arguments, *config, given=given)
        assert done.exit_code == 0, f"{shlex.join(arguments)}: {done.output}"
        return done.output

    def _tool(self, name: str, arguments: list[str], command: PageCommand) -> str:
        assert self.tools is not None, "the page has commands of Kafka's tools"
        at = arguments.index("--bootstrap-server")
        bootstrap = arguments[at + 1]
        files = {file.name: str(file) for file in self.folder.iterdir()}
        given = [files.get(each, each) for each in (*arguments[:at], *arguments[at + 2 :])]
        done = self.tools.done(name, bootstrap, *given)
        if command.written_to:
            (self.folder / command.written_to).write_bytes(done.output)
        return done.output.decode() + done.errors

    def _shell(self, line: str) -> str:
        for name, script in self.programs.items():
            (self.folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.folder / name).chmod(0o755)
        done = subprocess.run(
            ["/bin/sh", "-c", self.here(line)],
            cwd=self.folder,
            env={
                **os.environ,
                "JDK_JAVA_OPTIONS": _QUICK_JAVA,
                **self.environment,
                "PATH": f"{self.folder}:{os.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stdout[-500:]}{done.stderr[-3000:]}"
        return done.stdout


@contextmanager
def demo_server(tierd: Installation, log_dir: Path, *, cluster_id: str) -> Iterator[None]:
    """Run the daemon on the log dir of the demo, whose older local segments are in the tier alone."""
    prepare(log_dir, cluster_id=cluster_id, node_id=1)
    copied = tierd.ask("copy", "--once")
    assert copied.exit_code == 0, copied.output
    with tierd.daemon():
        for directory in partition_dirs(log_dir):
            bases = base_offsets(directory)
            assert delete_copied_segments(directory, copied_through=bases[len(bases) // 2] - 1)
        yield


def free_address() -> str:
    """Return an address of this host that a listener can take."""
    return f"127.0.0.1:{free_port()}"
