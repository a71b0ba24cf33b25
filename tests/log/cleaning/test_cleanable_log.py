import pytest

from tierd.log.cleaning.cleanable_log import CleanableLog, LogToMeasure, SegmentToClean, measure
from tierd.log.records.log_config import MAX_LONG, LogConfig

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def segment(base_offset: int, size_bytes: int = 10, *, age_ms: int = HOUR_MS) -> SegmentToClean:
    return SegmentToClean(
        base_offset=base_offset,
        size_bytes=size_bytes,
        offset_index_bytes=8,
        time_index_bytes=12,
        largest_timestamp_ms=NOW_MS - age_ms,
        first_timestamp_ms=NOW_MS - age_ms,
    )


def measured(*segments: SegmentToClean, checkpoint: int | None = None, **given: int) -> CleanableLog:
    names = {"log_start_offset", "last_stable_offset"}
    end = segments[-1].base_offset + 10
    log = LogToMeasure(
        segments=segments,
        checkpointed_offset=checkpoint,
        log_start_offset=given.get("log_start_offset", 0),
        log_end_offset=end,
        last_stable_offset=given.get("last_stable_offset", end),
    )
    settings = {name: value for name, value in given.items() if name not in names}
    return measure(log, LogConfig(**settings), now_ms=NOW_MS)  # type: ignore[arg-type]


SIX = tuple(segment(base, base + 10) for base in range(0, 60, 10))


def test_clean_and_dirty_bytes_are_those_below_and_above_the_checkpoint() -> None:
    found = measured(*SIX, checkpoint=20, last_stable_offset=40)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (20, 40)
    assert (found.clean_bytes, found.cleanable_bytes) == (10 + 20, 30 + 40)
    assert found.dirty_ratio == 70 / 100


def test_segment_with_the_checkpoint_in_its_middle_is_clean_and_cleanable() -> None:
    found = measured(*SIX, checkpoint=25)
    assert (found.clean_bytes, found.cleanable_bytes) == (10 + 20 + 30, 30 + 40 + 50)


def test_without_a_checkpoint_all_from_the_log_start_is_dirty() -> None:
    found = measured(*SIX, log_start_offset=30)
    assert (found.first_dirty_offset, found.first_uncleanable_offset, found.is_checkpoint_wrong) == (30, 50, False)


@pytest.mark.parametrize("checkpoint", [9, 61])
def test_checkpoint_outside_of_the_log_is_wrong_and_all_is_dirty(checkpoint: int) -> None:
    found = measured(*SIX, checkpoint=checkpoint, log_start_offset=10)
    assert (found.first_dirty_offset, found.is_checkpoint_wrong) == (10, True)


@pytest.mark.parametrize("given", [{"checkpoint": 50}, {"checkpoint": 57}, {"log_start_offset": 55}])
def test_log_whose_dirty_part_is_the_active_segment_has_nothing_to_clean(given: dict[str, int]) -> None:
    checkpoint = given.pop("checkpoint", None)
    found = measured(*SIX, checkpoint=checkpoint, max_compaction_lag_ms=1, **given)
    assert found.cleanable_bytes == 0
    assert not found.is_due(LogConfig(min_cleanable_dirty_ratio=0.0))


@pytest.mark.parametrize(("stable", "uncleanable"), [(0, 0), (9, 0), (10, 10), (35, 30), (50, 50), (60, 50)])
def test_round_ends_at_the_segment_that_holds_the_last_stable_offset(stable: int, uncleanable: int) -> None:
    assert measured(*SIX, last_stable_offset=stable).first_uncleanable_offset == uncleanable


def test_round_ends_at_the_first_dirty_segment_that_is_too_young() -> None:
    segments = (*SIX[:3], segment(30, age_ms=1000), *SIX[4:])
    assert measured(*segments, min_compaction_lag_ms=HOUR_MS // 2).first_uncleanable_offset == 30
    assert measured(*segments, min_compaction_lag_ms=500).first_uncleanable_offset == 50
    assert measured(*segments, checkpoint=40, min_compaction_lag_ms=HOUR_MS // 2).first_uncleanable_offset == 50


def test_log_is_due_above_its_ratio_strictly_or_when_it_is_overdue() -> None:
    half = measured(segment(0), segment(10), segment(20, 0), checkpoint=10)
    assert half.dirty_ratio == 0.5
    assert not half.is_due(LogConfig(min_cleanable_dirty_ratio=0.5))
    assert half.is_due(LogConfig(min_cleanable_dirty_ratio=0.49))
    overdue = measured(segment(0), segment(10), segment(20, 0), checkpoint=10, max_compaction_lag_ms=HOUR_MS - 1)
    assert overdue.is_due(LogConfig(min_cleanable_dirty_ratio=1.0))
    in_time = measured(segment(0), segment(10), segment(20, 0), checkpoint=10, max_compaction_lag_ms=HOUR_MS)
    assert not in_time.is_due(LogConfig(min_cleanable_dirty_ratio=1.0))


def test_segment_without_timestamps_is_never_overdue() -> None:
    timeless = SegmentToClean(
        base_offset=0,
        size_bytes=10,
        offset_index_bytes=0,
        time_index_bytes=0,
        largest_timestamp_ms=0,
        first_timestamp_ms=MAX_LONG,
    )
    assert not measured(timeless, segment(10), max_compaction_lag_ms=1).is_overdue


def test_empty_log_has_a_ratio_of_zero() -> None:
    assert measured(segment(0, 0)).dirty_ratio == 0.0
