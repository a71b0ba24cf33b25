"""Announcements of leaders, and the partitions that a standby keeps because of them."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.model import TopicIdPartition, TopicPartition
from tierd.replication.follower.rules.assignment_book import (
    MAX_RETIRED,
    AssignmentBook,
    ConfigureTopic,
    DeleteReplica,
    KeepReplica,
    KeptReplica,
    SetReplicaAside,
)
from tierd.replication.follower.rules.followed_partition import LeaderClaim
from tierd.replication.model.messages import AssignedPartition, DeletedReplica

OLD, NEW = UUID(int=1), UUID(int=2)
ORDERS = TopicPartition("orders", 0)


def assigned(topic_id: UUID = OLD, *, epoch: int = 5, partition: int = 0, cleanup: str = "delete") -> AssignedPartition:
    return AssignedPartition(
        topic="orders",
        topic_id=topic_id,
        partition=partition,
        leader_epoch=epoch,
        config=(("cleanup.policy", cleanup),),
    )


def kept(topic_id: UUID = OLD, *, leader: int = 1, epoch: int = 5, partition: int = 0) -> KeptReplica:
    return KeptReplica(TopicIdPartition(topic_id, "orders", partition), LeaderClaim(leader, epoch))


def deleted(topic_id: UUID = OLD) -> DeletedReplica:
    return DeletedReplica(topic_id, 0)


def test_announced_partition_is_kept_after_its_topic_has_its_settings() -> None:
    steps = AssignmentBook().on_announced(1, [assigned()])
    assert steps == [ConfigureTopic("orders", (("cleanup.policy", "delete"),)), KeepReplica(kept())]


def test_same_announcement_again_asks_for_nothing() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned()])
    assert book.on_announced(1, [assigned()]) == []


def test_leader_with_the_highest_epoch_is_followed_whoever_announces_last() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned(epoch=5)])
    assert book.on_announced(2, [assigned(epoch=6)]) == [KeepReplica(kept(leader=2, epoch=6))]
    assert book.on_announced(1, [assigned(epoch=5)]) == []
    assert book.on_announced(3, [assigned(epoch=6)]) == []
    assert book.kept == (kept(leader=2, epoch=6),)


@pytest.mark.parametrize("is_lost", [False, True])
def test_other_node_with_the_same_epoch_is_followed_once_the_first_one_no_longer_announces_it(*, is_lost: bool) -> None:
    """A leader that is being replaced announced the new epoch as its own; the standby then followed it for ever."""
    book = AssignmentBook()
    book.on_announced(1, [assigned(epoch=6)])
    assert book.on_announced(2, [assigned(epoch=6)]) == []
    assert book.on_announced(2, None) == []
    assert not book.conflicts
    if is_lost:
        book.on_lost(1)
        steps = book.on_announced(2, None)
    else:
        steps = book.on_announced(1, [])
    assert steps == [KeepReplica(kept(leader=2, epoch=6))]
    assert book.on_announced(2, None) == []


def test_node_that_announces_the_epoch_of_a_leader_that_has_resigned_is_followed() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned(epoch=6)])
    book.on_announced(1, [])
    assert book.on_announced(2, [assigned(epoch=6)]) == [KeepReplica(kept(leader=2, epoch=6))]


@given(st.lists(st.tuples(st.integers(1, 3), st.none() | st.integers(1, 3) | st.just("lost"))), st.integers(1, 3))
def test_only_node_that_announces_the_highest_epoch_is_followed_in_the_end(
    history: list[tuple[int, int | str | None]], leader: int
) -> None:
    book = AssignmentBook()
    for node, epoch in history:
        if isinstance(epoch, str):
            book.on_lost(node)
        else:
            book.on_announced(node, [] if epoch is None else [assigned(epoch=epoch)])
    book.on_announced(leader, [assigned(epoch=3)])
    for node in {1, 2, 3} - {leader}:
        book.on_announced(node, [])
    assert book.kept == (kept(leader=leader, epoch=3),)


def test_other_settings_are_taken_over_from_the_leader_that_is_followed_alone() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned(epoch=5)])
    book.on_announced(2, [assigned(epoch=6, cleanup="compact")])
    assert book.on_announced(1, [assigned(epoch=5, cleanup="delete")]) == []
    steps = book.on_announced(2, [assigned(epoch=6, cleanup="delete")])
    assert steps == [ConfigureTopic("orders", (("cleanup.policy", "delete"),))]


def test_absent_partition_and_lost_leader_change_nothing() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned()])
    assert book.on_announced(1, []) == []
    book.on_lost(1)
    assert book.kept == (kept(),)


@pytest.mark.spec("push-replication F12")
def test_deletion_that_the_followed_leader_announces_deletes_the_copy_for_ever() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned()])
    assert book.on_announced(1, None, [deleted()]) == [DeleteReplica(kept().partition)]
    assert book.on_announced(2, [assigned(epoch=9)]) == []
    assert book.retired == (OLD,)
    assert "whose deletion was announced before" in book.conflicts["orders-0"]
    assert book.on_announced(2, []) == []
    assert not book.conflicts


def test_deletion_that_another_node_announces_is_not_believed() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned(epoch=6)])
    assert book.on_announced(2, [], [deleted()]) == []
    assert book.kept == (kept(epoch=6),)


@pytest.mark.spec("push-replication F13")
def test_topic_that_was_made_again_replaces_the_deleted_one() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned(OLD, epoch=5)])
    steps = book.on_announced(1, [assigned(NEW, epoch=0)], [deleted()])
    assert steps[0] == DeleteReplica(kept(OLD).partition)
    assert steps[-1] == KeepReplica(kept(NEW, epoch=0))


def test_topic_that_was_made_again_without_a_deletion_sets_the_old_copy_aside() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned(OLD)])
    steps = book.on_announced(1, [assigned(NEW, epoch=0)])
    assert steps == [SetReplicaAside(kept(OLD).partition), KeepReplica(kept(NEW, epoch=0))]
    assert book.retired == ()


def test_new_incarnation_is_refused_while_the_old_ones_leader_announces_the_old_one() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned(OLD)])
    assert book.on_announced(2, [assigned(NEW, epoch=0)]) == []
    assert list(book.conflicts) == [str(ORDERS)]
    assert book.on_announced(2, None) == book.on_announced(1, None) == []
    book.on_lost(1)
    steps = book.on_announced(2, None)
    assert steps == [SetReplicaAside(kept(OLD).partition), KeepReplica(kept(NEW, leader=2, epoch=0))]
    assert not book.conflicts


def test_leaders_of_before_a_restart_count_as_fresh_until_they_are_lost() -> None:
    book = AssignmentBook([kept(OLD)])
    assert book.announcing == {1}
    assert book.on_announced(2, [assigned(NEW, epoch=0)]) == []


def test_higher_epoch_of_before_a_restart_is_not_given_up_for_a_lower_one() -> None:
    book = AssignmentBook([kept(leader=2, epoch=6)])
    assert book.on_announced(1, [assigned(epoch=5)]) == []
    assert book.kept == (kept(leader=2, epoch=6),)


def test_number_of_deleted_topics_that_are_remembered_is_bounded() -> None:
    book = AssignmentBook(retired=[UUID(int=100 + number) for number in range(MAX_RETIRED)])
    book.on_announced(1, [assigned()])
    book.on_announced(1, None, [deleted()])
    assert len(book.retired) == MAX_RETIRED
    assert book.retired[-1] == OLD


def test_topic_without_any_copy_left_gets_its_settings_again_when_it_is_made_again() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned(OLD)])
    book.on_announced(1, [], [deleted()])
    steps = book.on_announced(1, [assigned(NEW)])
    assert steps[0] == ConfigureTopic("orders", (("cleanup.policy", "delete"),))


def test_settings_that_are_not_known_leave_those_of_before_in_force() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned(cleanup="compact")])
    unknown = replace(assigned(epoch=6), config=())

    assert book.on_announced(1, [unknown]) == [KeepReplica(kept(epoch=6))]
    assert AssignmentBook(book.kept).on_announced(1, [unknown]) == []  # after a restart of the standby
    assert book.on_announced(1, [assigned(epoch=6)]) == [ConfigureTopic("orders", (("cleanup.policy", "delete"),))]


def test_settings_of_a_former_incarnation_do_not_apply_to_the_next_one() -> None:
    book = AssignmentBook()
    book.on_announced(1, [assigned(cleanup="compact")])
    book.on_lost(1)

    steps = book.on_announced(2, [replace(assigned(NEW, epoch=0), config=())])

    assert steps == [
        SetReplicaAside(kept().partition),
        ConfigureTopic("orders", ()),
        KeepReplica(kept(NEW, leader=2, epoch=0)),
    ]


@pytest.mark.parametrize(
    "impossible",
    [
        replace(assigned(), topic="../orders"),
        replace(assigned(), topic=".."),
        replace(assigned(), topic="o" * 250),
        replace(assigned(), topic="orders\n"),
        replace(assigned(), partition=-1),
        replace(assigned(), leader_epoch=-1),
    ],
)
def test_announcement_that_no_log_dir_can_have_is_refused_and_shown_until_the_leader_is_right(
    impossible: AssignedPartition,
) -> None:
    """It would name a path outside of the log dir, or take the log dir of all copies offline."""
    book = AssignmentBook()
    steps = book.on_announced(1, [impossible, assigned()])
    assert steps == [ConfigureTopic("orders", (("cleanup.policy", "delete"),)), KeepReplica(kept())]
    assert list(book.conflicts) == ["node 1"]
    book.on_announced(1, [assigned()])
    assert not book.conflicts
