import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.log.partition.retention import (
    DeletionPlan,
    LogFacts,
    RetentionSegment,
    is_internal_topic,
    is_tiered,
    log_start_breached,
    plan_deletion,
    retention_limits,
    size_breached,
    time_breached,
)
from tierd.log.records.log_config import LogConfig


def log_of(
    *sizes: int,
    high_watermark: int | None = None,
    timestamps_ms: tuple[int, ...] | None = None,
    log_start: int = 0,
    local_log_start: int | None = None,
    remote: int = -1,
    tiered: bool = False,
) -> LogFacts:
    """Return a log of segments with ten offsets each."""
    times = timestamps_ms or (0,) * len(sizes)
    segments = tuple(RetentionSegment(at * 10, size, times[at]) for at, size in enumerate(sizes))
    end = segments[-1].base_offset + (10 if sizes[-1] else 0)
    return LogFacts(
        segments=segments,
        log_end_offset=end,
        high_watermark=end if high_watermark is None else high_watermark,
        log_start_offset=log_start,
        local_log_start_offset=log_start if local_log_start is None else local_log_start,
        highest_remote_offset=remote,
        is_tiered=tiered,
    )


def everything(_segment: RetentionSegment, _following: RetentionSegment | None) -> bool:
    return True


@pytest.mark.spec("log-format RET-16")
@pytest.mark.parametrize(("active_bytes", "count"), [(0, 9), (7, 10)])
def test_empty_active_segment_is_kept_and_segments_are_tested_in_order(active_bytes: int, count: int) -> None:
    log = log_of(*[7] * 9, active_bytes)
    asked: list[tuple[RetentionSegment, RetentionSegment | None]] = []

    def predicate(segment: RetentionSegment, following: RetentionSegment | None) -> bool:
        asked.append((segment, following))
        return True

    assert plan_deletion(log, predicate, waits_for_copy=False) == DeletionPlan(count)
    assert asked == list(zip(log.segments, (*log.segments[1:], None), strict=True))


def test_segment_at_or_above_the_high_watermark_is_not_deleted() -> None:
    for high_watermark, count in ((0, 0), (9, 0), (10, 1), (29, 2), (30, 3)):
        log = log_of(5, 5, 5, high_watermark=high_watermark)
        assert plan_deletion(log, everything, waits_for_copy=False).count == count


def test_segments_behind_the_first_kept_one_are_kept() -> None:
    log = log_of(5, 5, 5, timestamps_ms=(0, 900, 0))
    assert plan_deletion(log, time_breached(500, now_ms=1000), waits_for_copy=False).count == 1


@pytest.mark.parametrize(("limit_bytes", "count"), [(-1, 0), (100, 0), (30, 0), (29, 0), (20, 1), (10, 2), (0, 3)])
def test_size_retention_leaves_at_least_its_limit(limit_bytes: int, count: int) -> None:
    log = log_of(10, 10, 10)
    assert plan_deletion(log, size_breached(log, limit_bytes), waits_for_copy=False).count == count


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 400))
def test_size_retention_leaves_as_few_segments_as_its_limit_allows(sizes: list[int], limit_bytes: int) -> None:
    log = log_of(*sizes)
    count = plan_deletion(log, size_breached(log, limit_bytes), waits_for_copy=False).count
    assert sum(sizes[count:]) >= min(limit_bytes, sum(sizes))
    if count < len(sizes):
        assert sum(sizes[count + 1 :]) < limit_bytes or sum(sizes) < limit_bytes


@pytest.mark.parametrize(("limit_ms", "count"), [(-1, 0), (1000, 0), (999, 1), (0, 1)])
def test_time_retention_deletes_segments_older_than_its_limit(limit_ms: int, count: int) -> None:
    log = log_of(5, 5, timestamps_ms=(0, 1000))
    assert plan_deletion(log, time_breached(limit_ms, now_ms=1000), waits_for_copy=False).count == count


def test_log_start_retention_deletes_whole_segments_below_the_log_start_and_keeps_the_last() -> None:
    for log_start, count in ((0, 0), (9, 0), (10, 1), (29, 2), (30, 2)):
        log = log_of(5, 5, 5, log_start=log_start)
        assert plan_deletion(log, log_start_breached(log), waits_for_copy=False).count == count


def test_log_start_retention_of_a_tiered_log_uses_the_local_log_start() -> None:
    log = log_of(5, 5, 5, log_start=0, local_log_start=20, remote=19, tiered=True)
    assert plan_deletion(log, log_start_breached(log), waits_for_copy=True).count == 2


def test_segment_of_a_tiered_log_stays_until_it_is_copied_or_below_the_log_start() -> None:
    for remote, log_start, count in ((-1, 0, 0), (8, 0, 0), (9, 0, 1), (29, 0, 3), (-1, 10, 1), (9, 20, 2)):
        log = log_of(5, 5, 5, 0, remote=remote, log_start=log_start, tiered=True)
        assert plan_deletion(log, everything, waits_for_copy=True).count == count
    assert plan_deletion(log_of(5, 5, 0, tiered=True), everything, waits_for_copy=False).count == 2


def test_expired_active_segment_of_a_tiered_log_is_rolled_before_it_is_copied() -> None:
    assert plan_deletion(log_of(5, tiered=True), everything, waits_for_copy=True) == DeletionPlan(0, rolls_active=True)
    uploaded = log_of(5, tiered=True, remote=9)
    assert plan_deletion(uploaded, everything, waits_for_copy=True) == DeletionPlan(1, rolls_active=True)
    assert plan_deletion(log_of(0, tiered=True), everything, waits_for_copy=True) == DeletionPlan(0)
    assert plan_deletion(log_of(5), everything, waits_for_copy=False) == DeletionPlan(1)


def test_local_limits_apply_only_while_segments_are_copied() -> None:
    own = LogConfig(
        remote_storage_enable=True,
        retention_ms=100,
        retention_bytes=200,
        local_retention_ms=10,
        local_retention_bytes=20,
    )
    assert retention_limits(own, waits_for_copy=True) == (10, 20)
    assert retention_limits(own, waits_for_copy=False) == (100, 200)
    inherited = LogConfig(remote_storage_enable=True, retention_ms=100, retention_bytes=200)
    assert retention_limits(inherited, waits_for_copy=True) == (100, 200)


@pytest.mark.spec("log-format TRN-18")
@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__remote_log_metadata"])
def test_internal_topics_of_kafka_are_not_tiered(topic: str) -> None:
    config = LogConfig(remote_storage_enable=True)
    assert is_tiered("orders", config)
    assert not is_tiered(topic, config)
    assert not is_tiered("orders", LogConfig())
    assert is_internal_topic("__consumer_offsets")
    assert not is_internal_topic("orders")
