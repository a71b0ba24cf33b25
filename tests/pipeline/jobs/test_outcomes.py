from hypothesis import given
from hypothesis import strategies as st

from tierd.pipeline.jobs.outcomes import CommitOrder, FailedGroup, Settled, UnchangedGroup
from tierd.pipeline.jobs.task_layout import GroupPlace

PLACES = [GroupPlace(index, group) for index in range(3) for group in range(4)]


@given(st.permutations(PLACES))
def test_outcomes_of_a_partition_are_released_in_the_order_of_its_groups(ended: list[GroupPlace]) -> None:
    commit_order = CommitOrder(PLACES)
    told: list[tuple[GroupPlace, Settled]] = []
    for place in ended:
        told += commit_order.settle(place, FailedGroup(str(place)))
    assert sorted(place for place, _ in told) == PLACES
    assert all(outcome == FailedGroup(str(place)) for place, outcome in told)
    for index in range(3):
        groups = [place.group for place, _ in told if place.index == index]
        assert groups == sorted(groups)


def test_outcome_of_the_next_group_is_released_at_once() -> None:
    commit_order = CommitOrder(PLACES)
    assert commit_order.settle(GroupPlace(1, 0), UnchangedGroup()) == [(GroupPlace(1, 0), UnchangedGroup())]
    assert commit_order.settle(GroupPlace(1, 2), UnchangedGroup()) == []
