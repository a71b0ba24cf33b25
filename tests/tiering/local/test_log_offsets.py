"""Logs that tierd itself appends to: copied up to their own high watermark, and deleted locally only after the copy."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.fakes.manual_clock import ManualClock
from tests.log.cleaning.cleaners import own_log_rules
from tests.tiering.setups import Session, Tier
from tierd.errors import BackendUnavailableError, UnknownPartitionError
from tierd.log import LogConfig, LogManager, LogManagerSettings, LogService, NewRecord, UnifiedLog, encode_batch
from tierd.metadata import Batch, MemoryKeyValueStore
from tierd.model import TopicIdPartition, TopicPartition
from tierd.tiering import BrokerLogOffsets, OwnLogOffsets, TopicPolicy

NAME = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
LONG_AFTER_MS = NOW_MS + 10_000_000


@dataclass
class OwnLog:
    """Log in a log dir of tierd, and a session that tiers it."""

    service: LogService
    offsets: OwnLogOffsets
    tier: Tier
    session: Session
    partition: TopicIdPartition

    @property
    def log(self) -> UnifiedLog:
        return self.service.log(NAME)

    async def append(self, count: int, *, epoch: int = 0) -> None:
        for _ in range(count):
            batch = encode_batch([NewRecord(b"key", b"value", NOW_MS)], base_offset=0)
            await self.service.writer(NAME).append_as_leader(batch, leader_epoch=epoch)

    async def roll(self) -> None:
        await self.service.writer(NAME).run(lambda log: log.roll(now_ms=NOW_MS))

    def commit(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)

    async def delete_old(self) -> list[int]:
        """Apply local retention at a much later time; return the remaining bases."""
        await self.service.writer(NAME).run(lambda log: log.delete_old_segments(LONG_AFTER_MS))
        return [segment.base_offset for segment in self.log.segments]


@contextlib.asynccontextmanager
async def own_log(tmp_path: Path, *, rows: MemoryKeyValueStore | None = None) -> AsyncIterator[OwnLog]:
    config = LogConfig(remote_storage_enable=True, local_retention_ms=1000)
    log_dir, clock, topic_id = tmp_path / "own", ManualClock(), uuid4()
    log_dir.mkdir()
    manager = LogManager([log_dir], LogManagerSettings(config_for=lambda _: config, clock=clock))
    async with LogService(manager, clock=clock, rewriting=own_log_rules()) as service:
        await service.get_or_create(NAME, topic_id=topic_id)
        offsets = OwnLogOffsets(service, [log_dir])
        tier = Tier(tmp_path, [log_dir], rows=rows)
        session = tier.session(log_offsets=offsets, policies=lambda _: TopicPolicy(local_retention_ms=1000))
        yield OwnLog(service, offsets, tier, session, TopicIdPartition(topic_id, "orders", 0))


async def test_own_log_deletes_only_committed_and_copied_segments(tmp_path: Path) -> None:
    async with own_log(tmp_path) as own:
        await own.append(3)
        await own.roll()
        await own.append(3)
        await own.roll()
        await own.append(1)
        own.log.update_high_watermark(4)
        await own.session.copy_once()
        assert own.session.finished(own.partition) == [(0, 2)], "the high watermark is in the second segment"
        assert own.log.highest_remote_offset == 2
        own.commit()
        assert await own.delete_old() == [3, 6], "the second segment is not in the tier yet"
        assert (own.log.log_start_offset, own.log.local_log_start_offset) == (0, 3)


@pytest.mark.spec("remote-tiering 151")
async def test_a_finish_that_fails_for_good_keeps_the_local_segment(tmp_path: Path) -> None:
    class NoFinish(MemoryKeyValueStore):
        batches = 0

        async def apply(self, batch: Batch) -> None:
            self.batches += 1
            if self.batches > 3:  # claim, log start, COPY_STARTED
                raise BackendUnavailableError("down")
            await super().apply(batch)

    async with own_log(tmp_path, rows=NoFinish()) as own:
        await own.append(3)
        await own.roll()
        await own.append(1)
        own.commit()
        outcome = (await own.session.copy_once())["orders-0"]
        assert outcome.error is not None
        assert own.log.highest_remote_offset == -1
        assert (await own.delete_old())[0] == 0


@pytest.mark.spec("remote-tiering 155")
async def test_rewritten_segments_of_an_own_log_stay_until_they_are_copied_again(tmp_path: Path) -> None:
    async with own_log(tmp_path) as own:
        for _ in range(4):
            await own.append(50)
            await own.roll()
        await own.append(1)
        own.commit()
        await own.session.copy_once()
        assert own.log.highest_remote_offset == 199
        await own.service.truncate_to(NAME, 150)
        assert own.log.highest_remote_offset == 149, "LATEST_TIERED"
        await own.append(60, epoch=1)
        await own.roll()
        await own.append(50, epoch=1)
        own.commit()
        bases = await own.delete_old()
        assert min(bases) == 150, "no segment from there on is deleted"
        await own.session.copy_once()
        assert own.log.highest_remote_offset == own.session.finished(own.partition)[-1][1] > 200
        assert own.session.metadata.view(own.partition).segment_for(1, 155) is not None


async def test_remote_offset_of_an_epoch_that_the_log_lacks_is_ignored(tmp_path: Path) -> None:
    async with own_log(tmp_path) as own:
        await own.append(10)
        assert not own.log.replace_highest_remote_offset(5, epoch=3)
        assert own.log.highest_remote_offset == -1
        assert own.log.replace_highest_remote_offset(5, epoch=0)
        assert own.log.replace_highest_remote_offset(3, epoch=0), (
            "the report of a new leader replaces that of the former one"
        )
        assert own.log.highest_remote_offset == 3
        assert own.log.replace_highest_remote_offset(-1, epoch=-1)
        assert own.log.highest_remote_offset == -1


async def test_expiration_raises_the_log_start_of_an_own_log(tmp_path: Path) -> None:
    async with own_log(tmp_path) as own:
        await own.append(10)
        own.commit()
        await own.offsets.raise_log_start(tmp_path / "own", own.partition, 4)
        assert own.log.log_start_offset == 4
        offsets = await own.offsets.offsets(tmp_path / "own", own.partition)
        assert (offsets.high_watermark, offsets.log_start_offset) == (10, 4)


async def test_offsets_of_an_own_log_that_is_not_open_are_an_error(tmp_path: Path) -> None:
    async with own_log(tmp_path) as own:
        await own.service.delete(NAME)
        with pytest.raises(UnknownPartitionError):
            await own.offsets.offsets(tmp_path / "own", own.partition)


async def test_offsets_in_other_log_dirs_are_those_of_the_broker(tmp_path: Path) -> None:
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\norders 0 7\n")
    async with own_log(tmp_path) as own:
        theirs = await own.offsets.offsets(tmp_path, own.partition)
        assert theirs == await BrokerLogOffsets().offsets(tmp_path, own.partition)
        assert theirs.high_watermark == 7


async def test_high_watermarks_are_those_of_the_requested_log_dir_for_either_owner(tmp_path: Path) -> None:
    theirs = LogDirWriter(tmp_path / "kafka")
    writer = theirs.add_partition("payments")
    writer.append([b"x", b"y"])
    theirs.write_checkpoints()
    async with own_log(tmp_path) as own:
        await own.append(3)
        own.log.update_high_watermark(2)

        assert await own.offsets.high_watermarks(tmp_path / "own") == {NAME: 2}
        assert await own.offsets.high_watermarks(theirs.path) == {TopicPartition("payments", 0): 2}
        assert await own.offsets.high_watermarks(tmp_path) == {}
