"""Faults of a run on a real Spark: workers, driver and daemon killed, a corrupt input, a full disk."""

import os
import signal
import subprocess
from pathlib import Path

from tests.fakes.small_disk import SmallDisk
from tests.scenarios.command import TIERD
from tests.scenarios.compaction_lab import CompactionLab
from tests.scenarios.installation import Daemon
from tests.scenarios.job_processes import driver, is_running, job_processes, python_workers
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.waiting import wait_until

DEADLINE_S = 120.0


def asked(lab: CompactionLab) -> "subprocess.Popen[str]":
    """Start ``tierd compact --once``."""
    command = [str(TIERD), "compact", "--once", "--config", str(lab.tierd.config_file)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def flip_a_byte(lab: CompactionLab, topic: str) -> None:
    """Damage one segment of a topic in the store, within its records."""
    log = min(log for log in lab.store_dir.rglob("*.log") if f"{topic}-" in str(log.parent))
    content = bytearray(log.read_bytes())
    content[-3] ^= 1
    log.write_bytes(content)


def test_killed_workers_fail_no_group_and_a_corrupt_input_only_its_own_group(
    tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    lab = CompactionLab(tmp_path, warm_tierd, topics=("orders", "damaged"))
    lab.fill("orders", segments=9)
    lab.fill("damaged", segments=3)
    with lab.tierd.daemon() as daemon:
        lab.let_local_go(daemon)
        flip_a_byte(lab, "damaged")
        run = asked(lab)
        daemon.wait_until(lambda: python_workers(daemon.pid), what="Python workers", deadline_s=DEADLINE_S)
        for worker in python_workers(daemon.pid):
            os.kill(worker.pid, signal.SIGKILL)
        said, _ = run.communicate(timeout=DEADLINE_S)
        assert run.returncode == 1, said
        (report,) = lab.runs()
        assert (report.tally.partitions, report.tally.groups_replaced, report.tally.groups_failed) == (2, 3, 1), said
        (problem,) = report.problems
        assert problem.startswith("damaged-0, group 0"), problem
        assert len(lab.read("orders")) == len(lab.latest("orders"))
        assert dict(lab.read("orders")) == lab.latest("orders")


def test_next_run_succeeds_and_leaves_no_traces_after_a_killed_driver_or_daemon(
    tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    lab = CompactionLab(tmp_path, warm_tierd)
    lab.fill("orders", segments=9)
    daemon = lab.tierd.daemon()
    with daemon:
        lab.let_local_go(daemon)
        run = asked(lab)
        os.killpg(os.getpgid(wait_for_driver(daemon)), signal.SIGKILL)
        said, _ = run.communicate(timeout=DEADLINE_S)
        assert run.returncode == 1, said
        assert "the job ended with exit code -9" in said, said
        assert not job_processes(daemon.pid)

        run = asked(lab)
        wait_for_driver(daemon)
        orphans = job_processes(daemon.pid)
        daemon.kill()
        said, _ = run.communicate(timeout=DEADLINE_S)
        assert run.returncode == 3, said
        wait_until(
            lambda: not any(is_running(each.pid) for each in orphans), what="the job to end", deadline_s=DEADLINE_S
        )
    assert dict(lab.read("orders")) == lab.latest("orders")
    with lab.tierd.daemon() as successor:
        ended = lab.tierd.ask("compact", "--once")
        assert ended.exit_code == 0, ended.output
        lab.assert_clean(successor, "orders")
    lab.assert_rebuilt_alike()


def wait_for_driver(daemon: Daemon) -> int:
    """Return the pid of the driver when it runs."""
    daemon.wait_until(lambda: driver(daemon.pid), what="a driver", deadline_s=DEADLINE_S)
    found = driver(daemon.pid)
    assert found is not None, "the driver has just begun"
    return found.pid


def test_full_local_directory_is_reported_and_the_next_run_with_room_succeeds(
    tmp_path: Path, warm_tierd: WarmTierd
) -> None:
    lab = CompactionLab(tmp_path, warm_tierd)
    lab.fill("orders", segments=40, keys=10_000)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    lab.tierd.configure({"pipeline": {"local_dir": str(scratch)}, "topics": {"defaults": {"segment_bytes": "1MiB"}}})
    assert lab.tierd.ask("copy", "--once").exit_code == 0
    compact: list[str | Path] = [TIERD, "compact", "--once", "--config", lab.tierd.config_file]
    told = SmallDisk(scratch, size_kib=48).tell(compact, then_with_room=[compact])
    assert told.exit_codes == [1, 0], told.output
    assert "no space is left" in told.output, told.output
    assert "Spark's local directory" in told.output, told.output
