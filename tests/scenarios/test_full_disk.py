"""Disk of the store or of the state dir that fills up while tierd works: copying continues once there is room."""

from pathlib import Path

import pytest

from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.fakes.small_disk import SmallDisk
from tests.scenarios.command import TIERD
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.log_dirs import facts_below

PARTITION = "synthetic-0"
SHAPE = SegmentShape(batches=8, records_per_batch=8, value_bytes=1000)  # segments of 64 KiB


@pytest.mark.parametrize(("full", "size_kib"), [("store", 600), ("state", 120)])
def test_full_disk_is_reported_and_copying_continues_when_there_is_room(
    full: str, size_kib: int, tmp_path: Path, make_installation: MakeInstallation
) -> None:
    log_dir = write_log_dir(tmp_path / "logdir", partitions=2, rolled_segments=20, shape=SHAPE).path
    before = facts_below(log_dir)
    tierd = make_installation([log_dir], settings={"hold": {"mode": "none"}})
    disk = tierd.root / full
    disk.mkdir()

    def command(*words: str) -> list[str | Path]:
        return [TIERD, *words, "--config", tierd.config_file]

    told = SmallDisk(disk, size_kib).tell(
        command("copy", "--once"),
        then_with_room=[command("copy", "--once"), command("verify", "--deep"), command("cat", PARTITION, "--json")],
    )

    assert told.exit_codes == [3, 0, 0, 0], told.output
    assert "No space left" in told.output or "full" in told.output, told.output
    assert "Traceback" not in told.output
    records = [line for line in told.lines if line.startswith("{")]
    assert len(records) == 20 * 64 + 8
    assert facts_below(log_dir) == before
