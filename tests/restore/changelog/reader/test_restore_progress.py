from pathlib import Path

import pytest
import structlog

from tests.restore.changelog.reader.restorer_bench import T0, T1, RestorerBench, values
from tierd.model import TopicPartition
from tierd.restore.changelog.reader.changelog_restorer import ChangelogRestorer
from tierd.restore.changelog.reader.restore_progress import ChangelogProgress, ProgressReporter, RestoreRate
from tierd.restore.changelog.reader.restore_task import TaskType
from tierd.restore.changelog.reader.restored_changelog import ChangelogState
from tierd.telemetry import Metrics, render_store_restore


@pytest.fixture
def bench(tmp_path: Path) -> RestorerBench:
    return RestorerBench(tmp_path)


def test_rate_of_a_steady_restore_is_its_rate_from_the_beginning_on() -> None:
    rate = RestoreRate(100.0)
    assert rate.per_second(100.0) == 0
    for second in range(101, 200):
        rate.add(50, second)
        assert rate.per_second(second) == pytest.approx(50, rel=0.02)


def test_rate_of_a_restore_that_stands_still_decays() -> None:
    rate = RestoreRate(0.0)
    for second in range(1, 300):
        rate.add(50, second)
    assert rate.per_second(300 + 30) == pytest.approx(50 / 2.718, rel=0.1)
    assert rate.per_second(3000) < 0.001


async def test_progress_tells_state_bounds_and_eta(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 99))
    bench.source.add(T1, values(0, 4))
    bench.register(T0)
    bench.register(T1)
    await bench.restorer.restore(max_records=25)
    bench.clock.advance(5)
    first, second = bench.restorer.progress()
    assert (first.partition, first.state) == (T0, ChangelogState.RESTORING)
    assert first.records + second.records == 25  # the two share the bound, in the order of their reads
    assert (first.starting_offset, first.next_offset, first.end_offset) == (0, 100, 100)
    assert first.eta_s == 0
    assert second.partition == T1


async def test_remaining_is_never_negative(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.source.committed[T0] = 3
    bench.checkpoint(T0, 7)
    bench.register(T0, limit_group="app")
    await bench.restorer.restore()
    assert bench.restorer.progress()[0].remaining == 0


async def test_log_tells_at_most_twenty_changelogs_every_ten_seconds(bench: RestorerBench) -> None:
    partitions = [TopicPartition("t", number) for number in range(25)]
    for number, partition in enumerate(partitions):
        log = bench.source.add(partition, [], end=100 + number)
        log.stable = 0
        bench.register(partition, exactly_once=True)
    with structlog.testing.capture_logs() as logs:
        await bench.restorer.restore()
        bench.clock.advance(9.8)
        await bench.restorer.restore()
        assert [entry for entry in logs if "restoring" in entry["event"]] == []
        bench.clock.advance(0.2)
        await bench.restorer.restore()
        await bench.restorer.restore()
    lines = [entry for entry in logs if entry["event"] == "store_restoring"]
    assert [entry["partition"] for entry in lines] == [f"t-{number}" for number in range(24, 4, -1)]
    assert [entry["changelogs"] for entry in logs if entry["event"] == "stores_restoring"] == [25]


async def test_callback_gets_the_progress_of_every_changelog(bench: RestorerBench) -> None:
    told: list[list[ChangelogProgress]] = []
    progress = ProgressReporter(clock=bench.clock, on_progress=lambda each: told.append(list(each)))
    bench.restorer = ChangelogRestorer(bench.source, clock=bench.clock, progress=progress)
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    await bench.restorer.run_until_completed()
    assert [each.partition for each in told[0]] == [T0]


async def test_metrics_show_the_restores_of_a_reader(bench: RestorerBench) -> None:
    assert "tierd_restore" not in Metrics(version="1", clock=bench.clock).render()[0].decode()
    bench.source.add(T0, values(0, 9))
    bench.source.add(T1, values(0, 9))
    bench.register(T0)
    bench.register(T1, kind=TaskType.STANDBY)
    await bench.restorer.restore(max_records=4)
    shown = render_store_restore(bench.progress.use()).decode()
    for line in (
        'tierd_restore_remaining_records{partition="0",topic="t"} 0.0',
        'tierd_restore_standby_lag_records{partition="1",topic="t"} 10.0',
        "tierd_restore_records_total 4.0",
        'tierd_restore_bytes_total{source="local"} 1000.0',
        'tierd_restore_bytes_total{source="remote"} 0.0',
        'tierd_restore_wipes_total{reason="truncated"} 0.0',
        "tierd_restore_failures_total 0.0",
        "tierd_restore_checkpoints_total 0.0",
    ):
        assert line in shown.splitlines()
