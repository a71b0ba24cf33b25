"""Installation with a small synthetic log dir, for tests of the real command line."""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.command import COMMAND_DEADLINE_S, CommandResult
from tests.scenarios.installation import Installation
from tests.scenarios.warm_tierd import WarmTierd
from tierd.log import list_log_dir
from tierd.model import TopicIdPartition

ROLLED_THROUGH = 11
LAST_OFFSET = 15


class WarmInstallation(Installation):
    """Installation whose commands are forked from a process that has imported all modules."""

    def tierd(self, *arguments: str, deadline_s: float = COMMAND_DEADLINE_S) -> CommandResult:
        """Run one command with this configuration."""
        del deadline_s  # the warm process runs one command at a time, to its end
        return self.ask(*arguments)

    def _with_config(self, arguments: Sequence[str]) -> list[str]:
        return [*arguments, "--config", str(self.config_file)]  # after the verb of a group


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmTierd]:
    """Return a process that has imported tierd."""
    with WarmTierd() as process:
        yield process


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDirWriter:
    """Make ``orders-0`` with three rolled segments and an active one, and ``audit-0`` without rolled segments."""
    writer = LogDirWriter(tmp_path / "kafka")
    orders = writer.add_partition("orders")
    for segment in range(4):
        if segment:
            orders.roll()
        orders.append([b"value %d" % n for n in range(4)])
    writer.add_partition("audit").append([b"only one"])
    writer.write_checkpoints()
    return writer


@pytest.fixture
def tierd(tmp_path: Path, log_dir: LogDirWriter, warm: WarmTierd) -> Installation:
    """Return an installation whose tier has no copies yet."""
    return WarmInstallation(tmp_path / "tierd", [log_dir.path], warm=warm)


@pytest.fixture
def into(log_dir: LogDirWriter) -> Path:
    """Return the log dir as the target of a restore."""
    return log_dir.path


@pytest.fixture
def orders(log_dir: LogDirWriter) -> TopicIdPartition:
    """Return ``orders-0`` with its topic id."""
    found = list_log_dir(log_dir.path).partitions
    return next(each.partition for each in found if each.topic_partition.topic == "orders")


@pytest.fixture
def copied(tierd: Installation) -> Installation:
    """Return the installation with all rolled segments in the tier."""
    ended = tierd.tierd("copy", "--once")
    assert ended.exit_code == 0, ended.output
    return tierd


@pytest.fixture
def hanging_server() -> Iterator[str]:
    """Return the URL of a port whose connections are made by the kernel, and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
