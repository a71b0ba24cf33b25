import pytest

from tests.pipeline.planning.tiers import COMPACTED, candidate, other_partition, planned, remote, skipped, tier
from tierd.pipeline.planning import CleaningPolicy, Proposal, RunBudget, by_urgency


def dirty(number: int, *, clean: int, new: int) -> Proposal:
    partition = other_partition(number)
    segments = [remote(0, 9, size=clean, partition=partition), remote(10, 19, size=new, partition=partition)]
    return planned(candidate(segments, compacted_to=10, partition=partition))


class TestUrgency:
    @pytest.mark.spec("log-format CLM-01")
    def test_dirtiest_partition_is_first(self) -> None:
        less, most = dirty(1, clean=40, new=50), dirty(2, clean=10, new=100)
        assert by_urgency([less, most]) == [most, less]

    @pytest.mark.spec("log-format CLM-01")
    def test_clean_partition_is_not_chosen(self) -> None:
        assert "compacted to offset 10" in skipped(candidate([remote(0, 9)], compacted_to=10))
        assert by_urgency([]) == []

    def test_erasures_precede_compactions_and_compactions_precede_merges(self) -> None:
        merge = planned(candidate(tier(1, 1), CleaningPolicy(merge_below_bytes=9)))
        erasure = planned(candidate(tier(1), CleaningPolicy(), erased_keys=frozenset([b"k"])))
        compaction = planned(candidate(tier(1, 1), COMPACTED))
        assert by_urgency([merge, compaction, erasure]) == [erasure, compaction, merge]


class TestBudget:
    def test_budget_without_a_limit_takes_a_whole_proposal(self) -> None:
        proposal = dirty(1, clean=10, new=100)
        assert RunBudget(None).take(proposal) is proposal

    def test_proposal_that_fits_is_taken_and_others_wait(self) -> None:
        budget = RunBudget(150)
        assert budget.take(dirty(1, clean=10, new=100)) is not None
        assert budget.take(dirty(2, clean=10, new=100)) is None
        assert budget.take(dirty(3, clean=10, new=30)) is not None
        assert budget.take(dirty(4, clean=0, new=1)) is None

    def test_first_proposal_is_cut_to_the_limit(self) -> None:
        taken = RunBudget(35).take(planned(candidate(tier(10, 10, 10, 10))))
        assert taken is not None
        assert taken.size_bytes == 30

    def test_partition_larger_than_the_limit_is_taken_alone(self) -> None:
        budget = RunBudget(5)
        assert budget.take(dirty(1, clean=10, new=100)) is not None
        assert budget.take(dirty(2, clean=0, new=1)) is None
