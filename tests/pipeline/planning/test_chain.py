from dataclasses import replace

import pytest

from tests.fakes.remote_segments import segment
from tests.pipeline.planning.tiers import candidate, remote, tier
from tierd.model import OffsetRange


class TestChain:
    def test_chain_has_the_readable_segments_in_the_order_of_the_log(self) -> None:
        segments = tier(1, 2, 3)
        chain = candidate([segments[2], segments[0], segments[1]]).chain()
        assert [m.start_offset for m in chain.segments] == [0, 10, 20]
        assert not chain.breaks
        assert chain.end_offset == 30

    def test_chain_leaves_out_unfinished_copies_and_segments_below_the_log_start(self) -> None:
        chain = candidate([*tier(1, 2), segment(20, 29)], log_start=10).chain()
        assert [m.start_offset for m in chain.segments] == [10]

    def test_chain_keeps_a_segment_with_the_log_start_inside(self) -> None:
        assert [m.start_offset for m in candidate(tier(1, 2), log_start=9).chain().segments] == [0, 10]

    def test_chain_breaks_where_offsets_are_missing(self) -> None:
        chain = candidate([remote(0, 9), remote(15, 19), remote(20, 29)]).chain()
        assert chain.breaks == {1}

    def test_chain_breaks_before_a_segment_copied_with_the_log_start_inside(self) -> None:
        chain = candidate([remote(0, 9), remote(10, 19, epochs={0: 15}), remote(20, 29)]).chain()
        assert [m.start_offset for m in chain.segments] == [0, 10, 20]
        assert chain.breaks == {1}

    def test_chain_breaks_where_two_segments_overlap(self) -> None:
        chain = candidate([remote(0, 9), remote(8, 19)]).chain()
        assert [m.start_offset for m in chain.segments] == [0, 8]
        assert chain.breaks == {1}

    def test_chain_leaves_out_a_segment_of_an_abandoned_branch(self) -> None:
        ours, theirs = remote(0, 9), remote(10, 19, epochs=1)
        chain = candidate([ours, theirs], lineage=[(0, 0), (2, 10)]).chain()
        assert [m.segment.id for m in chain.segments] == [ours.segment.id]

    def test_chain_leaves_out_a_segment_that_continues_an_abandoned_branch(self) -> None:
        first, split = remote(0, 9), remote(10, 29)
        chain = candidate([first, split, remote(20, 39, epochs=2)], lineage=[(0, 0), (2, 20)]).chain()
        assert [m.start_offset for m in chain.segments] == [0, 20]
        assert chain.breaks == {1}
        assert chain.covered_to == 10
        assert [m.start_offset for m in chain.covered().segments] == [0]

    def test_covered_part_ends_before_a_segment_that_is_read_only_from_its_middle_on(self) -> None:
        """After an unclean election the new leader copies some offsets again: readers use parts of both copies."""
        old, new = remote(10, 29, epochs=1), remote(10, 39, epochs={1: 10, 2: 20})
        chain = candidate([remote(0, 9, epochs=1), old, new], lineage=[(1, 0), (2, 20)]).chain()
        assert [(m.start_offset, m.end_offset) for m in chain.segments] == [(0, 9), (10, 39)]
        assert chain.covered_to == 10
        assert [m.start_offset for m in chain.covered().segments] == [0]

    def test_offsets_in_two_overlapping_segments_are_covered(self) -> None:
        assert candidate([remote(0, 9), remote(8, 19)]).chain().covered_to is None

    def test_hole_between_segments_does_not_end_the_covered_part(self) -> None:
        assert candidate([remote(0, 9), remote(15, 19)]).chain().covered_to is None

    @pytest.mark.parametrize(
        ("local_start", "missing"), [(0, (10, 14)), (12, (12, 14)), (14, (14, 14)), (15, None), (20, None)]
    )
    def test_covered_part_ends_before_a_hole_that_the_local_log_fills(
        self, local_start: int, missing: tuple[int, int] | None
    ) -> None:
        """As after a rebuild that found a damaged manifest: the leader copies these offsets again, as they were."""
        chain = candidate([remote(0, 9), remote(15, 19)], lineage=[(0, local_start)]).chain()
        assert chain.missing == (missing and OffsetRange(*missing))
        assert chain.covered_to == (missing and missing[0])
        assert [m.start_offset for m in chain.covered().segments] == ([0] if missing else [0, 15])

    @pytest.mark.parametrize(("local_start", "missing"), [(10, (10, 14)), (12, (12, 14)), (15, None)])
    def test_hole_below_the_local_segments_of_an_owned_log_ends_nothing(
        self, local_start: int, missing: tuple[int, int] | None
    ) -> None:
        """The leader epochs of a tiered log that tierd owns go down to the start of the total log."""
        owned = candidate([remote(0, 9), remote(15, 19)], lineage=[(0, 0)])
        chain = replace(owned, local_log_start_offset=local_start).chain()
        assert chain.missing == (missing and OffsetRange(*missing))

    def test_first_of_several_holes_that_the_local_log_fills_ends_the_covered_part(self) -> None:
        chain = candidate([remote(10, 19), remote(25, 29), remote(40, 49)], lineage=[(0, 22)], log_start=0).chain()
        assert chain.missing == OffsetRange(22, 24)

    def test_offsets_before_the_first_segment_that_the_local_log_has_are_missing(self) -> None:
        chain = candidate([remote(10, 19)], lineage=[(0, 0)], log_start=4).chain()
        assert chain.missing == OffsetRange(4, 9)
        assert chain.covered().segments == ()

    def test_chain_follows_segments_of_several_epochs(self) -> None:
        chain = candidate([remote(0, 9, epochs={0: 0, 1: 5}), remote(10, 19, epochs={1: 10, 2: 15})]).chain()
        assert [m.start_offset for m in chain.segments] == [0, 10]
        assert not chain.breaks

    def test_chain_ignores_epochs_without_records(self) -> None:
        chain = candidate([remote(0, 9, epochs={0: 0, 1: 5, 2: 5})], lineage=[(0, 0), (2, 5)]).chain()
        assert [m.start_offset for m in chain.segments] == [0]
