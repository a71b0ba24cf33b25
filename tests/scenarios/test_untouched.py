"""Log dirs of a broker, in which tierd changes no file even when other parts fail."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.log_dirs import write_log_dir
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.damage import flip_byte
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.log_dirs import copy_writable, facts_below
from tests.scenarios.stores import SpoilableS3


def test_commands_do_not_change_the_log_dir_of_a_broker(
    golden: Path, tmp_path: Path, make_installation: MakeInstallation
) -> None:
    log_dir = tmp_path / "logdir"
    copy_writable(golden / "kafka-3.9.2/clean/logdir", log_dir)
    before = facts_below(log_dir)
    tierd = make_installation([log_dir])

    with tierd.daemon() as daemon:
        daemon.wait_copied({"txn-0": 301, "plain-none-0": 493})
        tierd.ask("status", "--json")
        tierd.ask("sync")
    tierd.ask("copy", "--once")
    tierd.ask("segments", "txn-0", "--json")
    tierd.ask("explain", "txn-0", "7")
    tierd.ask("cat", "txn-0", "--committed", "--json")
    tierd.ask("inspect", str(log_dir))
    tierd.ask("verify", "--deep")

    assert facts_below(log_dir) == before


def unusable_hold(_tierd: Installation, log_dir: Path) -> Settings:
    return {"hold": {"dir": str(log_dir.parent / "a-file" / "hold")}}


def unusable_state_dir(_tierd: Installation, log_dir: Path) -> Settings:
    return {"state_dir": str(log_dir.parent / "a-file" / "state")}


def unusable_store(_tierd: Installation, log_dir: Path) -> Settings:
    return {"remote": {"backend": "filesystem", "filesystem": {"path": str(log_dir.parent / "a-file" / "store")}}}


def damaged_segment(_tierd: Installation, log_dir: Path) -> Settings:
    flip_byte(log_dir / "synthetic-0" / "00000000000000000000.log", position=300)
    return {}


@pytest.mark.parametrize("fault", [unusable_hold, unusable_state_dir, unusable_store, damaged_segment])
def test_fault_of_another_part_does_not_change_the_log_dir(
    fault: Callable[[Installation, Path], Settings], tmp_path: Path, make_installation: MakeInstallation
) -> None:
    log_dir = write_log_dir(tmp_path / "logdir", partitions=2, rolled_segments=3).path
    (tmp_path / "a-file").touch()
    tierd = make_installation([log_dir])
    tierd.configure(fault(tierd, log_dir))
    before = facts_below(log_dir)

    ended = tierd.ask("copy", "--once")

    assert "Traceback" not in ended.output
    assert facts_below(log_dir) == before


@pytest.mark.service("s3")
def test_unreachable_bucket_does_not_change_the_log_dir(
    tmp_path: Path, make_installation: MakeInstallation, spoilable_s3: SpoilableS3
) -> None:
    log_dir = write_log_dir(tmp_path / "logdir", partitions=2, rolled_segments=3).path
    tierd = make_installation([log_dir], remote=spoilable_s3.remote())
    spoilable_s3.path.disable()
    before = facts_below(log_dir)

    ended = tierd.ask("copy", "--once")

    assert ended.exit_code == 3, ended.output
    assert facts_below(log_dir) == before
