"""The rotation: every partition is drilled in its turn, whatever the outcomes are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.restore.drill.drills import drilled, named
from tierd.restore.drill.drilled_partition import DrilledPartition, DrillOutcome, DrillProofs, rotation


def test_partition_that_was_never_drilled_comes_first_then_the_oldest_drill() -> None:
    proofs = DrillProofs.of([drilled(0, 30), drilled(1, 10), drilled(2, 20)])
    assert rotation([named(n) for n in range(4)], proofs) == [named(3), named(1), named(2), named(0)]


def test_partitions_that_were_never_drilled_are_in_order_of_name() -> None:
    assert rotation([named(2), named(0, topic="z"), named(0)], DrillProofs({}, {})) == [
        named(0),
        named(2),
        named(0, topic="z"),
    ]


@given(
    outcomes=st.lists(st.sampled_from(DrillOutcome), min_size=1, max_size=12),
    sample=st.integers(min_value=1, max_value=5),
)
def test_each_partition_is_drilled_once_before_any_is_drilled_again(outcomes: list[DrillOutcome], sample: int) -> None:
    candidates, history, taken = [named(n) for n in range(len(outcomes))], list[DrilledPartition](), list[int]()
    while len(taken) < 3 * len(outcomes):
        for partition in rotation(candidates, DrillProofs.of(history))[:sample]:
            number = partition.partition
            history.append(drilled(number, len(history), outcome=outcomes[number]))
            taken.append(number)
    for begin in range(0, 2 * len(outcomes), len(outcomes)):
        assert sorted(taken[begin : begin + len(outcomes)]) == list(range(len(outcomes)))


@pytest.mark.parametrize(
    ("outcome", "is_proof"), [("proven", True), ("empty", True), ("failed", False), ("skipped", False)]
)
def test_drill_that_is_no_proof_leaves_the_older_proof(outcome: DrillOutcome, is_proof: bool) -> None:
    before = DrillProofs.of([drilled(0, 10)])
    after = before.after(drilled(0, 20, outcome=DrillOutcome(outcome)))
    assert after == DrillProofs.of([drilled(0, 10), drilled(0, 20, outcome=DrillOutcome(outcome))])
    assert after.last[named(0)].began_ms == 20
    assert after.proven_until_ms(named(0)) == (20 if is_proof else 10)
    assert after.last_proof_ms == (20 if is_proof else 10)
    assert after.proven_until_ms(named(1)) == 0
