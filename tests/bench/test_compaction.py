"""Figures of the contests with the log cleaner."""

from tests.bench.compaction import Contest, InputBytes, JobCost, Shape, contest_figures

SHAPE = Shape("1 KB", 1000, "none", records=4, segment_bytes=1 << 20, dirty_ratio=1.0, goal=">= 1.5")


def contest(*, cleaner: float, work_s: float) -> Contest:
    cost = JobCost(start_s=5.0, work_s=work_s, driver_bytes=1, worker_bytes=1, fetched_bytes=400_000_000)
    return Contest(cleaner, cost, InputBytes(total=200_000_000, dirty=200_000_000))


def test_figures_are_medians_and_the_ratio_is_the_median_of_the_ratios_of_each_run() -> None:
    runs = [
        contest(cleaner=400.0, work_s=1.0),  # 200 MB/s, 0.5
        contest(cleaner=1000.0, work_s=0.5),  # 400 MB/s, 0.4
        contest(cleaner=500.0, work_s=0.25),  # 800 MB/s, 1.6
    ]
    found = {figure.name: figure for figure in contest_figures(SHAPE, runs)}
    assert found["compaction, 1 KB: log cleaner"].value == 500
    assert found["compaction, 1 KB: job"].value == 400
    assert found["compaction, 1 KB: job / log cleaner"].value == 0.5
    assert found["compaction, 1 KB: job / log cleaner"].goal == ">= 1.5"
    assert found["compaction, 1 KB: fetched / (dirty + all)"].value == 1
