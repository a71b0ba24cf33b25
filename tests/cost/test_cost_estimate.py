import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.log_dirs import LogDirWriter
from tierd.cost.cost_estimate import Plan, TopicEstimate, estimate, estimate_log_dirs, reading_cost
from tierd.cost.local_segments import DAY_MS, Partition, Segment, find_partitions
from tierd.cost.prices import GIB, PriceList, RequestPrices, TrafficPrices

PRICES = PriceList(storage_per_gib_month=1, per_1000_requests=RequestPrices(put=1000, list=0, get=0, delete=100))
YEAR = Plan(retention_days=365, replication_factor=1, part_size_bytes=1 << 40, compression_level=None)


def partition(*sizes: int, days_between: float = 1.0, topic: str = "orders") -> Partition:
    segments = [Segment(Path(f"{n}.log"), size, round(n * days_between * DAY_MS)) for n, size in enumerate(sizes)]
    return Partition(topic, tuple(segments))


def estimated(*partitions: Partition, plan: Plan = YEAR, ratio: float = 1.0) -> TopicEstimate:
    (topic,) = estimate(partitions, PRICES, plan, ratio_of=lambda _: ratio)
    return topic


def test_topic_is_priced_by_the_growth_of_its_files() -> None:
    topic = estimated(partition(GIB, GIB, GIB, GIB))

    assert (topic.bytes_per_day, topic.segments_per_day) == (GIB, 1)
    assert topic.due_bytes == 3 * GIB
    assert topic.stored_bytes == 365 * GIB
    assert topic.month.storage == pytest.approx(365)
    # A month has 365/12 segments: log, indexes, manifest and tombstone are put, four objects deleted.
    assert topic.month.requests == pytest.approx(365 / 12 * (4 * 1.0 + 4 * 0.1))


def test_topic_without_retention_is_priced_at_its_twelfth_month_without_deletions() -> None:
    plan = Plan(retention_days=None, replication_factor=1, part_size_bytes=1 << 40, compression_level=None)

    topic = estimated(partition(GIB, GIB), plan=plan)

    assert topic.stored_bytes == 365 * GIB
    assert topic.month.requests == pytest.approx(365 / 12 * 3)


def test_only_one_replica_is_copied() -> None:
    plan = Plan(retention_days=10, replication_factor=2, part_size_bytes=1 << 40, compression_level=None)

    assert estimated(partition(GIB, GIB), plan=plan).stored_bytes == 5 * GIB


def test_compression_lowers_stored_bytes_and_not_the_number_of_segments() -> None:
    plain, small = estimated(partition(GIB, GIB)), estimated(partition(GIB, GIB), ratio=0.25)

    assert small.stored_bytes == plain.stored_bytes / 4
    assert small.segments_per_day == plain.segments_per_day
    assert small.month.requests == plain.month.requests


def test_partition_of_unknown_pace_is_counted_and_left_out_of_the_sum() -> None:
    topic = estimated(partition(GIB), partition(GIB, GIB))

    assert (topic.partitions, topic.unknown_partitions) == (2, 1)
    assert topic.bytes_per_day == GIB


def test_estimate_from_minutes_of_files_ranges_from_no_growth_to_their_pace_all_day() -> None:
    minute = 1 / 1440
    topic = estimated(partition(GIB, GIB, GIB, days_between=minute))

    assert topic.is_base_short
    assert topic.base_days == pytest.approx(2 * minute)
    assert topic.stored_bytes == topic.high.stored_bytes == pytest.approx(1440 * 365 * GIB)
    assert topic.low.bytes_per_day == pytest.approx(2 * GIB)
    assert topic.low.stored_bytes == pytest.approx(2 * 365 * GIB)
    assert topic.low.month.total < topic.month.total == topic.high.month.total


def test_estimate_from_days_of_files_at_an_even_pace_has_equal_low_and_high() -> None:
    topic = estimated(partition(GIB, GIB, GIB, GIB))

    assert not topic.is_base_short
    assert topic.low == topic.high
    assert topic.low.stored_bytes == topic.stored_bytes


def test_estimate_from_files_of_varying_pace_ranges_between_the_paces_of_their_halves() -> None:
    topic = estimated(partition(GIB, GIB, GIB, 3 * GIB, 3 * GIB))

    assert (topic.low.bytes_per_day, topic.bytes_per_day, topic.high.bytes_per_day) == (GIB, 2 * GIB, 3 * GIB)


def test_base_of_a_topic_is_that_of_its_youngest_partition() -> None:
    topic = estimated(partition(GIB, GIB), partition(GIB, GIB, days_between=0.1), partition(GIB))

    assert topic.base_days == pytest.approx(0.1)
    assert topic.is_base_short
    assert estimated(partition(GIB)).base_days is None


_SEGMENTS = st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 400 * DAY_MS)), max_size=12)


@given(segments=_SEGMENTS)
def test_pace_of_any_files_lies_in_its_range(segments: list[tuple[int, int]]) -> None:
    times = sorted(time_ms for _, time_ms in segments)
    files = tuple(Segment(Path("x"), size, at) for (size, _), at in zip(segments, times, strict=True))
    pace = Partition("orders", files).pace()

    assert (pace is None) == (len(set(times)) < 2)
    if pace is not None:
        assert 0 <= pace.low <= pace.bytes_per_day <= pace.high
        assert pace.base_days > 0


def test_partitions_of_a_log_dir_are_found_without_reading_records(tmp_path: Path) -> None:
    log_dir = tmp_path / "kafka"
    writer = LogDirWriter(log_dir)
    for name in ("orders", "__consumer_offsets"):
        partition_writer = writer.add_partition(name)
        for n in range(3):
            if n:
                partition_writer.roll()
            partition_writer.append([b"x" * 1000])
    (log_dir / "orders-0" / "00000000000000000000.log").chmod(0)

    (found,) = find_partitions(log_dir, lambda topic: not topic.startswith("__"))

    assert (found.topic, len(found.segments), len(found.rolled)) == ("orders", 3, 2)
    assert all(segment.size_bytes > 1000 for segment in found.segments)


def test_compression_ratio_is_measured_on_the_segments(tmp_path: Path) -> None:
    writer = LogDirWriter(tmp_path / "kafka")
    noise = random.Random(1).randbytes(50_000)
    for topic, value in (("text", b"the same again " * 4000), ("noise", noise)):
        partition_writer = writer.add_partition(topic)
        for n in range(2):
            if n:
                partition_writer.roll()
            partition_writer.append([value])
    for number, log in enumerate(sorted((tmp_path / "kafka").rglob("*.log"))):
        os.utime(log, (number * 1000, number * 1000))
    plan = Plan(retention_days=1, replication_factor=1, part_size_bytes=1 << 20, compression_level=3)

    topics = estimate_log_dirs([tmp_path / "kafka"], PRICES, plan, on_progress=lambda _: None)

    ratios = {topic.topic: topic.ratio for topic in topics}
    assert ratios["text"] < 0.1
    assert ratios["noise"] == pytest.approx(1.0)


def test_read_costs_its_requests_and_its_traffic() -> None:
    prices = PriceList(per_1000_requests=RequestPrices(get=4), per_gib=TrafficPrices(download=0.09))
    cost = reading_cost(prices, requests=500, size_bytes=10 * GIB)
    assert (cost.requests, cost.traffic) == pytest.approx((2, 0.9))
