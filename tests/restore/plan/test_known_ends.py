from uuid import UUID

from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore.catalogue.catalogue_objects import (
    CommittedPosition,
    CoordinatedGroups,
    PartitionPositions,
    Positions,
)
from tierd.restore.plan.known_ends import KnownEnd, committed_ends, known_ends

ORDERS = TopicIdPartition(UUID(int=7), "orders", 0)


def positions(node_id: int, taken_ms: int, end: int, **groups: int) -> Positions:
    found = PartitionPositions(log_start_offset=0, log_end_offset=end, high_watermark=end, leader_epoch=0)
    commits = {
        group: {
            ORDERS.topic_partition: CommittedPosition(
                offset=offset, leader_epoch=-1, metadata="", committed_ms=taken_ms
            )
        }
        for group, offset in groups.items()
    }
    coordinated = {0: CoordinatedGroups(leader_epoch=0, groups=commits)}
    return Positions(node_id=node_id, taken_ms=taken_ms, partitions={ORDERS: found}, coordinated=coordinated)


def test_known_end_is_the_largest_log_end_at_its_first_sight() -> None:
    seen = [positions(1, 300, 50), positions(1, 100, 40), positions(2, 200, 50)]
    assert known_ends(seen) == {ORDERS: KnownEnd(50, 200)}


def test_committed_end_is_the_largest_offset_of_any_group() -> None:
    seen = [positions(1, 100, 40, billing=12, shipping=30), positions(2, 200, 50, billing=20)]
    assert committed_ends(seen) == {TopicPartition("orders", 0): 30}


def test_committed_offset_that_the_log_cannot_have_reached_hides_no_other() -> None:
    seen = [positions(1, 100, 40, billing=45, broken=2**63 - 1)]
    assert committed_ends(seen) == {TopicPartition("orders", 0): 45}


def test_no_positions_tell_no_end() -> None:
    assert known_ends([]) == {}
    assert committed_ends([]) == {}
