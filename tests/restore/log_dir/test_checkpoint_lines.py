"""The partition's lines in the checkpoints of a log dir; other lines stay (changelog-restore 4.2, step 12)."""

from pathlib import Path

import pytest

from tests.restore.log_dir.lab import PARTITION, Lab, closed, new_log, write_segments
from tierd.log import read_offset_checkpoint
from tierd.model import TopicPartition
from tierd.restore.plan.partition_plan import RestoreMode

OURS = PARTITION.topic_partition
NAMES = ("recovery-point", "log-start", "replication", "cleaner")


def path_of(log_dir: Path, name: str) -> Path:
    return log_dir / f"{name}-offset-checkpoint"


def ours(log_dir: Path) -> dict[str, int]:
    found = {name: read_offset_checkpoint(path_of(log_dir, name)).get(OURS) for name in NAMES}
    return {name: offset for name, offset in found.items() if offset is not None}


@pytest.mark.spec("changelog-restore 72")
@pytest.mark.parametrize("mode", RestoreMode)
async def test_lines_of_other_partitions_stay(tmp_path: Path, mode: RestoreMode) -> None:
    lab = Lab(tmp_path)
    log = new_log(tmp_path / "lost")
    write_segments(log, 2)
    segments = await lab.copy(closed(log))
    others = ["aa 0 17\n", "orders 1 5\n", "zz 3 99\n"]
    for name in NAMES:
        path_of(lab.log_dir, name).write_text("".join(["0\n4\n", others[0], "orders 0 77\n", *others[1:]]))
    await lab.restore(lab.plan(segments, mode=mode))
    for name in NAMES:
        lines = path_of(lab.log_dir, name).read_text().splitlines(keepends=True)
        assert [line for line in lines[2:] if not line.startswith("orders 0 ")] == others
        assert lines[:2] == ["0\n", f"{len(lines) - 2}\n"]


@pytest.mark.parametrize(
    ("mode", "watermark"), [(RestoreMode.LAST_COPY, 40), (RestoreMode.IMPORT, 40), (RestoreMode.REPLICA, None)]
)
async def test_log_dir_without_checkpoints_gets_the_lines(
    tmp_path: Path, mode: RestoreMode, watermark: int | None
) -> None:
    """The leader tells a replica its high watermark; the last copy tells itself."""
    lab = Lab(tmp_path)
    log = new_log(tmp_path / "lost")
    write_segments(log, 2)
    await lab.restore(lab.plan(await lab.copy(closed(log)), mode=mode))
    expected = {"recovery-point": 40, "log-start": 0} | ({} if watermark is None else {"replication": watermark})
    assert ours(lab.log_dir) == expected


@pytest.mark.parametrize(("before", "after"), [(12, 12), (77, 40)])
async def test_replica_keeps_a_lower_high_watermark(tmp_path: Path, before: int, after: int) -> None:
    lab = Lab(tmp_path)
    log = new_log(tmp_path / "lost")
    write_segments(log, 2)
    path_of(lab.log_dir, "replication").write_text(f"0\n1\norders 0 {before}\n")
    await lab.restore(lab.plan(await lab.copy(closed(log)), mode=RestoreMode.REPLICA))
    assert ours(lab.log_dir)["replication"] == after


@pytest.mark.parametrize(
    ("mode", "is_compacted", "before", "after"),
    [
        (RestoreMode.LAST_COPY, False, 12, 12),
        (RestoreMode.LAST_COPY, False, 77, None),
        (RestoreMode.LAST_COPY, True, 12, None),
        (RestoreMode.IMPORT, False, 12, None),
    ],
)
async def test_offset_of_the_cleaner_stays_only_where_it_is_still_true(
    tmp_path: Path, mode: RestoreMode, is_compacted: bool, before: int, after: int | None
) -> None:
    lab = Lab(tmp_path)
    log = new_log(tmp_path / "lost")
    write_segments(log, 2)
    path_of(lab.log_dir, "cleaner").write_text(f"0\n2\norders 0 {before}\nother 0 1\n")
    await lab.restore(lab.plan(await lab.copy(closed(log)), mode=mode, is_compacted=is_compacted))
    assert ours(lab.log_dir).get("cleaner") == after
    assert read_offset_checkpoint(path_of(lab.log_dir, "cleaner"))[TopicPartition("other", 0)] == 1
