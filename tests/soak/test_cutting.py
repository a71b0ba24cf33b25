from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.soak.cutting import cut_log_back

SEGMENTS, BATCHES, RECORDS = 4, 4, 3
PER_SEGMENT = BATCHES * RECORDS


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    log_dir = LogDirWriter(tmp_path)
    writer = log_dir.add_partition("orders")
    for _ in range(SEGMENTS):
        for _ in range(BATCHES):
            writer.append([b"value"] * RECORDS)
        writer.roll()
    (tmp_path / "recovery-point-offset-checkpoint").write_text(f"0\n2\norders 0 {SEGMENTS * PER_SEGMENT}\nother 0 7\n")
    return writer.path


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_cut_log_ends_in_the_middle_of_the_chosen_segment(directory: Path, segments: int) -> None:
    base = (SEGMENTS - segments) * PER_SEGMENT
    end = cut_log_back(directory, segments=segments, at_least=0)
    assert base < end < base + PER_SEGMENT
    assert max(int(log.stem) for log in directory.glob("*.log")) == base
    points = (directory.parent / "recovery-point-offset-checkpoint").read_text().splitlines()
    assert points == ["0", "2", f"orders 0 {base}", "other 0 7"]


def test_cut_log_keeps_all_records_below_the_given_offset(directory: Path) -> None:
    at_least = 3 * PER_SEGMENT
    assert cut_log_back(directory, segments=3, at_least=at_least) > at_least
