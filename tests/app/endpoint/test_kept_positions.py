"""Positions of clients that an endpoint must not reset: ends and starts that it knows late, or not yet."""

from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.app.endpoint.consuming import offsets
from tests.app.endpoint.hosts import write_high_watermark
from tests.app.endpoint.test_endpoint_log import PARTITION, SampleHost, opened, written
from tests.app.endpoint.test_endpoint_partitions import Setup, setup
from tests.contracts.served_log import SAMPLE
from tests.fakes.key_value_store import Fault
from tests.tiering.setups import CLUSTER_ID, delete_segment
from tierd.app.endpoint.stored_partitions import StoredPartitions
from tierd.errors import RemoteStorageNotReadyError
from tierd.log import REPLICATION_OFFSET_CHECKPOINT
from tierd.metadata import MetadataKeyFactory, PartitionView
from tierd.model import TopicIdPartition

__all__ = ["setup", "written"]


@pytest.fixture
async def both(written: Path, tmp_path: Path) -> AsyncIterator[SampleHost]:
    async with opened(written, tmp_path) as sample:
        yield sample


class TestCheckpointOfTheBroker:
    async def test_end_is_not_known_before_the_broker_has_written_a_high_watermark(self, both: SampleHost) -> None:
        (both.path.parent / REPLICATION_OFFSET_CHECKPOINT).write_text("0\n0\n")
        bounds = await both.host.log(PARTITION).bounds()
        assert (bounds.high_watermark, bounds.is_end_known) == (17, False)
        write_high_watermark(both.path, SAMPLE.end_offset)
        bounds = await both.host.log(PARTITION).bounds()
        assert (bounds.high_watermark, bounds.is_end_known) == (SAMPLE.end_offset, True)

    async def test_latest_epoch_ends_with_the_log_when_the_high_watermark_is_an_old_one(self, both: SampleHost) -> None:
        write_high_watermark(both.path, 18)
        log = both.host.log(PARTITION)
        assert (await log.bounds()).high_watermark == 18
        assert (await log.epoch_end(2)).end_offset == SAMPLE.end_offset
        both.append_next()
        assert (await log.epoch_end(2)).end_offset == SAMPLE.end_offset + 2


class TestFirstCopyOfAnotherHost:
    @pytest.fixture
    async def follower(self, written: Path, tmp_path: Path) -> AsyncIterator[SampleHost]:
        """Open a replica of which nothing is copied yet, on a host that does not lead it."""
        async with opened(written, tmp_path, mix="local", is_away=True) as sample:
            sample.host.has_replicas = True
            yield sample

    async def _move_to_the_tier(self, follower: SampleHost) -> None:
        """Copy as the leader does, and delete here what is copied, within the life of a view."""
        assert [outcome.error for outcome in (await follower.session.copy_once()).values()] == [None]
        for base in (0, 8):
            delete_segment(follower.path, base)
        await follower.session.manager._log_dirs.scan(follower.path)

    async def test_log_start_does_not_rise_with_the_local_log(self, follower: SampleHost) -> None:
        log = follower.host.log(PARTITION)
        assert (await log.bounds()).log_start_offset == SAMPLE.log_start_offset
        await self._move_to_the_tier(follower)
        assert (await log.bounds()).log_start_offset == SAMPLE.log_start_offset
        assert (await offsets(log))[:3] == [2, 3, 4]

    async def test_start_is_not_known_while_the_metadata_cannot_be_read(self, follower: SampleHost) -> None:
        log = follower.host.log(PARTITION)
        await log.bounds()
        await self._move_to_the_tier(follower)
        follower.rows.read_faults.extend([Fault.FAIL] * 10)
        with pytest.raises(RemoteStorageNotReadyError):
            await log.bounds()
        follower.rows.read_faults.clear()
        assert (await log.bounds()).log_start_offset == SAMPLE.log_start_offset


class TestTopicThatWasMadeAnew:
    async def test_incarnation_does_not_go_back_while_the_metadata_cannot_be_read(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def away(partition: TopicIdPartition) -> PartitionView:
            raise RemoteStorageNotReadyError("the store does not answer")

        former = TopicIdPartition(UUID(int=78), "orders", 0)
        await setup.session.metadata.become_leader(former, 0)
        keys = MetadataKeyFactory(CLUSTER_ID)
        stored = StoredPartitions(setup.rows, keys, setup.host.views, wants=lambda _: True, clock=setup.host.clock)
        assert await stored.refresh()
        assert stored.newest == {"orders": setup.partition(0).topic_id}
        monkeypatch.setattr(setup.host.views, "current", away)
        assert not await stored.refresh()
        assert stored.newest == {"orders": setup.partition(0).topic_id}
