from tests.fakes.remote_segments import segment
from tests.pipeline.planning.tiers import candidate, remote, tier


class TestChain:
    def test_holds_the_readable_segments_in_the_order_of_the_log(self) -> None:
        segments = tier(1, 2, 3)
        chain = candidate([segments[2], segments[0], segments[1]]).chain()
        assert [m.start_offset for m in chain.segments] == [0, 10, 20]
        assert not chain.breaks
        assert chain.end_offset == 30

    def test_leaves_out_copies_that_are_not_finished_and_segments_below_the_log_start(self) -> None:
        chain = candidate([*tier(1, 2), segment(20, 29)], log_start=10).chain()
        assert [m.start_offset for m in chain.segments] == [10]

    def test_keeps_a_segment_that_the_log_start_lies_inside(self) -> None:
        assert [m.start_offset for m in candidate(tier(1, 2), log_start=9).chain().segments] == [0, 10]

    def test_breaks_where_offsets_are_missing(self) -> None:
        chain = candidate([remote(0, 9), remote(15, 19), remote(20, 29)]).chain()
        assert chain.breaks == {1}

    def test_breaks_before_a_segment_whose_log_start_lay_inside_it(self) -> None:
        chain = candidate([remote(0, 9), remote(10, 19, epochs={0: 15}), remote(20, 29)]).chain()
        assert [m.start_offset for m in chain.segments] == [0, 10, 20]
        assert chain.breaks == {1}

    def test_breaks_where_two_segments_overlap(self) -> None:
        chain = candidate([remote(0, 9), remote(8, 19)]).chain()
        assert [m.start_offset for m in chain.segments] == [0, 8]
        assert chain.breaks == {1}

    def test_leaves_out_a_segment_of_a_branch_that_was_given_up(self) -> None:
        ours, theirs = remote(0, 9), remote(10, 19, epochs=1)
        chain = candidate([ours, theirs], lineage=[(0, 0), (2, 10)]).chain()
        assert [m.segment.id for m in chain.segments] == [ours.segment.id]

    def test_leaves_out_a_segment_that_goes_on_with_a_branch_that_was_given_up(self) -> None:
        first, split = remote(0, 9), remote(10, 29)
        chain = candidate([first, split, remote(20, 39, epochs=2)], lineage=[(0, 0), (2, 20)]).chain()
        assert [m.start_offset for m in chain.segments] == [0, 20]
        assert chain.breaks == {1}
        assert chain.covered_to == 10
        assert [m.start_offset for m in chain.covered().segments] == [0]

    def test_a_segment_that_readers_take_only_from_its_middle_on_is_covered_by_none(self) -> None:
        """After an unclean election the new leader copies what the old one had copied in part: both are read."""
        old, new = remote(10, 29, epochs=1), remote(10, 39, epochs={1: 10, 2: 20})
        chain = candidate([remote(0, 9, epochs=1), old, new], lineage=[(1, 0), (2, 20)]).chain()
        assert [(m.start_offset, m.end_offset) for m in chain.segments] == [(0, 9), (10, 39)]
        assert chain.covered_to == 10
        assert [m.start_offset for m in chain.covered().segments] == [0]

    def test_what_two_of_its_segments_hold_is_covered(self) -> None:
        assert candidate([remote(0, 9), remote(8, 19)]).chain().covered_to is None

    def test_a_hole_is_covered_since_nothing_is_there(self) -> None:
        assert candidate([remote(0, 9), remote(15, 19)]).chain().covered_to is None

    def test_follows_segments_of_several_epochs(self) -> None:
        chain = candidate([remote(0, 9, epochs={0: 0, 1: 5}), remote(10, 19, epochs={1: 10, 2: 15})]).chain()
        assert [m.start_offset for m in chain.segments] == [0, 10]
        assert not chain.breaks

    def test_takes_no_notice_of_epochs_that_wrote_nothing(self) -> None:
        chain = candidate([remote(0, 9, epochs={0: 0, 1: 5, 2: 5})], lineage=[(0, 0), (2, 5)]).chain()
        assert [m.start_offset for m in chain.segments] == [0]
