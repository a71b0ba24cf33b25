"""Alerts about drills and the pipeline: each fires on a real Prometheus once a real daemon is in the state.

The job of the pipeline needs no Spark: the daemon starts another program in the place of ``spark-submit``.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.scenarios.command import TIERD
from tests.scenarios.compaction_lab import CompactionLab
from tests.scenarios.damage import flip_byte
from tests.scenarios.installation import Installation
from tests.scenarios.interrupted_tierd import command
from tests.scenarios.plain_submit import installed
from tests.scenarios.warm_tierd import WarmTierd
from tests.scenarios.watched_daemons import WatchedDaemons

pytestmark = pytest.mark.service("prometheus")


@pytest.fixture(scope="module")
def drilled(tmp_path_factory: pytest.TempPathFactory, watched: WatchedDaemons) -> Iterator[Installation]:
    """Run a daemon of two partitions, of which one could not be proven."""
    folder = tmp_path_factory.mktemp("drilled")
    log_dir = LogDirWriter(folder / "kafka")
    for topic in ("hurt", "sound"):
        log_dir.add_partition(topic).fill(rolled_segments=2, shape=SegmentShape())
    log_dir.write_checkpoints()
    tierd = watched.install("drilled", [log_dir.path], {})
    copied = tierd.ask("copy", "--once")
    assert copied.exit_code == 0, copied.output
    flip_byte(min(file for file in tierd.store_dir.rglob("*.log") if "hurt" in str(file)), position=100)
    assert tierd.ask("drill", "--all").exit_code == 1
    with tierd.daemon():
        yield tierd


def test_drill_that_proves_nothing_fires(drilled: Installation, watched: WatchedDaemons) -> None:
    watched.require_firing("TierdDrillFails", drilled)


def test_partition_without_a_proof_fires(drilled: Installation, watched: WatchedDaemons) -> None:
    watched.require_firing("TierdProofIsOld", drilled)


@pytest.fixture
def lab(tmp_path: Path, warm_tierd: WarmTierd, watched: WatchedDaemons) -> CompactionLab:
    lab = CompactionLab(tmp_path, warm_tierd)
    watched.watch(lab.tierd)
    return lab


def test_long_time_since_a_good_run_fires(lab: CompactionLab, tmp_path: Path, watched: WatchedDaemons) -> None:
    lab.fill("orders", segments=4)
    with lab.tierd.daemon(command=command(tmp_path / "spark")) as daemon:
        lab.let_local_go(daemon)
        watched.require_silent("TierdPipelineIdle", lab.tierd)
        ended = lab.tierd.ask("compact", "--once")
        assert ended.exit_code == 0, ended.output
        watched.require_firing("TierdPipelineIdle", lab.tierd)


def test_audit_of_a_damaged_segment_fires_and_so_does_its_run(
    lab: CompactionLab, tmp_path: Path, watched: WatchedDaemons
) -> None:
    lab.tierd.configure({"pipeline": {"compact": False, "merge": False, "audit_bytes": "1GiB"}})
    lab.fill("orders", segments=2)
    with lab.tierd.daemon(command=command(tmp_path / "spark")) as daemon:
        lab.let_local_go(daemon)
        watched.require_silent("TierdAuditFindsDamage", lab.tierd)
        flip_byte(min(lab.store_dir.rglob("*.log")), position=100)
        assert lab.tierd.ask("compact", "--once").exit_code == 1
        watched.require_firing("TierdAuditFindsDamage", lab.tierd)
        watched.require_firing("TierdPipelineFails", lab.tierd)


def test_run_without_progress_fires(lab: CompactionLab, tmp_path: Path, watched: WatchedDaemons) -> None:
    lab.tierd.configure({"pipeline": {"stop_timeout": "1s"}})
    lab.fill("orders", segments=4)
    with lab.tierd.daemon(command=command(tmp_path / "spark")) as daemon:
        lab.let_local_go(daemon)
        watched.require_silent("TierdPipelineStuck", lab.tierd)
        submit = installed(tmp_path / "spark").submit
        submit.write_text("#!/bin/sh\nexec sleep 600\n")
        asking = subprocess.Popen(
            [str(TIERD), "compact", "--once", "--config", str(lab.tierd.config_file)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        watched.require_firing("TierdPipelineStuck", lab.tierd)
    assert asking.wait(60) != 0
