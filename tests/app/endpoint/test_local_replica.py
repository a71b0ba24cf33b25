"""CutEnd: the end of a log that was cut back, found again only after a change of its files."""

import os
from pathlib import Path

import pytest

from tests.log.batches import plain, scan_of
from tierd.app.endpoint.local_replica import CutEnd
from tierd.log import PartitionScan, file_name, find_cut_end


class Walks:
    """``find_cut_end`` that counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, scan: PartitionScan, *, high_watermark: int) -> int | None:
        self.count += 1
        return find_cut_end(scan, high_watermark=high_watermark)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> Walks:
    walks = Walks()
    monkeypatch.setattr("tierd.app.endpoint.local_replica.find_cut_end", walks)
    return walks


def set_times(scan: PartitionScan, time_s: int) -> None:
    """Let the last change of directory and log be at ``time_s``, long ago."""
    for path in (scan.segments[-1].log, scan.directory.path):
        os.utime(path, (time_s, time_s))


def test_files_of_a_log_that_was_cut_back_are_walked_again_only_after_a_change(tmp_path: Path, walks: Walks) -> None:
    scan, cut = scan_of(tmp_path, {0: plain(0, 3)}), CutEnd()
    set_times(scan, 1)
    assert [cut.find(scan, high_watermark=each) for each in (9, 9, 8, 8)] == [3, 3, 3, 3]
    assert walks.count == 2
    with scan.segments[0].log.open("ab") as log:
        log.write(plain(3, 2))
    set_times(scan, 2)
    assert [cut.find(scan, high_watermark=8) for _ in range(2)] == [5, 5]
    assert walks.count == 3
    (scan.directory.path / file_name(5, ".log")).write_bytes(b"")
    set_times(scan, 3)
    assert [cut.find(scan, high_watermark=8) for _ in range(2)] == [None, None], "the broker has begun a segment"
    assert walks.count == 4


def test_files_that_have_just_changed_are_walked_each_time(tmp_path: Path, walks: Walks) -> None:
    """The kernel stamps files by a clock that ticks every few milliseconds."""
    scan, cut = scan_of(tmp_path, {0: plain(0, 3)}), CutEnd()
    future_s = 4_000_000_000
    set_times(scan, future_s)
    assert [cut.find(scan, high_watermark=9) for _ in range(2)] == [3, 3]
    assert walks.count == 2


def test_file_that_is_gone_is_looked_for_each_time(tmp_path: Path, walks: Walks) -> None:
    scan, cut = scan_of(tmp_path, {0: plain(0, 3)}), CutEnd()
    scan.segments[0].log.unlink()
    assert [cut.find(scan, high_watermark=9) for _ in range(2)] == [None, None]
    assert walks.count == 2
