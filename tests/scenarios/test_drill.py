"""Drills of log dirs of real brokers, without a broker: everything that the tier has of them comes back."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.log_dirs import copy_writable, partition_dirs
from tests.services.kafka_node import (
    KAFKA_SCRIPT,
    free_ports,
    kafka_environment,
)

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
PROGRAMS = {
    "kafka-console-consumer.sh": "ConsoleConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-dump-log.sh": "DumpLogSegments",
    "kafka-get-offsets.sh": "GetOffsetShell",
    "kafka-server-start.sh": "kafka.Kafka",
    "kafka-storage.sh": "StorageTool",
    "kafka-topics.sh": "TopicCommand",
}


@pytest.mark.parametrize("source", ["kafka-3.9.2/clean/logdir", "kafka-4.3.1/compact-before/logdir"])
def test_drill_of_all_partitions_of_a_broker_proves_every_one(
    source: str, golden: Path, tmp_path: Path, make_installation: MakeInstallation
) -> None:
    log_dir = tmp_path / "logdir"
    copy_writable(golden / source, log_dir)
    tierd = make_installation([log_dir])
    copied = tierd.ask("copy", "--once")
    assert copied.exit_code == 0, copied.output

    ended = tierd.ask("drill", "--all", "--from-bucket", "--json")

    assert ended.exit_code == 0, ended.output
    drilled = {each["partition"]: each for each in ended.json()}
    in_tier = {path.parent.name.rpartition("-")[0] for path in tierd.store_dir.rglob("*.manifest")}
    assert {each["outcome"] for each in drilled.values()} == {"proven"}
    assert {each["is_from_bucket"] for each in drilled.values()} == {True}
    assert all(each["samples"] for each in drilled.values())
    assert sorted(path.name for path in (tierd.state_dir / "drill").iterdir()) == ["lock"]
    assert set(drilled) <= {each.name for each in partition_dirs(log_dir)}
    assert len(drilled) == len({path.parent for path in tierd.store_dir.rglob("*.manifest")}) >= 3, in_tier


def printed_script(program: str) -> str:
    """Return the script for ``drill.command`` that the documents print and that runs ``program``."""
    blocks = re.findall(r"^```sh\n(.*?)^```", OPERATIONS.read_text(), flags=re.MULTILINE | re.DOTALL)
    (script,) = (block for block in blocks if program in block)
    return str(script)


@pytest.fixture
def programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka_jars: Callable[[str], str]
) -> Callable[[str], Path]:
    """Return a function that puts Kafka's programs of a version on the path, and returns their folder."""

    def put(version: str) -> Path:
        kafka_jars(version)
        libs = shlex.quote(kafka_environment({})["KAFKA_LIBS_DIR"])
        environment = f"KAFKA_VERSION={version} KAFKA_LIBS_DIR={libs}"
        folder = tmp_path / "bin"
        folder.mkdir()
        for name, tool in PROGRAMS.items():
            level = "info" if tool == "kafka.Kafka" else "warn"
            line = f"KAFKA_LOG_LEVEL={level} {environment} exec {KAFKA_SCRIPT} tool {tool}"
            write_program(folder / name, f'#!/bin/sh\n{line} "$@"\n')
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        return folder

    return put


def write_program(path: Path, text: str) -> Path:
    """Write a script that can be run."""
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_printed_command_has_the_tool_of_kafka_read_what_was_restored(
    version: str,
    golden: Path,
    tmp_path: Path,
    programs: Callable[[str], Path],
    make_installation: MakeInstallation,
) -> None:
    log_dir = tmp_path / "logdir"
    copy_writable(golden / "kafka-3.9.2/clean/logdir", log_dir)
    command = write_program(programs(version) / "drill.sh", printed_script("kafka-dump-log.sh"))
    tierd = make_installation([log_dir], settings={"drill": {"command": [str(command)]}})
    assert tierd.ask("copy", "--once").exit_code == 0

    (drilled,) = tierd.tierd("drill", "txn-0", "--json").json()

    assert (drilled["outcome"], drilled["output"]) == ("proven", "")
    assert drilled["checks"][-1] == "command"


@pytest.fixture
def broker_script(programs: Callable[[str], Path]) -> Callable[[str], Path]:
    """Return a function that writes the printed script which starts a broker of a version, with free ports."""

    def write(version: str) -> Path:
        port = free_ports(1)
        script = printed_script("kafka-server-start.sh").replace("19092", str(port)).replace("19093", str(port + 1))
        return write_program(programs(version) / "drill.sh", script)

    return write


@pytest.mark.parametrize(("source", "partitions"), [("kafka-3.9.2/epochs/node1", 1), ("kafka-4.3.1/clean", 2)])
def test_printed_command_has_a_broker_start_on_all_partitions(
    source: str,
    partitions: int,
    *,
    golden: Path,
    tmp_path: Path,
    broker_script: Callable[[str], Path],
    make_installation: MakeInstallation,
) -> None:
    log_dir = tmp_path / "logdir"
    copy_writable(golden / source / "logdir", log_dir)
    command = broker_script(source[6:11])
    wanted = ["epochs.*", "txn", "deleted-records"]
    settings = {"drill": {"command": [str(command)]}, "topics": {"include": wanted}}
    tierd = make_installation([log_dir], settings=settings)
    assert tierd.ask("copy", "--once").exit_code == 0

    drilled = tierd.tierd("drill", "--broker", "--json", deadline_s=540.0).json()

    assert [(each["outcome"], each["output"]) for each in drilled] == [("proven", "")] * partitions
    assert {each["checks"][-1] for each in drilled} == {"command"}


FAKES = {
    "kafka-storage.sh": "mkdir -p broker/empty && echo formatted > broker/empty/meta.properties",
    "kafka-server-start.sh": "echo Kafka Server started && exec sleep 600",
    "kafka-topics.sh": "printf 'Topic: orders\\tTopicId: 9XMykSPoQ3mcbW1ZBv-SMA\\tPartitionCount: 1\\n'",
    "kafka-console-consumer.sh": "exit 1",
    "kafka-get-offsets.sh": "echo orders:0:$ENDS_AT",
    "kafka-consumer-groups.sh": "printf 'GROUP TOPIC PARTITION CURRENT\\ndrill orders 0 %s\\n' \"$READ_TO\"",
}


@pytest.mark.parametrize(
    ("ends_at", "read_to", "exit_code", "output"),
    [
        pytest.param("20", "12", 0, "", id="sound"),
        pytest.param("19", "12", 1, "orders-0: the broker does not end it at 20\n", id="end"),
        pytest.param("20", "11", 1, "orders-0: a consumer came to 11, not to 12\n", id="records"),
        pytest.param("20", "-", 1, "orders-0: a consumer came to 0, not to 12\n", id="no records"),
    ],
)
def test_printed_command_fails_a_log_that_a_broker_does_not_read_to_its_end(
    ends_at: str, read_to: str, exit_code: int, output: str, *, tmp_path: Path
) -> None:
    for name, line in FAKES.items():
        write_program(tmp_path / name, f"#!/bin/sh\n{line}\n")
    (tmp_path / "log-dir" / "orders-0").mkdir(parents=True)
    command = write_program(tmp_path / "drill.sh", printed_script("kafka-server-start.sh"))
    facts = {"CLUSTER_ID": "c", "TOPIC_ID": "old", "LOG_START_OFFSET": 0, "END_OFFSET": 12, "LOG_END_OFFSET": 20}
    environment = {f"TIERD_DRILL_{name}": str(value) for name, value in facts.items()}
    environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ENDS_AT": ends_at, "READ_TO": read_to}

    ended = subprocess.run(
        [command, tmp_path / "log-dir", "orders-0"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stdout) == (exit_code, output), ended.stderr
    metadata = (tmp_path / "log-dir" / "orders-0" / "partition.metadata").read_text()
    assert metadata == "version: 0\ntopic_id: 9XMykSPoQ3mcbW1ZBv-SMA\n"
    assert (tmp_path / "log-dir" / "meta.properties").read_text() == "formatted\n"
