from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.planning.tiers import candidate, remote, tier
from tierd.model import RemoteLogSegmentMetadata
from tierd.pipeline.planning.chain import Chain
from tierd.pipeline.planning.segment_grouping import (
    MAX_OFFSET_SPAN,
    GroupLimits,
    compaction_groups,
    index_bytes,
    merge_groups,
    single_groups,
)

HUGE = GroupLimits(segment_bytes=1 << 40, index_bytes=1 << 40)


def grouped(segments: list[RemoteLogSegmentMetadata], limits: GroupLimits = HUGE) -> list[int]:
    groups = compaction_groups(candidate(segments).chain(), limits)
    return [group.last - group.first + 1 for group in groups]


class TestCompaction:
    @pytest.mark.spec("log-format CLN-27")
    @pytest.mark.parametrize(
        ("limits", "expected"),
        [
            (HUGE, [6]),
            (GroupLimits(segment_bytes=1, index_bytes=1 << 40), [1] * 6),
            (GroupLimits(segment_bytes=1 << 40, index_bytes=1), [1] * 6),
            (GroupLimits(segment_bytes=300, index_bytes=1 << 40), [3, 3]),
            (GroupLimits(segment_bytes=1 << 40, index_bytes=3 * index_bytes(100)), [3, 3]),
        ],
    )
    def test_groups_are_as_large_as_log_and_indexes_allow(self, limits: GroupLimits, expected: list[int]) -> None:
        assert grouped(tier(*[100] * 6), limits) == expected

    @pytest.mark.spec("log-format CLN-28")
    def test_segments_beyond_the_offset_span_of_an_index_are_not_grouped(self) -> None:
        last = MAX_OFFSET_SPAN
        assert grouped([remote(0, 9), remote(10, last)]) == [2]
        assert grouped([remote(0, 9), remote(10, last + 1)]) == [1, 1]

    @pytest.mark.spec("log-format CLN-28")
    def test_empty_segments_are_grouped_beyond_the_offset_span_of_an_index(self) -> None:
        far = remote(10, 2 * MAX_OFFSET_SPAN, size=0)
        assert grouped([remote(0, 9), far]) == [2]
        assert grouped([remote(0, 9, size=0), remote(10, 19, size=0), remote(20, 29, size=0)]) == [3]
        assert index_bytes(0) == 0

    @pytest.mark.spec("log-format CLN-28")
    def test_records_behind_a_far_empty_segment_are_not_grouped_with_earlier_ones(self) -> None:
        far = remote(10, 2 * MAX_OFFSET_SPAN, size=0)
        assert grouped([remote(0, 9), far, remote(2 * MAX_OFFSET_SPAN + 1, 2 * MAX_OFFSET_SPAN + 2)]) == [2, 1]

    def test_segment_above_the_size_limit_is_a_group_by_itself(self) -> None:
        assert grouped(tier(10, 1000, 10), GroupLimits(segment_bytes=100)) == [1, 1, 1]

    def test_no_group_spans_a_hole_or_an_overlap(self) -> None:
        assert grouped([remote(0, 9), remote(10, 19), remote(25, 29), remote(28, 39)]) == [2, 1, 1]


class TestMerge:
    def test_merge_groups_two_or_more_neighbours_that_may_be_merged(self) -> None:
        chain = candidate(tier(1, 100, 1, 1, 100, 1)).chain()
        assert merge_groups(chain, HUGE, may_merge=lambda m: m.size_bytes < 50) == ((2, 3),)

    def test_merge_keeps_records_of_very_different_age_apart(self) -> None:
        chain = candidate(tier(1, 1, 1, 1, newest_ms=(0, 5, 11, 12))).chain()
        limits = GroupLimits(segment_bytes=1000, age_spread_ms=10)
        assert merge_groups(chain, limits, may_merge=lambda _: True) == ((0, 1), (2, 3))


def test_erasure_has_a_group_for_each_segment() -> None:
    chain = candidate(tier(1, 1, 1)).chain()
    assert single_groups(chain, but=()) == ((0, 0), (1, 1), (2, 2))
    assert single_groups(chain, but={chain.segments[1].segment.id}) == ((0, 0), (2, 2))


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    segments, at = [], 0
    for gap, length, size, newest in draw(
        st.lists(
            st.tuples(st.sampled_from([0, 0, 0, 3]), st.integers(1, 2**31), st.integers(0, 500), st.integers(-1, 50)),
            max_size=12,
        )
    ):
        segments.append(remote(at + gap, at + gap + length - 1, size=size, newest_ms=newest))
        at += gap + length
    return candidate(segments).chain()


limits = st.builds(
    GroupLimits,
    segment_bytes=st.integers(1, 1500),
    index_bytes=st.integers(1, 100),
    age_spread_ms=st.none() | st.integers(0, 50),
)


@given(chains(), limits, st.integers(0, 500))
def test_groups_are_disjoint_within_the_limits_and_span_no_break(chain: Chain, limits: GroupLimits, below: int) -> None:
    compaction = compaction_groups(chain, limits)
    assert [place for first, last in compaction for place in range(first, last + 1)] == [*range(len(chain.segments))]
    merged = merge_groups(chain, limits, may_merge=lambda m: m.size_bytes < below)
    assert all(one.last < other.first for one, other in pairwise(merged))
    assert all(m.size_bytes < below for first, last in merged for m in chain.segments[first : last + 1])
    for first, last in (*compaction, *merged):
        members = chain.segments[first : last + 1]
        assert not chain.breaks.intersection(range(first + 1, last + 1))
        if len(members) == 1:
            continue
        assert sum(m.size_bytes for m in members) <= limits.segment_bytes
        assert sum(index_bytes(m.size_bytes) for m in members) <= limits.index_bytes
        with_records = [m for m in members[1:] if m.size_bytes]
        assert all(m.end_offset - members[0].start_offset <= MAX_OFFSET_SPAN for m in with_records)
        if limits.age_spread_ms is not None:
            ages = [m.max_timestamp_ms for m in members]
            assert max(ages) - min(ages) <= limits.age_spread_ms
