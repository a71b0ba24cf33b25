"""PartitionRoles by itself: epochs do not decrease, with any answers of brokers in any order."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tierd.control import Leadership, Role
from tierd.control.cluster_metadata import PartitionLeader, TopicKnowledge, TopicLeaders
from tierd.control.partition_roles import DEPARTED_WATCH_S, UNKNOWN_ANSWERS, PartitionRoles
from tierd.model import TopicIdPartition

US, OTHER = 1, 2
TOPIC = UUID(int=7)
ORDERS = TopicIdPartition(TOPIC, "orders", 0)
ORDERS_1 = TopicIdPartition(TOPIC, "orders", 1)
GRACE_S = 30.0


def led(leader: int, epoch: int, *, partition: int = 0) -> TopicLeaders:
    return TopicLeaders(TOPIC, TopicKnowledge.KNOWN, (PartitionLeader(partition, leader, epoch),))


def said(knowledge: TopicKnowledge) -> TopicLeaders:
    return TopicLeaders(TOPIC, knowledge, error=knowledge.value)


UNKNOWN = said(TopicKnowledge.UNKNOWN)


def observing(*, epoch: int | None = None) -> PartitionRoles:
    roles = PartitionRoles(US, deletion_grace_s=GRACE_S)
    roles.observe(ORDERS, epoch)
    return roles


def suspecting() -> PartitionRoles:
    roles = observing()
    for round_ in range(UNKNOWN_ANSWERS):
        assert roles.apply([UNKNOWN], now_s=round_ * GRACE_S) == []
    return roles


SUSPECTED_S = (UNKNOWN_ANSWERS - 1) * GRACE_S


class TestLeaders:
    def test_a_partition_is_led_or_followed_at_the_epoch_of_the_answer(self) -> None:
        roles = observing()
        assert roles.apply([led(US, 3)], 0) == [Leadership(ORDERS, 3, Role.LEADER)]
        assert roles.apply([led(OTHER, 4)], 1) == [Leadership(ORDERS, 4, Role.FOLLOWER)]
        assert roles.apply([led(US, 5)], 2) == [Leadership(ORDERS, 5, Role.LEADER)]

    def test_role_is_marked_when_no_other_broker_has_a_replica(self) -> None:
        for replica_ids, is_sole_replica in (((US,), True), ((US, OTHER), False), ((OTHER,), False), ((), False)):
            answer = TopicLeaders(TOPIC, TopicKnowledge.KNOWN, (PartitionLeader(0, US, 3, replica_ids),))
            (event,) = observing().apply([answer], 0)
            assert event.is_sole_replica is is_sole_replica

    def test_repeated_answer_causes_no_event(self) -> None:
        roles = observing()
        roles.apply([led(US, 3)], 0)
        assert roles.apply([led(US, 3)], 1) == []

    def test_answer_of_a_lagging_broker_changes_no_role(self) -> None:
        roles = observing()
        roles.apply([led(US, 5)], 0)
        assert roles.apply([led(OTHER, 4)], 1) == []
        roles.apply([led(OTHER, 6)], 2)
        assert roles.apply([led(US, 5)], 3) == []
        assert roles.stale_answers == 2
        assert roles.counts().followers == 1

    def test_answer_older_than_the_local_checkpoint_is_ignored(self) -> None:
        roles = observing(epoch=9)
        assert roles.apply([led(US, 8)], 0) == []
        assert "older than 9" in roles.problems(1)["orders-0"]
        assert roles.apply([led(US, 9)], 1) == [Leadership(ORDERS, 9, Role.LEADER)]

    def test_second_leader_of_an_epoch_is_ignored(self) -> None:
        roles = observing()
        roles.apply([led(OTHER, 3)], 0)
        assert roles.apply([led(US, 3)], 1) == []

    def test_role_stays_while_the_partition_has_no_leader_and_is_counted(self) -> None:
        roles = observing()
        roles.apply([led(US, 3)], 0)
        assert roles.apply([led(-1, 4)], 1) == []
        assert (roles.counts().leaders, roles.counts().without_leader) == (1, 1)
        assert roles.apply([led(US, 3)], 2) == [], "an answer from before the leader was lost"
        assert roles.apply([led(OTHER, 5)], 3) == [Leadership(ORDERS, 5, Role.FOLLOWER)]
        assert roles.counts().without_leader == 0

    def test_leader_that_returns_in_an_epoch_without_a_leader_is_reported(self) -> None:
        roles = observing()
        roles.apply([led(-1, 4)], 0)
        assert roles.apply([led(US, 4)], 1) == [Leadership(ORDERS, 4, Role.LEADER)]

    def test_partition_that_the_broker_does_not_have_yet_has_no_role(self) -> None:
        roles = observing()
        roles.observe(ORDERS_1, None)
        assert roles.apply([led(US, 3)], 0) == [Leadership(ORDERS, 3, Role.LEADER)]
        assert "does not have this partition" in roles.problems(9)["orders-1"]
        assert roles.apply([led(US, 0, partition=1)], 1) == [Leadership(ORDERS_1, 0, Role.LEADER)]

    def test_topic_with_the_same_name_and_another_id_is_another_partition(self) -> None:
        roles = observing()
        again = TopicIdPartition(UUID(int=8), "orders", 0)
        roles.observe(again, None)
        answer = TopicLeaders(again.topic_id, TopicKnowledge.KNOWN, (PartitionLeader(0, US, 0),))
        roles.apply([led(US, 3)], 0)
        assert roles.apply([answer], 1) == [Leadership(again, 0, Role.LEADER)]

    def test_topic_that_may_not_be_described_keeps_its_role_and_names_the_missing_right(self) -> None:
        roles = observing()
        roles.apply([led(US, 3)], 0)
        assert roles.apply([said(TopicKnowledge.DENIED), said(TopicKnowledge.FAILED)], 1) == []
        roles.apply([said(TopicKnowledge.DENIED)], 1)
        assert "grant Describe" in roles.problems(1)["orders-0"]
        assert roles.counts().leaders == 1


class TestRequestedTopics:
    def test_new_replica_and_unannounced_epoch_are_due_for_a_request_at_once(self) -> None:
        roles = PartitionRoles(US)
        assert roles.observe(ORDERS, 3)
        assert roles.due() == [TOPIC]
        assert not roles.observe(ORDERS, 3)
        assert roles.due() == []
        assert roles.observe(ORDERS, 4)
        assert roles.due() == [TOPIC]

    def test_role_of_a_forgotten_replica_is_reported_again_when_it_returns(self) -> None:
        roles = observing()
        first = roles.apply([led(US, 3)], 0)
        roles.forget(ORDERS, 1)
        assert not any(map(roles.is_current, first))
        assert roles.apply([led(US, 3)], 2) == []
        roles.observe(ORDERS, 3)
        assert roles.apply([led(US, 3)], 3) == first

    def test_forgotten_replica_of_a_living_topic_is_dropped(self) -> None:
        roles = observing()
        roles.forget(ORDERS, 0)
        assert roles.topics(DEPARTED_WATCH_S - 1) == [TOPIC]
        assert roles.topics(DEPARTED_WATCH_S) == []
        roles.forget(ORDERS, 0)
        assert roles.partition_count(TOPIC) == 0


class TestDeletion:
    def test_a_topic_that_most_brokers_do_not_know_for_a_while_is_deleted(self) -> None:
        roles = suspecting()
        assert roles.unconfirmed(SUSPECTED_S) == [TOPIC]
        votes = [TopicKnowledge.UNKNOWN, TopicKnowledge.UNKNOWN]
        assert roles.confirm(TOPIC, votes, electorate=3) == [Leadership(ORDERS, 0, Role.DELETED)]
        assert roles.topics(SUSPECTED_S) == []
        assert roles.apply([led(US, 9)], 99) == [], "a topic id never returns"

    def test_topic_unknown_to_one_broker_of_three_is_not_deleted(self) -> None:
        roles = suspecting()
        assert roles.confirm(TOPIC, [TopicKnowledge.UNKNOWN], electorate=3) == []
        votes = [TopicKnowledge.UNKNOWN, TopicKnowledge.FAILED, TopicKnowledge.FAILED]
        assert roles.confirm(TOPIC, votes, electorate=3) == []

    def test_topic_known_to_one_broker_is_not_deleted(self) -> None:
        roles = suspecting()
        votes = [TopicKnowledge.UNKNOWN, TopicKnowledge.UNKNOWN, TopicKnowledge.KNOWN]
        assert roles.confirm(TOPIC, votes, electorate=3) == []
        assert roles.unconfirmed(SUSPECTED_S + 10 * GRACE_S) == []

    def test_topic_is_no_suspect_after_few_answers_or_a_short_time(self) -> None:
        roles = observing()
        for _ in range(100):
            roles.apply([UNKNOWN], GRACE_S - 1)
        assert roles.unconfirmed(GRACE_S) == []
        roles = observing()
        roles.apply([UNKNOWN], 0)
        assert roles.unconfirmed(1000) == []

    def test_topic_that_was_unknown_at_first_is_no_suspect_once_it_is_known(self) -> None:
        roles = suspecting()
        roles.apply([led(US, 0)], SUSPECTED_S)
        assert roles.unconfirmed(10 * SUSPECTED_S) == []

    def test_the_other_brokers_are_asked_once_per_grace_time(self) -> None:
        roles = suspecting()
        assert roles.unconfirmed(SUSPECTED_S) == [TOPIC]
        assert roles.unconfirmed(SUSPECTED_S + GRACE_S - 1) == []
        assert roles.unconfirmed(SUSPECTED_S + GRACE_S) == [TOPIC]

    def test_deletion_is_reported_for_a_replica_that_left_before_it(self) -> None:
        roles = observing(epoch=4)
        roles.apply([led(US, 4)], 0)
        roles.forget(ORDERS, 1)
        for round_ in range(UNKNOWN_ANSWERS):
            roles.apply([UNKNOWN], now_s=2 + round_ * GRACE_S)
        event = Leadership(ORDERS, 4, Role.DELETED)
        assert roles.unconfirmed(2 + SUSPECTED_S) == [TOPIC]
        assert roles.confirm(TOPIC, [TopicKnowledge.UNKNOWN], electorate=1) == [event]
        assert roles.is_current(event)
        assert roles.partition_count(TOPIC) == 0

    def test_deletion_is_reported_for_a_replica_that_appears_after_it(self) -> None:
        roles = suspecting()
        roles.unconfirmed(SUSPECTED_S)
        roles.confirm(TOPIC, [TopicKnowledge.UNKNOWN], electorate=1)
        roles.observe(ORDERS_1, None)
        for round_ in range(UNKNOWN_ANSWERS):
            roles.apply([UNKNOWN], now_s=2 * SUSPECTED_S + round_ * GRACE_S)
        assert roles.confirm(TOPIC, [TopicKnowledge.UNKNOWN], electorate=1) == [Leadership(ORDERS_1, 0, Role.DELETED)]


# A history: the index is the epoch, the value its leader, -1 for an epoch without a leader.
HISTORIES = st.lists(st.sampled_from([US, OTHER, 3, -1]), min_size=1, max_size=12)


@given(history=HISTORIES, data=st.data())
def test_answers_of_lagging_brokers_lower_no_epoch_and_converge(history: list[int], data: st.DataObject) -> None:
    views = st.integers(-1, len(history) - 1)  # last epoch known to the asked broker; -1: unknown topic
    roles = observing()
    events: list[Leadership] = []
    for now_s, (view, seen) in enumerate(data.draw(st.lists(st.tuples(views, st.none() | views), max_size=30))):
        if seen is not None:
            roles.observe(ORDERS, seen)
        events += roles.apply([led(history[view], view) if view >= 0 else UNKNOWN], now_s)
    last = len(history) - 1
    events += roles.apply([led(history[last], last)], 1000)

    epochs = [event.leader_epoch for event in events]
    assert epochs == sorted(set(epochs)), "every epoch is reported once, and none after a later one"
    assert all((event.role is Role.LEADER) == (history[event.leader_epoch] == US) for event in events)
    if history[last] != -1:
        assert epochs[-1] == last, "the newest answer decides"


@given(
    votes=st.lists(st.sampled_from(list(TopicKnowledge)), max_size=6),
    electorate=st.integers(1, 6),
)
def test_topic_is_deleted_only_if_most_brokers_do_not_know_it_and_no_broker_objects(
    votes: list[TopicKnowledge], electorate: int
) -> None:
    roles = suspecting()
    deleted = roles.confirm(TOPIC, votes, electorate=electorate)
    assert bool(deleted) == (
        2 * votes.count(TopicKnowledge.UNKNOWN) > electorate
        and TopicKnowledge.KNOWN not in votes
        and TopicKnowledge.DENIED not in votes
    )
