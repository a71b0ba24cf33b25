"""The coordinator of a group is the same for every endpoint, and moves as seldom as it can."""

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.fakes.served_partitions import FIRST_NODE, SECOND_NODE, FakeServedPartitions
from tierd.serve.kafka.groups.coordination.placement import Placement, coordinator_of

NODES = st.sets(st.integers(0, 50), min_size=1, max_size=6)


@given(group=st.text(), nodes=NODES)
def test_coordinator_does_not_depend_on_the_order_of_the_endpoints(group: str, nodes: set[int]) -> None:
    assert coordinator_of(group, sorted(nodes)) == coordinator_of(group, sorted(nodes, reverse=True)) in nodes


@given(group=st.text(), nodes=NODES, other=st.integers(0, 50))
def test_group_moves_only_to_an_endpoint_that_comes_or_from_one_that_goes(
    group: str, nodes: set[int], other: int
) -> None:
    assume(other not in nodes)
    before, after = coordinator_of(group, nodes), coordinator_of(group, nodes | {other})
    assert after in (before, other)


def test_groups_are_spread_over_the_endpoints() -> None:
    counts = [0, 0, 0]
    for number in range(300):
        counts[coordinator_of(f"group-{number}", range(3))] += 1
    assert min(counts) > 60


def test_coordinator_is_named_at_the_address_of_the_listener() -> None:
    served = FakeServedPartitions()
    placement = Placement(served, listener="plain")
    here = next(f"group-{number}" for number in range(99) if placement.is_here(f"group-{number}"))
    there = next(f"group-{number}" for number in range(99) if not placement.is_here(f"group-{number}"))
    assert placement.coordinator(here, "tls") == FIRST_NODE
    assert placement.coordinator(there, "tls") == SECOND_NODE
    was_alone = placement.is_alone
    served.set_nodes(FIRST_NODE)
    assert (was_alone, placement.is_alone) == (False, True)
    assert placement.coordinator(there, "tls") == FIRST_NODE


def test_endpoint_that_does_not_listen_yet_coordinates_no_group() -> None:
    served = FakeServedPartitions()
    served.set_nodes()
    assert not Placement(served, listener="plain").is_here("readers")
