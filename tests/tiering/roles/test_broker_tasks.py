"""AbsentPartitions: the leadership is asked about partitions that are in the metadata and in no log dir."""

from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import pytest

from tests.fakes.clock import FakeClock
from tests.tiering.setups import CLUSTER_ID
from tierd.control import Leadership
from tierd.errors import BackendUnavailableError
from tierd.metadata import MemoryKeyValueStore, RemoteLogMetadataManager
from tierd.model import TopicIdPartition
from tierd.tiering import TopicPolicy
from tierd.tiering.roles.broker_tasks import AbsentPartitions

HERE, ELSEWHERE, KEPT = (TopicIdPartition(UUID(int=n), topic, 0) for n, topic in enumerate(("here", "gone", "kept"), 1))


class AskedLeadership:
    """LeadershipSource that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, TopicIdPartition]] = []

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> None:
        assert leader_epoch is None, "no local checkpoint has an epoch"
        self.calls.append(("observe", partition))

    def forget(self, partition: TopicIdPartition) -> None:
        self.calls.append(("forget", partition))

    async def changes(self) -> AsyncIterator[Leadership]:
        for event in list[Leadership]():
            yield event


class DownStore(MemoryKeyValueStore):
    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        raise BackendUnavailableError("down")


async def absent_partitions(
    leadership: AskedLeadership, rows: MemoryKeyValueStore, *known: TopicIdPartition
) -> AbsentPartitions:
    metadata = RemoteLogMetadataManager(rows, cluster_id=CLUSTER_ID, broker_id=1, session_id=uuid4(), clock=FakeClock())
    for partition in known:
        await metadata.become_leader(partition, 0)
    return AbsentPartitions(
        rows,
        metadata.keys,
        leadership=leadership,
        policies=lambda topic: TopicPolicy(delete_with_topic=topic != "kept"),
        is_here=lambda partition: partition == HERE,
    )


async def test_partition_is_observed_only_if_it_is_in_no_log_dir_and_deleted_with_its_topic() -> None:
    leadership = AskedLeadership()
    absent = await absent_partitions(leadership, MemoryKeyValueStore(), HERE, ELSEWHERE, KEPT)
    assert await absent.run_once() > 0, "another run follows later"
    assert leadership.calls == [("observe", ELSEWHERE), ("forget", ELSEWHERE)]


async def test_a_store_that_is_down_is_left_to_the_supervisor() -> None:
    absent = await absent_partitions(AskedLeadership(), DownStore())
    with pytest.raises(BackendUnavailableError):
        await absent.run_once()
