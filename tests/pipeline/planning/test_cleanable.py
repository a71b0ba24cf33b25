import pytest

from tests.pipeline.planning.tiers import HOUR_MS, NOW_MS, candidate, remote, tier
from tierd.model import RemoteLogSegmentMetadata
from tierd.pipeline.planning.cleanable import Cleanable, cleanable_of


def measured(
    segments: list[RemoteLogSegmentMetadata],
    *,
    compacted_to: int | None = None,
    last_stable_offset: int | None = None,
    min_lag_ms: int = 0,
    max_lag_ms: int | None = None,
    log_start: int | None = None,
) -> Cleanable:
    chain = candidate(segments, log_start=log_start).chain()
    return cleanable_of(
        chain,
        compacted_to=compacted_to,
        log_end_offset=chain.end_offset,
        last_stable_offset=chain.end_offset if last_stable_offset is None else last_stable_offset,
        min_compaction_lag_ms=min_lag_ms,
        max_compaction_lag_ms=max_lag_ms,
        now_ms=NOW_MS,
    )


class TestBytes:
    @pytest.mark.spec("log-format CLN-23")
    def test_bytes_are_clean_cleanable_or_neither(self) -> None:
        found = measured(tier(1, 2, 4, 8, 16, 32), compacted_to=20, last_stable_offset=40)
        assert (found.clean_bytes, found.cleanable_bytes) == (1 + 2, 4 + 8)
        assert found.ratio == 12 / 15
        assert found.first_uncleanable_offset == 40

    def test_a_segment_that_is_partly_compacted_counts_as_both(self) -> None:
        found = measured(tier(1, 2, 4), compacted_to=15)
        assert (found.clean_bytes, found.cleanable_bytes) == (1 + 2, 2 + 4)

    def test_dirty_ratio_without_bytes_is_zero(self) -> None:
        assert measured(tier(0, 0)).ratio == 0

    def test_dirty_ratio_must_be_above_the_least_ratio(self) -> None:
        found = measured(tier(50, 50), compacted_to=10)
        assert not found.is_due(0.5)
        assert found.is_due(0.49)


class TestFirstDirtyOffset:
    def test_log_that_was_never_compacted_is_dirty_from_its_start(self) -> None:
        assert measured(tier(1, 1)).first_dirty_offset == 0

    @pytest.mark.spec("log-format CLM-03")
    @pytest.mark.parametrize(("compacted_to", "log_start", "expected"), [(200, None, 0), (0, 10, 10), (20, 10, 20)])
    def test_compacted_offset_outside_the_log_is_ignored(
        self, compacted_to: int, log_start: int | None, expected: int
    ) -> None:
        """The stored offset stays as it is: each measurement checks it against the log again."""
        assert measured(tier(1, 1, 1), compacted_to=compacted_to, log_start=log_start).first_dirty_offset == expected

    @pytest.mark.spec("log-format CLN-33")
    def test_holes_at_the_ends_of_segments_do_not_stop_a_round_before_the_end(self) -> None:
        holes = [remote(0, 5), remote(10, 15), remote(20, 25)]
        assert measured(holes).first_uncleanable_offset == 26
        assert measured(holes, compacted_to=26).cleanable_bytes == 0


class TestFirstUncleanableOffset:
    @pytest.mark.spec("log-format CLN-22")
    def test_segment_that_contains_the_limit_is_left_out_with_all_later_ones(self) -> None:
        assert measured(tier(1, 2, 4), last_stable_offset=15).first_uncleanable_offset == 10

    @pytest.mark.spec("log-format CLM-07")
    def test_round_ends_at_the_last_stable_offset(self) -> None:
        assert measured(tier(1, 1, 1, records=50), last_stable_offset=50).first_uncleanable_offset == 50

    @pytest.mark.spec("log-format CLM-07")
    def test_round_ends_at_the_end_of_the_tier(self) -> None:
        assert measured(tier(1, 1, 1), last_stable_offset=1000).first_uncleanable_offset == 30

    @pytest.mark.spec("log-format CLM-07")
    def test_round_ends_before_the_first_segment_younger_than_the_lag(self) -> None:
        old, young = NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS // 2
        segments = tier(1, 1, 1, newest_ms=(old, young, old))
        assert measured(segments, min_lag_ms=HOUR_MS).first_uncleanable_offset == 10

    @pytest.mark.spec("log-format CLM-07")
    def test_lag_does_not_shorten_a_round_of_old_segments(self) -> None:
        segments = tier(1, 1, newest_ms=[NOW_MS - 2 * HOUR_MS] * 2)
        assert measured(segments, min_lag_ms=HOUR_MS).first_uncleanable_offset == 20

    @pytest.mark.spec("log-format CLM-08")
    def test_round_ends_at_an_open_transaction_regardless_of_the_lag(self) -> None:
        segments = tier(1, 1, newest_ms=[NOW_MS - 2 * HOUR_MS] * 2, records=3)
        assert measured(segments, last_stable_offset=0, min_lag_ms=HOUR_MS).first_uncleanable_offset == 0
        assert measured(segments, last_stable_offset=3, min_lag_ms=HOUR_MS).first_uncleanable_offset == 3
        assert measured(segments, min_lag_ms=HOUR_MS).first_uncleanable_offset == 6

    @pytest.mark.spec("log-format CLM-04")
    def test_log_that_is_compacted_to_its_end_has_no_cleanable_bytes(self) -> None:
        found = measured(tier(1, 1), compacted_to=20)
        assert (found.first_dirty_offset, found.first_uncleanable_offset, found.cleanable_bytes) == (20, 20, 0)

    def test_first_uncleanable_offset_is_not_before_the_first_dirty_one(self) -> None:
        found = measured(tier(1, 1, 1), compacted_to=20, last_stable_offset=5)
        assert (found.first_uncleanable_offset, found.cleanable_bytes) == (20, 0)


class TestOverdue:
    def test_no_segment_is_overdue_without_a_lag(self) -> None:
        assert not measured(tier(1, 1)).is_overdue

    def test_old_dirty_segment_is_overdue(self) -> None:
        found = measured(tier(99, 1, newest_ms=(NOW_MS, NOW_MS - 2 * HOUR_MS)), compacted_to=10, max_lag_ms=HOUR_MS)
        assert found.is_overdue
        assert found.is_due(0.5)

    def test_a_dirty_segment_is_as_old_as_the_newest_record_before_it(self) -> None:
        ages = (NOW_MS - 2 * HOUR_MS, NOW_MS)
        assert measured(tier(99, 1, newest_ms=ages), compacted_to=10, max_lag_ms=HOUR_MS).is_overdue
        assert not measured(tier(99, 1, newest_ms=ages), compacted_to=10, max_lag_ms=3 * HOUR_MS).is_overdue

    def test_clean_log_is_not_overdue(self) -> None:
        found = measured(tier(1, 1), compacted_to=20, max_lag_ms=HOUR_MS)
        assert not found.is_due(0.0)

    def test_segments_without_timestamps_are_not_overdue(self) -> None:
        assert not measured(tier(1, 1, newest_ms=(-1, -1)), max_lag_ms=HOUR_MS).is_overdue
