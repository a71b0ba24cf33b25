"""Listings of the partitions whose topics are sent."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.log.batches import TOPIC_ID
from tests.replication.tail.broker_log import BrokerLog
from tierd.app.push.pushed_partitions import LIST_INTERVAL_S, PartitionsFound, PushedPartitions
from tierd.clock import Clock, SystemClock
from tierd.log import encode_topic_id
from tierd.model import TopicIdPartition

ORDERS = TopicIdPartition(TOPIC_ID, "orders", 0)


class Listed:
    """The listings of some log dirs, as they come."""

    def __init__(self, *log_dirs: Path, clock: Clock) -> None:
        self.partitions = PushedPartitions(log_dirs, wants=lambda topic: topic == "orders", clock=clock)
        self.seen: list[PartitionsFound] = []

    @asynccontextmanager
    async def running(self, *, is_watched: bool = True) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._collect())]
        if is_watched:
            tasks.append(asyncio.create_task(self.partitions.watch()))
        try:
            await eventually(lambda: bool(self.seen), what="the first listing")
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    @property
    def last(self) -> PartitionsFound:
        return self.seen[-1]

    async def _collect(self) -> None:
        async for listing in self.partitions.listings():
            self.seen.append(listing)


async def test_wanted_partition_is_found_with_its_epoch_and_another_topic_is_not(tmp_path: Path) -> None:
    BrokerLog(tmp_path).append(1)
    BrokerLog(tmp_path, name="payments-0")
    listed = Listed(tmp_path, clock=ManualClock())
    async with listed.running(is_watched=False):
        (found,) = listed.last.here.values()
        assert (found.partition, found.log_dir, found.leader_epoch) == (ORDERS, tmp_path, 0)
        assert listed.last.is_complete


async def test_change_of_a_log_dir_is_seen_by_its_watch(tmp_path: Path) -> None:
    listed = Listed(tmp_path, clock=SystemClock())
    async with listed.running():
        log = BrokerLog(tmp_path)
        log.append(1)
        await eventually(lambda: ORDERS in listed.last.here, what="the partition")

        log.path.rename(tmp_path / "orders-0.00000000000000000000000000000001-delete")

        await eventually(lambda: listed.last.is_deleted(ORDERS), what="the deletion")


async def test_directory_without_topic_id_is_pending_until_the_broker_has_written_it(tmp_path: Path) -> None:
    log = BrokerLog(tmp_path)
    log.append(1)
    (log.path / "partition.metadata").unlink()
    listed = Listed(tmp_path, clock=SystemClock())
    async with listed.running():
        await eventually(lambda: log.path in listed.last.pending, what="the pending directory")
        assert not listed.last.here

        (log.path / "partition.metadata").write_bytes(encode_topic_id(TOPIC_ID))

        await eventually(lambda: ORDERS in listed.last.here, what="the partition")


async def test_newer_epoch_is_found_at_the_next_interval(tmp_path: Path) -> None:
    log, clock = BrokerLog(tmp_path), ManualClock()
    listed = Listed(tmp_path, clock=clock)
    async with listed.running(is_watched=False):
        log.epoch = 4
        log.append(1)
        await eventually(lambda: clock.sleeping > 0, what="the wait")

        clock.advance(LIST_INTERVAL_S)

        await eventually(lambda: len(listed.seen) > 1, what="the second listing")
        assert listed.last.here[ORDERS].leader_epoch == 4


async def test_log_dir_that_is_away_makes_the_listing_incomplete(tmp_path: Path) -> None:
    BrokerLog(tmp_path / "a").append(1)
    listed = Listed(tmp_path / "a", tmp_path / "missing", clock=ManualClock())
    async with listed.running(is_watched=False):
        assert ORDERS in listed.last.here
        assert not listed.last.is_complete


@pytest.mark.spec("push-replication F13")
async def test_deleted_and_current_directory_of_one_name_are_told_apart_by_id(tmp_path: Path) -> None:
    newer = UUID(int=99)
    BrokerLog(tmp_path, name="orders-0.00000000000000000000000000000001-delete")
    BrokerLog(tmp_path, topic_id=newer)
    listed = Listed(tmp_path, clock=ManualClock())
    async with listed.running(is_watched=False):
        assert listed.last.is_deleted(ORDERS)
        assert not listed.last.is_deleted(TopicIdPartition(newer, "orders", 0))


async def test_moved_partition_is_not_deleted(tmp_path: Path) -> None:
    BrokerLog(tmp_path / "a", name="orders-0.00000000000000000000000000000001-delete")
    BrokerLog(tmp_path / "b").append(1)
    listed = Listed(tmp_path / "a", tmp_path / "b", clock=ManualClock())
    async with listed.running(is_watched=False):
        assert listed.last.here[ORDERS].log_dir == tmp_path / "b"
        assert not listed.last.is_deleted(ORDERS)
