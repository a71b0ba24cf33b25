"""Copy lag of a partition."""

import pytest

from tierd.tiering.local.partition_log import CopyLag, PendingSegment, copy_lag


def test_lag_without_pending_segments_is_zero() -> None:
    assert copy_lag([], copied_through=10) == CopyLag(0, 0, None)


@pytest.mark.spec("remote-tiering 142")
def test_pending_segment_counts_with_its_bytes_and_its_age() -> None:
    pending = [PendingSegment(end_offset=199, size_bytes=75, modified_ms=5_000)]
    assert copy_lag(pending, copied_through=99) == CopyLag(1, 75, 5_000)
    assert copy_lag(pending, copied_through=199) == CopyLag(0, 0, None)


@pytest.mark.spec("remote-tiering 156")
def test_a_one_record_segment_at_the_frontier_is_not_counted() -> None:
    assert copy_lag([PendingSegment(end_offset=99, size_bytes=75, modified_ms=1)], copied_through=99).segments == 0


@pytest.mark.spec("remote-tiering 157")
def test_segment_that_contains_the_frontier_counts_with_all_its_bytes() -> None:
    lag = copy_lag([PendingSegment(end_offset=199, size_bytes=75, modified_ms=1)], copied_through=149)
    assert (lag.segments, lag.bytes) == (1, 75)


def test_oldest_time_of_the_lag_is_that_of_the_earliest_last_append() -> None:
    pending = [
        PendingSegment(end_offset=9, size_bytes=1, modified_ms=7),
        PendingSegment(end_offset=19, size_bytes=1, modified_ms=3),
    ]
    assert copy_lag(pending, copied_through=-1).oldest_ms == 3
