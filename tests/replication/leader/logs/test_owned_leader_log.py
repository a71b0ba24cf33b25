"""Owned logs as leader logs, with the writers of a log service on a real disk."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.open_files import open_files
from tests.log.cleaning.cleaners import own_log_rules
from tests.log.logs import records
from tests.replication.leader.peers import FakePeers
from tests.replication.leader.push_story import LEADER
from tierd.errors import LogError, OffsetOutOfRangeError, SegmentChangedError
from tierd.log import LogConfig, LogManager, LogManagerSettings, LogService, PartitionWriter, UnifiedLog
from tierd.model import TopicIdPartition, TopicPartition
from tierd.replication.leader.logs.open_segments import OpenSegments
from tierd.replication.leader.logs.owned_leader_log import OwnedLeaderLog
from tierd.replication.leader.logs.record_memory import batch_bounds
from tierd.replication.leader.pushing.push_manager import PushManager
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.replicas.partition_replicator import PartitionReplicator
from tierd.replication.leader.replicas.replicator_settings import ReplicatorHooks, ReplicatorSettings
from tierd.replication.model.messages import ReplicaFetch
from tierd.replication.model.push_session import PeerIdentity, PeerNode, PushSessionEndReason

PARTITION = TopicIdPartition(UUID(int=1), "orders", 0)
SIZE = len(records())
CONFIG = LogConfig(segment_bytes=10 * SIZE, retention_ms=-1)


class RecordingListener:
    """Listener that keeps what it is told, with the log end of each moment."""

    def __init__(self, log: OwnedLeaderLog) -> None:
        self._log = log
        self.events: list[tuple[str, int]] = []
        self.data = b""

    def on_append(self, append_offset: int, records: bytes, next_offset: int) -> None:
        assert self._log.log_end_offset == next_offset
        self.events.append(("append", append_offset))
        self.data += records

    def on_high_watermark(self, high_watermark: int) -> None:
        assert self._log.high_watermark == high_watermark
        self.events.append(("high watermark", high_watermark))

    def on_log_start_offset(self, log_start_offset: int) -> None:
        assert self._log.log_start_offset == log_start_offset
        self.events.append(("log start", log_start_offset))

    def on_truncated(self, log_end_offset: int) -> None:
        assert self._log.log_end_offset == log_end_offset
        self.events.append(("truncated", log_end_offset))


class OwnedSetup:
    """A log service with one log, as a leader log."""

    def __init__(self, service: LogService, writer: PartitionWriter, clock: ManualClock) -> None:
        self.service = service
        self.writer = writer
        self.clock = clock
        self.segments = OpenSegments()

    async def open(self, *, segments: OpenSegments | None = None) -> OwnedLeaderLog:
        return await OwnedLeaderLog.open(
            PARTITION, self.writer, self.segments if segments is None else segments, leader_epoch=3
        )

    async def append(self, count: int = 1) -> None:
        """Append batches of one record each, at the same time."""
        appends = (self.writer.append_as_leader(records(), leader_epoch=3) for _ in range(count))
        await asyncio.gather(*appends)

    async def run(self, call: Callable[[UnifiedLog], object]) -> None:
        await self.writer.run(call)


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[OwnedSetup]:
    clock = ManualClock()
    (tmp_path / "logs").mkdir()
    manager = LogManager([tmp_path / "logs"], LogManagerSettings(config_for=lambda _: CONFIG, clock=clock))
    async with LogService(manager, clock=clock, rewriting=own_log_rules()) as service:
        writer = await service.get_or_create(TopicPartition("orders", 0), topic_id=PARTITION.topic_id)
        owned = OwnedSetup(service, writer, clock)
        yield owned
        owned.segments.close()


def base_offsets(data: bytes) -> list[int]:
    return [each.base_offset for each in batch_bounds(data)]


async def test_appends_are_reported_in_log_order_and_before_their_answers(setup: OwnedSetup) -> None:
    log = await setup.open()
    listener = RecordingListener(log)
    log.listen(listener)

    for done in range(1, 4):
        await setup.append(5)
        assert listener.events == [("append", offset) for offset in range(5 * done)]

    assert listener.data == await setup.writer.read(_content)
    assert (log.log_end_offset, log.leader_epoch, log.lineage.latest) == (15, 3, (3, 0))


async def test_log_that_is_opened_between_appends_misses_none(setup: OwnedSetup) -> None:
    appending = asyncio.create_task(setup.append(200), name="appends")
    await asyncio.sleep(0)

    log = await setup.open()
    listener = RecordingListener(log)
    log.listen(listener)
    begin = log.log_end_offset
    await appending
    await setup.append()

    assert listener.events == [("append", offset) for offset in range(begin, 201)]


async def test_watermark_log_start_and_truncation_are_reported_after_the_appends(setup: OwnedSetup) -> None:
    log = await setup.open()
    listener = RecordingListener(log)
    log.listen(listener)
    await setup.append(6)

    log.raise_high_watermark(5)
    await setup.run(lambda log: log.delete_records(2))
    await setup.service.truncate_to(TopicPartition("orders", 0), 4)
    await setup.append()

    assert listener.events[6:] == [("high watermark", 5), ("log start", 2), ("truncated", 4), ("append", 4)]
    assert (log.log_start_offset, log.high_watermark, setup.writer.log.high_watermark) == (2, 4, 4)


async def test_watermark_that_is_set_is_the_logs_own_and_is_reported_at_once(setup: OwnedSetup) -> None:
    log = await setup.open()
    listener = RecordingListener(log)
    log.listen(listener)
    await setup.append(3)

    log.raise_high_watermark(2)

    assert listener.events[-1] == ("high watermark", 2)
    assert setup.writer.log.high_watermark == 2
    await asyncio.sleep(0)
    assert listener.events.count(("high watermark", 2)) == 1


async def test_watermark_above_a_truncation_that_is_not_reported_yet_is_left_out(setup: OwnedSetup) -> None:
    log = await setup.open()
    await setup.append(5)
    setup.writer.log.observe(None)
    await setup.service.truncate_to(TopicPartition("orders", 0), 2)

    log.raise_high_watermark(5)

    assert setup.writer.log.high_watermark <= 2
    assert log.high_watermark <= 2


async def test_read_returns_whole_batches_up_to_its_limit(setup: OwnedSetup) -> None:
    log = await setup.open()
    await setup.append(25)

    assert base_offsets(await log.read(3, 3 * SIZE + 5)) == [3, 4, 5]
    assert base_offsets(await log.read(3, 1)) == [3]
    assert await log.read(25, 1000) == b""


@pytest.mark.parametrize("offset", [1, 26])
async def test_read_outside_of_the_log_is_refused(setup: OwnedSetup, offset: int) -> None:
    log = await setup.open()
    await setup.append(25)
    log.raise_high_watermark(25)
    await setup.run(lambda log: log.delete_records(2))

    with pytest.raises(OffsetOutOfRangeError):
        await log.read(offset, 1000)


async def test_read_leaves_out_what_was_not_reported_yet(setup: OwnedSetup) -> None:
    log = await setup.open()
    await setup.append(3)
    setup.writer.log.observe(None)
    await setup.append(3)

    assert base_offsets(await log.read(0, 1000 * SIZE)) == [0, 1, 2]


async def test_read_during_a_truncation_is_refused(setup: OwnedSetup) -> None:
    log = await setup.open()
    await setup.append(5)
    read = setup.writer.read

    async def read_and_cut(call: Callable[[UnifiedLog], bytes]) -> bytes:
        data = await read(call)
        await setup.service.truncate_to(TopicPartition("orders", 0), 2)
        return data

    setup.writer.read = read_and_cut  # type: ignore[method-assign,assignment]

    with pytest.raises(SegmentChangedError):
        await log.read(0, 1000)


async def test_new_appends_are_a_range_of_the_open_segment(setup: OwnedSetup) -> None:
    log = await setup.open()
    log.listen(RecordingListener(log))
    await setup.append(2)
    await setup.append(5)

    found = log.file_records(3, 7)

    assert found is not None
    assert (found.first_offset, found.next_offset, found.size_bytes) == (3, 7, 4 * SIZE)
    assert base_offsets(await found.read(0, 2 * SIZE + 5)) == [3, 4]
    assert base_offsets(await found.read(2 * SIZE, 1)) == [5]
    assert await found.read(4 * SIZE, 1000) == b""
    found.close()


async def test_range_at_the_log_end_is_empty_and_needs_no_file(setup: OwnedSetup) -> None:
    log = await setup.open()
    await setup.append(2)

    found = log.file_records(2, 2)

    assert found is not None
    assert (found.size_bytes, await found.read(0, 100)) == (0, b"")
    found.close()


@pytest.mark.parametrize("from_offset", [0, 8, 13])
async def test_range_is_not_offered_for_older_segments_or_beyond_the_end(setup: OwnedSetup, from_offset: int) -> None:
    log = await setup.open()
    log.listen(RecordingListener(log))
    await setup.append(12)

    assert log.file_records(from_offset, 12) is None


@pytest.mark.spec("push-replication F23")
async def test_range_stays_readable_after_its_segment_was_deleted(setup: OwnedSetup) -> None:
    log = await setup.open()
    log.listen(RecordingListener(log))
    await setup.append(8)
    found = log.file_records(5, 8)
    assert found is not None

    log.raise_high_watermark(8)
    await setup.append(10)
    log.raise_high_watermark(18)
    await setup.run(lambda log: log.delete_records(18))
    await setup.run(lambda log: log.delete_old_segments(setup.clock.now_ms()))
    await setup.run(UnifiedLog.unlink_deleted)

    assert base_offsets(await found.read(0, 1000)) == [5, 6, 7]
    found.close()
    with pytest.raises(LogError):
        await found.read(0, 1000)


async def test_only_the_logs_that_grew_last_keep_an_open_file(setup: OwnedSetup) -> None:
    segments = OpenSegments(limit=1)
    other_writer = await setup.service.get_or_create(TopicPartition("orders", 1), topic_id=PARTITION.topic_id)
    log = await setup.open(segments=segments)
    other = await OwnedLeaderLog.open(
        TopicIdPartition(PARTITION.topic_id, "orders", 1), other_writer, segments, leader_epoch=3
    )
    for each in (log, other):
        each.listen(RecordingListener(each))

    await setup.append()
    await other_writer.append_as_leader(records(), leader_epoch=3)

    assert len(segments) == 1
    assert log.file_records(0, 1) is None
    found = other.file_records(0, 1)
    assert found is not None
    found.close()
    segments.close()
    for writer in (setup.writer, other_writer):
        assert len(open_files(writer.log.segments[-1].path)) == 1  # the writer's own


async def test_closed_log_is_told_of_nothing_more(setup: OwnedSetup) -> None:
    log = await setup.open()
    listener = RecordingListener(log)
    log.listen(listener)
    await setup.append()

    await log.close()
    await setup.append()

    assert listener.events == [("append", 0)]
    assert len(setup.segments) == 0


async def test_records_reach_a_standby_and_its_acknowledgements_raise_the_watermark_of_the_log(
    setup: OwnedSetup,
) -> None:
    peers, log = FakePeers(), await setup.open()
    async with AsyncExitStack() as stack:
        push = await stack.enter_async_context(
            PushManager(PushSettings(), LEADER, peers.open, on_leadership_doubted=lambda *_: None)
        )
        replicator = PartitionReplicator(
            log,
            push,
            ReplicatorSettings(),
            ReplicatorHooks(raise_high_watermark=log.raise_high_watermark),
            now_s=asyncio.get_running_loop().time,
        )
        replicator.assign([PeerNode(1, "host1", 9406)])
        answer = replicator.take_fetch(_fetch(0), PeerIdentity(1, 100))
        assert answer is not None
        assert answer.push_started

        await setup.append(40)
        await eventually(lambda: setup.writer.log.high_watermark == 40, what="the acknowledgement")

        pushed = b"".join(bytes(piece) for part in peers.parts for piece in part.records or ())
        assert pushed == await setup.writer.read(_content)
        (status,) = replicator.statuses()
        assert (status.log_end_offset, status.lag_offsets, status.lag_bytes, status.lag_s) == (40, 0, 0, 0.0)
        replicator.close(PushSessionEndReason.LEADER_RESIGNED)


def _fetch(offset: int) -> ReplicaFetch:
    return ReplicaFetch(
        topic_id=PARTITION.topic_id,
        partition=0,
        current_leader_epoch=3,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=0,
        max_bytes=1000,
        session_id=0,
    )


def _content(log: UnifiedLog) -> bytes:
    data = b""
    read = partial(log.read, max_bytes=1 << 20, isolation=None)
    for segment in log.segments:
        data += read(segment.base_offset).records
    return data
