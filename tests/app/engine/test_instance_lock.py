import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tierd.app.engine.instance_lock import instance_lock, make_state_dir
from tierd.errors import AlreadyRunningError, StateDirError

HOLDER = """
import sys
from pathlib import Path
from tierd.app.engine.instance_lock import instance_lock
with instance_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def other_process(tmp_path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_holder_of_the_lock_is_refused_with_the_pid_of_the_first(
    tmp_path: Path, other_process: "subprocess.Popen[str]"
) -> None:
    with other_process, pytest.raises(AlreadyRunningError, match=f"process {other_process.pid}") as refused:
        instance_lock(tmp_path).__enter__()
    assert refused.value.remedy


def test_lock_of_a_killed_process_is_free(tmp_path: Path, other_process: "subprocess.Popen[str]") -> None:
    with other_process:
        other_process.kill()
        other_process.wait()
    with instance_lock(tmp_path):
        assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_lock_is_free_again_after_use(tmp_path: Path) -> None:
    for _ in range(2):
        with instance_lock(tmp_path):
            pass


def test_state_dir_is_made_for_its_owner_only(tmp_path: Path) -> None:
    state_dir = tmp_path / "var" / "tierd"
    make_state_dir(state_dir)
    make_state_dir(state_dir)
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700


def test_a_state_dir_that_is_a_file_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StateDirError, match="state cannot be used") as refused:
        make_state_dir(tmp_path / "state")
    assert "state_dir" in refused.value.remedy


def test_full_disk_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("/dev/full")
    with pytest.raises(StateDirError, match=r"No space left|Invalid argument"):
        instance_lock(tmp_path).__enter__()
