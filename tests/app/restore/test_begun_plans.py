"""Plans of a restore that begins at a time: several partitions are looked up at once."""

import asyncio
from uuid import UUID

import pytest

from tierd.app.restore.topic_restore_job import begun_plans
from tierd.errors import RetriableRemoteStorageError
from tierd.model import Lineage, TopicIdPartition
from tierd.restore import PartitionPlan, PlanFinding, PlanSeverity, RestoreMode

COUNT = 4


def plan_of(number: int, *findings: PlanFinding) -> PartitionPlan:
    """Return the plan of a partition with offsets 0 to 39."""
    return PartitionPlan(
        partition=TopicIdPartition(UUID(int=7), "orders", number),
        mode=RestoreMode.IMPORT,
        log_start_offset=0,
        end_offset=40,
        target_offset=None,
        parts=(),
        lineage=Lineage(),
        is_compacted=False,
        missing=(),
        newest_timestamp_ms=None,
        findings=findings,
        fetch_bytes=0,
        fetch_requests=0,
    )


async def test_partitions_are_looked_up_beside_each_other() -> None:
    all_ask, asking = asyncio.Event(), 0
    told: list[str] = []

    async def first_offset(partition: TopicIdPartition) -> int:
        nonlocal asking
        asking += 1
        if asking == COUNT:
            all_ask.set()
        await all_ask.wait()  # a slow store
        return 10 + partition.partition

    async with asyncio.timeout(30):
        begun = await begun_plans([plan_of(number) for number in range(COUNT)], first_offset, on_progress=told.append)

    assert [(plan.partition.partition, plan.log_start_offset) for plan in begun] == [(0, 10), (1, 11), (2, 12), (3, 13)]
    assert told[-1] == "looking for the first records: 4 of 4 partitions"


async def test_plan_without_later_records_is_empty_and_a_refused_one_stays_as_it_is() -> None:
    refused = plan_of(1, PlanFinding(PlanSeverity.REFUSED, "it has a hole", "look at it"))

    async def first_offset(partition: TopicIdPartition) -> None:
        assert partition.partition == 0

    empty, kept = await begun_plans([plan_of(0), refused], first_offset, on_progress=lambda _: None)

    assert (empty.log_start_offset, empty.end_offset) == (40, 40)
    assert kept is refused


async def test_first_failure_of_the_store_ends_the_search() -> None:
    async def first_offset(partition: TopicIdPartition) -> int:
        raise RetriableRemoteStorageError("the store is away", remedy="wait")

    with pytest.raises(RetriableRemoteStorageError, match="the store is away"):
        await begun_plans([plan_of(0), plan_of(1)], first_offset, on_progress=lambda _: None)
