"""Room on the disks that tierd needs, as ``check-config --online`` looks for it."""

import os
from pathlib import Path

import pytest

from tierd.app.checks.check_online import require_room, room_left
from tierd.errors import LogDirOfflineError, StateDirError

GIB = 1 << 30
DISK = Path("/var/lib/kafka")


def use(*, size_gib: int, free_gib: float, files: int = 1000, free_files: int = 900) -> os.statvfs_result:
    blocks, free = size_gib * GIB // 4096, int(free_gib * GIB) // 4096
    return os.statvfs_result((4096, 4096, blocks, free, free, files, free_files, free_files, 0, 255))


@pytest.mark.parametrize(
    "found",
    [
        use(size_gib=100, free_gib=50),
        use(size_gib=10_000, free_gib=100),  # one percent of a large disk is much
        use(size_gib=10, free_gib=1),  # little, and a tenth of the disk
        use(size_gib=100, free_gib=50, files=0, free_files=0),  # a file system without inodes, such as btrfs
    ],
)
def test_disk_with_room_is_sound(found: os.statvfs_result) -> None:
    assert room_left(DISK, found).endswith(" GB free")


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (use(size_gib=100, free_gib=1), "has 1.1 GB left"),
        (use(size_gib=100, free_gib=50, free_files=9), "has 9 inodes left"),
    ],
)
def test_disk_that_is_nearly_full_is_a_fault(found: os.statvfs_result, problem: str) -> None:
    with pytest.raises(StateDirError, match=problem) as raised:
        room_left(DISK, found)
    assert raised.value.remedy


def test_directory_that_is_not_made_yet_counts_as_its_nearest_parent(tmp_path: Path) -> None:
    assert require_room(tmp_path / "state" / "inner") == require_room(tmp_path)


def test_path_that_the_file_system_refuses_is_offline(tmp_path: Path) -> None:
    with pytest.raises(LogDirOfflineError, match="File name too long"):
        require_room(tmp_path / ("x" * 300))
