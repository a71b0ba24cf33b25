"""ControlView in any order of announcements, and its bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.mqtt.messages import ORDERS, leader, presence
from tierd.control.mqtt.control_view import ControlView, Reception

small = st.integers(0, 4)
announcements = st.lists(st.tuples(small, small), max_size=20)


@given(epochs=announcements)
def test_highest_epochs_of_a_partition_stay_in_any_order(epochs: list[tuple[int, int]]) -> None:
    view, mirrored = ControlView(), ControlView()
    for each in epochs:
        view.leader(ORDERS, 0, leader(each[0] + 10 * each[1], *each))
    for each in reversed(epochs):
        mirrored.leader(ORDERS, 0, leader(each[0] + 10 * each[1], *each))
    assert view.leader_of(ORDERS, 0) == mirrored.leader_of(ORDERS, 0)
    if epochs:
        found = view.leader_of(ORDERS, 0)
        assert found is not None
        assert found.epochs == max(epochs)


@given(orders=announcements)
def test_newest_presence_of_a_node_stays_in_any_order(orders: list[tuple[int, int]]) -> None:
    view = ControlView()
    for each in orders:
        view.node_state(presence(1, *each))
    found = view.node(1)
    assert (found.order if found else None) == max(orders, default=None)


@pytest.mark.spec("push-replication F31")
@given(epochs=st.lists(st.tuples(small, small), min_size=1, max_size=10))
def test_replay_of_everything_changes_nothing(epochs: list[tuple[int, int]]) -> None:
    view = ControlView()
    for each in epochs:
        view.leader(ORDERS, 0, leader(1, *each))
    before = view.leader_of(ORDERS, 0)
    receptions = {view.leader(ORDERS, 0, leader(1, *each)) for each in epochs}
    assert view.leader_of(ORDERS, 0) == before
    assert Reception.NEW not in receptions


@pytest.mark.spec("push-replication 96")
def test_leader_of_a_lower_epoch_is_ignored_and_counted() -> None:
    view = ControlView()
    view.leader(ORDERS, 0, leader(2, 5))
    assert view.leader(ORDERS, 0, leader(1, 4)) is Reception.STALE
    assert view.counts().stale == 1
    found = view.leader_of(ORDERS, 0)
    assert found is not None
    assert found.leader == 2


@pytest.mark.spec("push-replication 97")
def test_will_of_an_older_process_is_ignored() -> None:
    view = ControlView()
    view.node_state(presence(1, 20, 1))
    assert view.node_state(presence(1, 19, 2**40, online=False)) is Reception.STALE
    found = view.node(1)
    assert found is not None
    assert found.online


def test_two_leaders_of_the_same_epochs_are_a_conflict_and_the_first_one_stays() -> None:
    view = ControlView()
    view.leader(ORDERS, 0, leader(1, 5))
    assert view.leader(ORDERS, 0, leader(2, 5)) is Reception.CONFLICT
    assert view.counts().conflicts == 1
    led = view.leader_of(ORDERS, 0)
    assert (view.led_counts(), led is not None and led.leader) == ({1: 1}, 1)


def test_flood_of_nodes_and_partitions_stays_within_the_bounds() -> None:
    view = ControlView(max_nodes=3, max_partitions=3)
    for number in range(10):
        view.node_state(presence(number, 1, 1))
        view.leader(ORDERS, number, leader(1, 1))
    counts = view.counts()
    assert (counts.nodes, counts.partitions, counts.refused) == (3, 3, 14)
    assert view.leader(ORDERS, 0, leader(1, 2)) is Reception.NEW
