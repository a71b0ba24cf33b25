"""A disk that fills up while tierd works, the store's or that of its own files: it goes on when there is room."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.scenarios.command import TIERD
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.log_dirs import facts_below

PARTITION = "synthetic-0"
SHAPE = SegmentShape(batches=8, records_per_batch=8, value_bytes=1000)  # segments of 64 KiB


@pytest.mark.parametrize(("full", "size_kib"), [("store", 600), ("state", 120)])
def test_a_full_disk_is_said_and_copying_goes_on_when_there_is_room(
    full: str, size_kib: int, tmp_path: Path, make_installation: MakeInstallation
) -> None:
    log_dir = write_log_dir(tmp_path / "logdir", partitions=2, rolled_segments=20, shape=SHAPE).path
    before = facts_below(log_dir)
    tierd = make_installation([log_dir], settings={"hold": {"mode": "none"}})
    disk = tierd.root / full
    disk.mkdir()
    command = f"{shlex.quote(str(TIERD))} %s --config {shlex.quote(str(tierd.config_file))}"
    story = "\n".join(
        [
            f"mount -t tmpfs -o size={size_kib}k none {shlex.quote(str(disk))} || exit 99",
            f"{command % 'copy --once'}; echo exit-code $?",
            f"mount -o remount,size=64m {shlex.quote(str(disk))}",
            f"{command % 'copy --once'}; echo exit-code $?",
            f"{command % 'verify --deep'}; echo exit-code $?",
            f"{command % f'cat {PARTITION} --json'} | wc -l",
        ]
    )

    # A mount namespace of our own: no root needed, and nothing stays mounted.
    told = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", story], capture_output=True, text=True, check=False
    )

    output = told.stdout + told.stderr
    if told.returncode == 99 or "unshare failed" in output:
        pytest.skip("mounting a small file system is not permitted here")
    assert [line for line in told.stdout.splitlines() if line.startswith("exit-code")] == [
        "exit-code 3",
        "exit-code 0",
        "exit-code 0",
    ], output
    assert "No space left" in output or "full" in output, output
    assert "Traceback" not in output
    assert told.stdout.splitlines()[-1].strip() == str(20 * 64 + 8)
    assert facts_below(log_dir) == before
