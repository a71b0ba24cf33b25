"""Daemon that is killed or frozen at every step between job and leader, without a real Spark."""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.scenarios.command import TIERD
from tests.scenarios.compaction_lab import KEYS, CompactionLab
from tests.scenarios.interrupted_tierd import STEPS, command
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.waiting import is_stopped, wait_until

KILLED = -signal.SIGKILL


@pytest.fixture
def lab(tmp_path: Path, warm_tierd: WarmTierd) -> CompactionLab:
    return CompactionLab(tmp_path, warm_tierd)


@pytest.mark.parametrize("step", STEPS)
def test_a_daemon_killed_at_any_step_leaves_the_inputs_or_the_output(
    lab: CompactionLab, tmp_path: Path, step: str
) -> None:
    lab.fill("orders", segments=9)
    victim = lab.tierd.daemon(command=command(tmp_path / "spark", step))
    with victim:
        lab.let_local_go(victim)
        ended = lab.tierd.ask("compact", "--once")
        assert ended.exit_code == 3, ended.output
        assert victim.wait_end() == KILLED
    found = lab.read("orders")
    assert dict(found) == lab.latest("orders")
    assert len(found) > KEYS, "part of the work was left"
    with lab.tierd.daemon(command=command(tmp_path / "spark")) as daemon:
        ended = lab.tierd.ask("compact", "--once")
        assert ended.exit_code == 0, ended.output
        lab.assert_clean(daemon, "orders")
    lab.assert_rebuilt_alike()


def test_daemon_whose_leadership_moves_during_a_run_commits_no_further_group(
    lab: CompactionLab, tmp_path: Path
) -> None:
    lab.fill("orders", segments=9)
    shared = {"metadata": {"sqlite": {"path": str(tmp_path / "rows" / "metadata.db")}}}
    (tmp_path / "rows").mkdir()
    lab.tierd.configure(shared)
    successor = lab.installation("successor", **shared)
    with lab.tierd.daemon(command=command(tmp_path / "spark", "manifest", signal.SIGSTOP)) as frozen:
        lab.let_local_go(frozen)
        asking = subprocess.Popen(
            [str(TIERD), "compact", "--once", "--config", str(lab.tierd.config_file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wait_until(lambda: is_stopped(frozen.pid), what="the daemon to stand still", deadline_s=60)
        with successor.daemon(command=command(tmp_path / "spark")) as daemon:
            lab.fill("orders", segments=1)
            lab.let_local_go(daemon)  # its claim makes it the leader
            left = successor.ask("compact", "--once", "--json")
            assert left.json()["outcome"] == "nothing_due", "the other daemon still has the lease"
            frozen.send_signal(signal.SIGCONT)
            said, _ = asking.communicate(timeout=60)
            assert asking.returncode == 1, said
            assert "orders-0, group 1:" in said, said
            assert dict(lab.read("orders")) == lab.latest("orders")
            ended = successor.ask("compact", "--once")
            assert ended.exit_code == 0, ended.output
            lab.assert_clean(daemon, "orders", tierd=successor)


def test_second_run_at_the_same_time_is_refused_as_under_way(lab: CompactionLab, tmp_path: Path) -> None:
    lab.fill("orders", segments=9)
    with lab.tierd.daemon(command=command(tmp_path / "spark")) as daemon:
        lab.let_local_go(daemon)
        arguments = [str(TIERD), "compact", "--once", "--config", str(lab.tierd.config_file)]
        both = [
            subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)
        ]
        said = {each.communicate(timeout=60)[0]: each.returncode for each in both}
        assert sorted(said.values()) == [0, 1], said
        assert [text for text, code in said.items() if code and "under way" in text], said
        lab.assert_clean(daemon, "orders")
