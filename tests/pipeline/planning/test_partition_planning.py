from dataclasses import replace

import pytest

from tests.pipeline.planning.tiers import (
    COMPACTED,
    HOUR_MS,
    NOW_MS,
    candidate,
    planned,
    remote,
    skipped,
    tier,
)
from tierd.log import AbortedTransaction
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.pipeline.planning import CleaningPolicy, Proposal, TierEvidence, WorkKind
from tierd.pipeline.planning.work_order import Group

DELETED = CleaningPolicy(merge_below_bytes=50, segment_bytes=100)
KEPT = CleaningPolicy()
NO_PRODUCERS = encode_producer_snapshot(())


def merged(plan: Proposal) -> list[list[int]]:
    """Return the start offsets of the segments of each group."""
    return [[m.start_offset for m in plan.chain.segments[first : last + 1]] for first, last in plan.groups]


class TestCompaction:
    @pytest.mark.spec("log-format CLM-05")
    @pytest.mark.parametrize(
        ("policy", "expected"),
        [(CleaningPolicy(), 0), (COMPACTED, 1), (replace(COMPACTED, retention_ms=HOUR_MS), 1)],
        ids=["delete", "compact", "compact,delete"],
    )
    def test_only_topics_with_a_compact_policy_are_compacted(self, policy: CleaningPolicy, expected: int) -> None:
        found = candidate(tier(1, 1), policy)
        if expected:
            assert planned(found).kind is WorkKind.COMPACT
        else:
            assert "not compacted" in skipped(found)

    def test_all_segments_below_the_end_of_the_round_are_rewritten(self) -> None:
        plan = planned(candidate(tier(10, 40, 40, 40), compacted_to=10), last_stable_offset=30)
        assert [m.start_offset for m in plan.chain.segments] == [0, 10, 20]
        assert plan.groups == (Group(0, 2),)
        assert (plan.first_dirty_offset, plan.round_end_offset, plan.ratio) == (10, 30, 80 / 90)

    def test_a_partition_that_is_not_dirty_enough_is_skipped(self) -> None:
        assert skipped(candidate(tier(60, 40), compacted_to=10)) == "a dirty ratio of 0.40 is not above 0.50"

    @pytest.mark.spec("log-format CLM-04")
    def test_partition_without_new_records_is_skipped(self) -> None:
        assert "compacted to offset 20" in skipped(candidate(tier(1, 1), compacted_to=20))

    @pytest.mark.spec("log-format CLM-04")
    def test_partition_without_readable_segments_is_skipped(self) -> None:
        assert "no segment" in skipped(candidate([]))
        assert "no segment" in skipped(candidate(tier(1, 1), log_start=20))

    @pytest.mark.spec("log-format CLM-08")
    def test_a_partition_whose_first_transaction_is_open_is_skipped(self) -> None:
        assert "offset 0 is open" in skipped(candidate(tier(1, 1)), last_stable_offset=0)

    def test_partition_whose_dirty_records_are_young_is_skipped(self) -> None:
        policy = replace(COMPACTED, min_compaction_lag_ms=HOUR_MS)
        assert "min_compaction_lag" in skipped(candidate(tier(1, 1, newest_ms=(NOW_MS, NOW_MS)), policy))

    def test_offsets_behind_records_read_from_another_segment_are_not_compacted(self) -> None:
        """The other segment keeps older records of a key: the tombstone that hides them must stay, too."""
        segments = [remote(0, 9, epochs=1), remote(10, 29, epochs=1), remote(10, 39, epochs={1: 10, 2: 20})]
        lineage = [(1, 0), (2, 20)]
        plan = planned(candidate(segments, lineage=lineage))
        assert [(m.start_offset, m.end_offset) for m in plan.chain.segments] == [(0, 9)]
        assert plan.round_end_offset == 10
        for compacted_to in (10, 40):
            assert "from offset 10 on readers" in skipped(
                candidate(segments, lineage=lineage, compacted_to=compacted_to)
            )
        assert "from offset 10 on readers" in skipped(candidate(segments, lineage=lineage, log_start=10))

    def test_offsets_behind_a_hole_that_is_copied_again_are_not_compacted(self) -> None:
        """The local log may have a deleted key there, or aborted records: what hides them must stay."""
        segments = [remote(0, 9), remote(20, 29), remote(30, 39)]
        plan = planned(candidate(segments, lineage=[(0, 0)]))
        assert [m.start_offset for m in plan.chain.segments] == [0]
        for compacted_to in (10, 40):
            assert "lacks offsets 10 to 19" in skipped(candidate(segments, lineage=[(0, 0)], compacted_to=compacted_to))
        assert [m.start_offset for m in planned(candidate(segments, lineage=[(0, 20)])).chain.segments] == [0, 20, 30]

    def test_partition_below_the_dirty_ratio_is_merged_separately_in_its_clean_and_dirty_part(self) -> None:
        policy = replace(COMPACTED, merge_below_bytes=500)
        plan = planned(candidate(tier(200, 300, 10, 10), policy, compacted_to=20))
        assert (plan.kind, merged(plan)) == (WorkKind.MERGE, [[0, 10], [20, 30]])

    def test_partition_without_merges_is_skipped_with_the_reason_against_compaction(self) -> None:
        policy = replace(COMPACTED, merge_below_bytes=5)
        assert "dirty ratio" in skipped(candidate(tier(60, 40), policy, compacted_to=10))

    @pytest.mark.parametrize(("retention_ms", "expected"), [(None, None), (HOUR_MS, NOW_MS - HOUR_MS)])
    def test_records_of_a_topic_with_both_policies_expire_one_by_one(
        self, retention_ms: int | None, expected: int | None
    ) -> None:
        plan = planned(candidate(tier(1, 1), replace(COMPACTED, retention_ms=retention_ms)))
        work = plan.with_evidence(0, TierEvidence(producer_snapshot=NO_PRODUCERS, last_stable_offset=20), now_ms=NOW_MS)
        assert work.expire_before_ms == expected

    def test_greatest_possible_retention_expires_no_record(self) -> None:
        plan = planned(candidate(tier(1, 1), replace(COMPACTED, retention_ms=2**62)))
        work = plan.with_evidence(0, TierEvidence(producer_snapshot=NO_PRODUCERS, last_stable_offset=20), now_ms=NOW_MS)
        assert work.expire_before_ms is None

    def test_the_order_has_the_aborted_transactions_that_begin_in_the_round(self) -> None:
        inside, beyond = AbortedTransaction(1, 5, 25, 25), AbortedTransaction(2, 20, 28, 28)
        evidence = TierEvidence(producer_snapshot=NO_PRODUCERS, last_stable_offset=20, aborted=(inside, beyond))
        plan = planned(candidate(tier(1, 1, 1)), last_stable_offset=20)
        assert plan.with_evidence(0, evidence, now_ms=NOW_MS).aborted == (inside,)


class TestMerge:
    def test_small_neighbours_are_merged_into_one(self) -> None:
        plan = planned(candidate(tier(10, 20, 90, 40, 40, 40), DELETED))
        assert plan.kind is WorkKind.MERGE
        assert merged(plan) == [[0, 10], [30, 40]]

    def test_inputs_of_a_merge_are_only_the_merged_segments(self) -> None:
        plan = planned(candidate(tier(10, 20, 90, 40, 40, 40), DELETED))
        assert [m.start_offset for m in plan.chain.segments] == [0, 10, 30, 40]

    def test_single_small_segment_is_not_merged(self) -> None:
        assert "smaller than 50 bytes" in skipped(candidate(tier(90, 10, 90), DELETED))

    def test_merge_ends_before_the_earliest_open_transaction(self) -> None:
        assert "smaller than" in skipped(candidate(tier(10, 10), DELETED), last_stable_offset=15)

    def test_segment_with_the_log_start_inside_is_not_merged(self) -> None:
        assert merged(planned(candidate(tier(10, 10, 10), DELETED, log_start=5))) == [[10, 20]]

    def test_segment_that_is_about_to_expire_is_not_merged(self) -> None:
        policy = replace(DELETED, retention_ms=10 * HOUR_MS)
        soon, later = NOW_MS - 9 * HOUR_MS, NOW_MS - 9 * HOUR_MS + 1
        assert merged(planned(candidate(tier(1, 1, 1, newest_ms=(soon, later, later)), policy))) == [[10, 20]]

    def test_segments_of_very_different_age_are_not_merged(self) -> None:
        policy = replace(DELETED, retention_ms=10 * HOUR_MS)
        ages = [NOW_MS - hours * HOUR_MS for hours in (5, 4, 2, 1)]
        assert merged(planned(candidate(tier(1, 1, 1, 1, newest_ms=ages), policy))) == [[0, 10], [20, 30]]


class TestErasure:
    def test_erasure_has_a_group_for_each_stable_segment(self) -> None:
        for policy in (replace(COMPACTED, min_cleanable_dirty_ratio=1.0), DELETED):
            plan = planned(candidate(tier(1, 1, 1), policy, erased_keys=frozenset([b"k"])), last_stable_offset=20)
            assert (plan.kind, plan.groups) == (WorkKind.ERASE, (Group(0, 0), Group(1, 1)))

    def test_compaction_that_is_due_erases_keys(self) -> None:
        keys = frozenset([b"k"])
        plan = planned(candidate(tier(1, 1, 1), COMPACTED, erased_keys=keys))
        assert (plan.kind, plan.candidate.erased_keys) == (WorkKind.COMPACT, keys)

    def test_searched_segments_are_left_out_and_the_others_renumbered(self) -> None:
        segments = tier(1, 1, 1)
        searched = frozenset([segments[1].segment.id])
        plan = planned(candidate(segments, KEPT, erased_keys=frozenset([b"k"]), searched=searched))
        assert [metadata.start_offset for metadata in plan.chain.segments] == [0, 20]
        assert (plan.groups, plan.round_end_offset) == ((Group(0, 0), Group(1, 1)), 30)

    def test_partition_whose_segments_are_all_searched_is_merged_again(self) -> None:
        segments = tier(1, 1, 1)
        searched = frozenset(metadata.segment.id for metadata in segments)
        found = candidate(segments, DELETED, erased_keys=frozenset([b"k"]), searched=searched)
        assert planned(found).kind is WorkKind.MERGE
        assert "every segment was looked through" in skipped(replace(found, policy=KEPT))

    def test_partition_whose_first_transaction_is_open_is_skipped_by_an_erasure(self) -> None:
        found = candidate(tier(1), KEPT, erased_keys=frozenset([b"k"]))
        assert "is open" in skipped(found, last_stable_offset=3)


class TestCut:
    def test_a_compaction_is_cut_at_its_end(self) -> None:
        plan = planned(candidate(tier(10, 10, 10, 10), compacted_to=10)).cut(25)
        assert (plan.round_end_offset, plan.size_bytes, plan.groups) == (20, 20, (Group(0, 1),))

    def test_compaction_is_not_cut_to_its_clean_part(self) -> None:
        plan = planned(candidate(tier(10, 10, 90), compacted_to=20))
        assert plan.cut(25) == plan

    def test_a_merge_is_cut_between_two_groups(self) -> None:
        plan = planned(candidate(tier(10, 10, 90, 10, 10), DELETED))
        assert plan.cut(25).groups == (Group(0, 1),)
        assert plan.cut(5) == plan
