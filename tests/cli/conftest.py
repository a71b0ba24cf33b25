"""An installation with a small self-made log dir, for tests of the real command line."""

from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.scenarios.installation import Installation

ROLLED_THROUGH = 11
LAST_OFFSET = 15


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDirWriter:
    """``orders-0`` with three rolled segments and an active one, ``audit-0`` with nothing rolled."""
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
def tierd(tmp_path: Path, log_dir: LogDirWriter) -> Installation:
    """Nothing was copied yet."""
    return Installation(tmp_path / "tierd", [log_dir.path])


@pytest.fixture
def copied(tierd: Installation) -> Installation:
    """Everything that has rolled is in the tier."""
    ended = tierd.tierd("copy", "--once")
    assert ended.exit_code == 0, ended.output
    return tierd
