"""Limit of descriptors: raised at the start, counted, and shared among the ports."""

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.fakes.log_dirs import write_log_dir
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tierd.app.daemon.descriptors import (
    DescriptorCount,
    DescriptorUse,
    control_limits,
    descriptor_limit,
    descriptor_use,
    http_limits,
)
from tierd.ports.connection_gate import CONNECTIONS_WHEN_SHORT


def test_daemon_raises_its_limit_to_the_hard_one_and_status_shows_it(tmp_path: Path) -> None:
    log_dir = write_log_dir(tmp_path / "kafka", partitions=1, rolled_segments=0)
    tierd = Installation(tmp_path / "tierd", [log_dir.path])
    with tierd.daemon(command=("prlimit", "--nofile=256:4096", str(TIERD))) as daemon:
        limits = Path(f"/proc/{daemon.pid}/limits").read_text()
        facts = daemon.status()["descriptors"]
        metrics = daemon.metrics()
    assert next(line for line in limits.splitlines() if "open files" in line).split()[3:5] == ["4096", "4096"]
    assert facts["limit"] == 4096
    assert 10 < facts["open"] < 256
    assert facts["near_limit"] is False
    assert metrics["process_max_fds"] == 4096
    assert 10 < metrics["process_open_fds"] < 256


def test_unlimited_hard_limit_is_raised_no_further_than_the_kernel_allows(tmp_path: Path) -> None:
    """Half of 2**30 descriptors would be a share of the system's file table that the broker needs as well."""
    script = (
        "import resource, tierd.app.daemon.descriptors as d\n"
        "resource.getrlimit = lambda _: (256, resource.RLIM_INFINITY)\n"
        "resource.setrlimit = lambda _, limits: print(*limits)\n"
        "d.raise_descriptor_limit()\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert ran.stdout == f"{1 << 20} -1\n"


def test_use_counts_open_descriptors() -> None:
    before = descriptor_use()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    try:
        now = descriptor_use()
    finally:
        for each in opened:
            os.close(each)
    assert now.open >= before.open + 4
    assert now.limit == descriptor_limit()


def test_count_is_made_at_most_once_a_second() -> None:
    clock = FakeClock()
    count = DescriptorCount(clock)
    first = count.use()
    with Path(os.devnull).open():
        assert count.use() is first
        clock.advance(1)
        assert count.use() is not first


def test_use_of_descriptors_is_near_its_limit_before_it_is_short() -> None:
    assert not DescriptorUse(800, 1000).is_near_limit
    assert DescriptorUse(801, 1000).is_near_limit
    assert not DescriptorUse(875, 1000).is_short
    assert DescriptorUse(876, 1000).is_short


@given(st.integers(128, 1 << 20))
def test_ports_together_take_at_most_an_eighth_of_the_descriptors(limit: int) -> None:
    http, control = http_limits(limit), control_limits(limit)
    assert http.connections + control.connections <= max(limit // 8, 12)
    assert http.connections >= CONNECTIONS_WHEN_SHORT
    assert http.per_peer <= http.connections
