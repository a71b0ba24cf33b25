"""Steps of the assignment book whose caller is cancelled, as when its leader is taken out of the configuration."""

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from tests.replication.follower.standby_setup import StandbyDisk
from tierd.model import TopicPartition
from tierd.replication.follower.replica_keeper import ReplicaKeeper
from tierd.replication.follower.standby_memory import StandbyMemory
from tierd.replication.follower.standby_replicas import StandbyReplicas
from tierd.replication.follower.standby_settings import StandbySettings
from tierd.replication.follower.standby_topics import StandbyTopics
from tierd.replication.model.messages import AssignedPartition
from tierd.testing import cancel_at

OLD, NEW, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
CONFIG = (("segment.bytes", "500"),)
_DEADLINE_S = 30.0


def assigned(topic: str, topic_id: UUID) -> AssignedPartition:
    return AssignedPartition(topic=topic, topic_id=topic_id, partition=0, leader_epoch=5, config=CONFIG)


@pytest.mark.parametrize("suspension", range(1, 12))
async def test_steps_of_a_caller_that_was_cancelled_are_carried_out_later(suspension: int, tmp_path: Path) -> None:
    disk = StandbyDisk()
    topics = StandbyTopics({}, flush="never", flush_interval_s=1)
    async with disk.service(topics.config_for) as service:
        replicas, settings = StandbyReplicas(), StandbySettings(state_dir=tmp_path)
        keeper = ReplicaKeeper(service, replicas, topics, StandbyMemory(), clock=disk.clock, settings=settings)
        await keeper.carry_out(keeper.book.on_announced(1, [assigned("orders", OLD)]))
        announced = [assigned("orders", NEW), assigned("payments", OTHER)]

        steps = keeper.book.on_announced(1, announced)
        await cancel_at(suspension, lambda: keeper.carry_out(steps))

        assert keeper.book.on_announced(1, announced) == [], "the book asks for a step once"
        async with asyncio.timeout(_DEADLINE_S):
            await keeper.retry()
            while any(each.usable_log is None for each in replicas):  # a deletion ends in its thread after the cancel
                await keeper.retry()
        kept = {str(each.partition): (each.partition.topic_id, each.usable_log is not None) for each in replicas}
        assert kept == {"orders-0": (NEW, True), "payments-0": (OTHER, True)}
        for name, topic_id in (("orders", NEW), ("payments", OTHER)):
            log = service.log(TopicPartition(name, 0))
            assert (log.topic_id, log.config.segment_bytes) == (topic_id, 500)


@pytest.mark.parametrize("suspension", range(1, 12))
async def test_copy_of_a_leader_without_records_is_followed_anew_where_the_caller_was_cancelled(
    suspension: int, tmp_path: Path
) -> None:
    disk = StandbyDisk()
    topics = StandbyTopics({}, flush="never", flush_interval_s=1)
    async with disk.service(topics.config_for) as service:
        replicas, settings = StandbyReplicas(), StandbySettings(state_dir=tmp_path)
        keeper = ReplicaKeeper(service, replicas, topics, StandbyMemory(), clock=disk.clock, settings=settings)
        await keeper.carry_out(keeper.book.on_announced(1, [assigned("orders", OLD)]))
        (replica,) = replicas

        await cancel_at(suspension, lambda: keeper.keep_lost_copy(replica))

        async with asyncio.timeout(_DEADLINE_S):
            await keeper.retry()
            while not all(each.usable_log for each in replicas):  # the files are moved in a thread after the cancel
                await asyncio.sleep(0)
                await keeper.retry()
        assert [str(each.partition) for each in replicas] == ["orders-0"]
