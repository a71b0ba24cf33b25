"""PositionsAt: one cut from the last positions of several nodes."""

from uuid import UUID

from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore.catalogue.catalogue_objects import (
    CommittedPosition,
    CoordinatedGroups,
    PartitionPositions,
    Positions,
)
from tierd.restore.catalogue.positions_at import LoweredCommit, positions_at

OLD, NEW = UUID(int=1), UUID(int=2)
ORDERS = TopicIdPartition(OLD, "orders", 0)
NAME = TopicPartition("orders", 0)


def offsets(high_watermark: int, *, epoch: int = 0) -> PartitionPositions:
    return PartitionPositions(
        log_start_offset=0, log_end_offset=high_watermark + 1, high_watermark=high_watermark, leader_epoch=epoch
    )


def committed(offset: int, *, topic_id: UUID | None = None) -> CommittedPosition:
    return CommittedPosition(offset=offset, leader_epoch=-1, metadata="", committed_ms=0, topic_id=topic_id)


def positions(
    node_id: int,
    taken_ms: int,
    partitions: dict[TopicIdPartition, PartitionPositions] | None = None,
    groups: dict[str, dict[TopicPartition, CommittedPosition]] | None = None,
    *,
    epoch: int = 0,
) -> Positions:
    """Return positions of a node that coordinates ``groups``, None for no coordinator, under ``epoch``."""
    coordinated = {} if groups is None else {3: CoordinatedGroups(leader_epoch=epoch, groups=groups)}
    return Positions(node_id=node_id, taken_ms=taken_ms, partitions=partitions or {}, coordinated=coordinated)


def test_partition_has_the_offsets_of_the_highest_leader_epoch_whatever_the_time() -> None:
    before, after = offsets(10, epoch=4), offsets(7, epoch=5)
    cut = positions_at([positions(1, 200, {ORDERS: before}), positions(2, 100, {ORDERS: after})])
    assert cut.partitions == {ORDERS: after}
    assert cut.taken_ms == {1: 200, 2: 100}


def test_of_two_with_one_epoch_the_later_object_counts() -> None:
    cut = positions_at([positions(1, 200, {ORDERS: offsets(10)}), positions(2, 100, {ORDERS: offsets(7)})])
    assert cut.partitions == {ORDERS: offsets(10)}


def test_group_counts_as_the_last_coordinator_of_its_partition_has_it() -> None:
    before = positions(1, 200, groups={"billing": {NAME: committed(5)}, "gone": {NAME: committed(1)}}, epoch=1)
    after = positions(2, 150, groups={"billing": {NAME: committed(9)}}, epoch=2)
    assert positions_at([before, after]).groups == {"billing": {NAME: committed(9)}}


def test_commit_above_the_high_watermark_is_lowered_to_it_and_reported() -> None:
    cut = positions_at([positions(1, 100, {ORDERS: offsets(7)}, {"billing": {NAME: committed(9)}})])
    assert cut.groups == {"billing": {NAME: committed(7)}}
    assert cut.lowered == (LoweredCommit("billing", NAME, 9, 7),)


def test_commit_of_a_partition_of_another_node_is_lowered_too() -> None:
    cut = positions_at(
        [positions(1, 100, groups={"billing": {NAME: committed(9)}}), positions(2, 90, {ORDERS: offsets(4)})]
    )
    assert cut.groups["billing"][NAME].offset == 4


def test_commit_of_a_partition_that_is_not_tiered_stays() -> None:
    cut = positions_at([positions(1, 100, groups={"billing": {NAME: committed(9)}})])
    assert (cut.groups["billing"][NAME].offset, cut.lowered) == (9, ())


def test_commit_is_bounded_by_the_incarnation_that_it_names() -> None:
    again = TopicIdPartition(NEW, "orders", 0)
    partitions = {ORDERS: offsets(20), again: offsets(3)}
    groups = {"old": {NAME: committed(15, topic_id=OLD)}, "new": {NAME: committed(15, topic_id=NEW)}}
    cut = positions_at([positions(1, 100, partitions, groups)])
    assert {group: commits[NAME].offset for group, commits in cut.groups.items()} == {"old": 15, "new": 3}


def test_no_objects_make_an_empty_cut() -> None:
    cut = positions_at([])
    assert (cut.partitions, cut.groups, cut.lowered, cut.taken_ms) == ({}, {}, (), {})
