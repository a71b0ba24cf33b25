from hypothesis import given
from hypothesis import strategies as st

from tierd.pipeline.jobs.layout import GroupPlace
from tierd.pipeline.jobs.outcomes import FailedGroup, Settled, Turns, UnchangedGroup

PLACES = [GroupPlace(index, group) for index in range(3) for group in range(4)]


@given(st.permutations(PLACES))
def test_outcomes_of_a_partition_are_released_in_the_order_of_its_groups(ended: list[GroupPlace]) -> None:
    turns = Turns(PLACES)
    told: list[tuple[GroupPlace, Settled]] = []
    for place in ended:
        told += turns.settle(place, FailedGroup(str(place)))
    assert sorted(place for place, _ in told) == PLACES
    assert all(outcome == FailedGroup(str(place)) for place, outcome in told)
    for index in range(3):
        groups = [place.group for place, _ in told if place.index == index]
        assert groups == sorted(groups)


def test_outcome_of_the_next_group_is_released_at_once() -> None:
    turns = Turns(PLACES)
    assert turns.settle(GroupPlace(1, 0), UnchangedGroup()) == [(GroupPlace(1, 0), UnchangedGroup())]
    assert turns.settle(GroupPlace(1, 2), UnchangedGroup()) == []
