"""EndpointLog over a log dir and a tier: the contract of served logs in mixes of both, and changes under a reader."""

import asyncio
import contextlib
import shutil
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from tests.app.endpoint.consuming import COMMITTED, UNCOMMITTED, consumed, offsets, read
from tests.app.endpoint.hosts import EndpointHost, cut_log, endpoint_host, open_chunks, write_high_watermark
from tests.contracts.served_log import SAMPLE, ServedLogContract, ServedSample, content_of
from tests.control.test_broker_watermarks import running
from tests.fakes.eventually import eventually
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.watermark_broker import WatermarkBroker
from tests.log.batches import marker
from tests.log.logs import NOW_MS, open_log
from tests.tiering.reading.test_fetch_service import HeldStorage
from tests.tiering.setups import Session, Tier, delete_segment
from tierd.control import BrokerWatermarks, Leadership, Role
from tierd.control.watermark_session import key_of
from tierd.errors import OffsetOutOfRangeError, RemoteStorageNotReadyError, SegmentChangedError, TierError
from tierd.log import LOG_START_OFFSET_CHECKPOINT, LogConfig, file_name, write_offset_checkpoint
from tierd.log.files.disk import OsDisk
from tierd.metadata import MemoryKeyValueStore
from tierd.model import RemoteLogSegmentMetadataUpdate, RemoteLogSegmentState, TopicIdPartition
from tierd.serve import FileSlice
from tierd.tiering.reading import known_batches

TOPIC_ID = UUID("12345678-9abc-def0-fedc-ba9876543210")
PARTITION = TopicIdPartition(TOPIC_ID, "orders", 0)
ROLLS = (8, 11, 17)
LIES: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda _: b"",
    "zeros": lambda content: bytes(len(content)),
    "noise": lambda content: bytes(byte ^ 0xA5 for byte in content),
    "the middle of a batch": lambda content: content[20:] + content[:20],
    "one byte less": lambda content: content[:-1],
    "one flipped bit in a record": lambda content: content[:70] + bytes([content[70] ^ 1]) + content[71:],
    "another offset": lambda content: bytes([content[0] ^ 1]) + content[1:],
}
"""Answers of a store that are not what was stored."""


@dataclass
class SampleHost:
    """The sample in a log dir; every segment but the active one may be in the tier as well."""

    path: Path
    session: Session
    host: EndpointHost
    rows: FaultyKeyValueStore
    storage: HeldStorage

    def append_next(self) -> None:
        with (self.path / file_name(ROLLS[-1], ".log")).open("ab") as log:
            log.write(SAMPLE.next_batch)

    async def expire_first(self) -> None:
        """Delete the first segment of the tier, as the leader does; another host learns of it from the store."""
        first = self.session.rows(PARTITION)[0]
        await self.session.metadata.advance_log_start_offset(PARTITION, 8)
        for state in (RemoteLogSegmentState.DELETE_SEGMENT_STARTED, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED):
            await self.session.metadata.update(
                RemoteLogSegmentMetadataUpdate(
                    segment=first.segment,
                    state=state,
                    event_timestamp_ms=NOW_MS,
                    broker_id=1,
                    custom_metadata=first.custom_metadata,
                )
            )
            await self.session.storage.delete_log_segment_data(first)

    async def grow(self) -> None:
        self.append_next()
        write_high_watermark(self.path, SAMPLE.end_offset + 2)
        self.host.watermarks.written(self.path.parent)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the sample into a log dir."""
    log_dir = tmp_path_factory.mktemp("written")
    log = open_log(log_dir, config=LogConfig(segment_ms=1 << 60))
    log.assign_topic_id(TOPIC_ID)
    for batch in SAMPLE.batches:
        if batch.base_offset in ROLLS:
            log.roll(now_ms=NOW_MS)
        log.append_as_follower(bytes(batch.data), now_ms=NOW_MS)
    log.close()
    write_high_watermark(log.directory, SAMPLE.end_offset)
    starts = {log.topic_partition: SAMPLE.log_start_offset}
    write_offset_checkpoint(OsDisk(), log_dir / LOG_START_OFFSET_CHECKPOINT, starts)
    return log_dir


@contextlib.asynccontextmanager
async def opened(
    written: Path,
    tmp_path: Path,
    *,
    mix: str = "both",
    broker: BrokerWatermarks | None = None,
    is_away: bool = False,
) -> AsyncIterator[SampleHost]:
    """Open the sample on one host: ``local`` only, ``half`` or all but its end in the tier only, or in ``both``.

    In the mix ``cached``, all but its end is in the tier only, was read into a chunk cache before, and is sent from
    its files.
    """
    shutil.copytree(written, tmp_path / "kafka")
    path = tmp_path / "kafka" / "orders-0"
    rows = FaultyKeyValueStore(MemoryKeyValueStore())
    session = Tier(tmp_path, [tmp_path / "kafka"], rows=rows).session()
    storage = HeldStorage(session.tier)
    if mix == "local":
        await session.manager.discover_once()
        (replica,) = session.tiering.replicas.all()
        assert replica.leadership is not None
        await session.metadata.become_leader(PARTITION, replica.leadership.leader_epoch)
    else:
        assert [outcome.error for outcome in (await session.copy_once()).values()] == [None]
        assert session.finished(PARTITION) == [(0, 7), (8, 10), (11, 16)]
    for base in {"half": (0, 8), "remote": (0, 8, 11), "cached": (0, 8, 11)}.get(mix, ()):
        delete_segment(path, base)
    await session.manager._log_dirs.scan(path)
    async with contextlib.AsyncExitStack() as stack:
        if mix == "cached":
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(known_batches, "_SMALL_BATCH_BYTES", 0)  # the batches of the sample are small
            cache = await stack.enter_async_context(open_chunks(session.tier.store, tmp_path / "chunks"))
            storage = HeldStorage(session.tier, cache=cache)
        cached_logs = storage if mix == "cached" else None
        opening = endpoint_host(session, storage=storage, broker=broker, is_away=is_away, cached_logs=cached_logs)
        host = await stack.enter_async_context(opening)
        if mix == "cached":
            await offsets(host.log(PARTITION))
            await eventually(lambda: cache.statistics().entries == 3, what="the chunks on disk")
            for base in (2, 8, 11):
                (piece,) = (await read(host.log(PARTITION), base)).records
                assert isinstance(piece, FileSlice)
                assert piece.path.parent == tmp_path / "chunks"
        yield SampleHost(path, session, host, rows, storage)


@pytest.fixture(params=["local", "remote", "cached"])
async def sample(written: Path, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SampleHost]:
    async with opened(written, tmp_path, mix=request.param) as sample:
        yield sample


@pytest.fixture
async def both(written: Path, tmp_path: Path) -> AsyncIterator[SampleHost]:
    async with opened(written, tmp_path) as sample:
        yield sample


class TestContract(ServedLogContract):
    @pytest.fixture
    async def served(self, sample: SampleHost) -> ServedSample:
        return ServedSample(sample.host.log(PARTITION), sample.grow)


class TestChangesUnderAReader:
    async def test_segment_that_retention_deleted_since_the_scan_is_read_from_the_tier(self, both: SampleHost) -> None:
        log = both.host.log(PARTITION)
        assert (await log.bounds()).local_start_offset == SAMPLE.log_start_offset
        for base in (0, 8, 11):
            delete_segment(both.path, base)
        assert await offsets(log, COMMITTED) == [2, 3, 4, 8, 9, 11, 12, 13, 14, 15]

    async def test_segment_that_began_since_the_scan_is_read(self, both: SampleHost) -> None:
        log = both.host.log(PARTITION)
        await log.bounds()
        (both.path / file_name(SAMPLE.end_offset, ".log")).write_bytes(SAMPLE.next_batch)
        write_high_watermark(both.path, SAMPLE.end_offset + 2)
        assert content_of(await read(log, SAMPLE.end_offset)) == SAMPLE.next_batch
        assert (await log.bounds()).high_watermark == SAMPLE.end_offset + 2

    async def test_log_that_was_cut_back_below_its_watermark_has_no_more_records(self, both: SampleHost) -> None:
        log = both.host.log(PARTITION)
        write_high_watermark(both.path, SAMPLE.end_offset + 5)
        assert (await read(log, SAMPLE.end_offset)).records == ()
        assert await offsets(log, start=20) == [20, 21]

    async def test_log_dir_that_does_not_answer_is_an_error_of_that_moment(self, both: SampleHost) -> None:
        log = both.host.log(PARTITION)
        await log.bounds()
        shutil.move(both.path, both.path.with_name("elsewhere"))
        with pytest.raises(SegmentChangedError):
            await read(log, 20)
        shutil.move(both.path.with_name("elsewhere"), both.path)
        assert await offsets(log, start=20) == [20, 21]

    async def test_replica_that_left_the_host_is_read_from_the_tier(self, both: SampleHost) -> None:
        log = both.host.log(PARTITION)
        assert (await log.bounds()).is_end_known
        both.host.has_replicas = False
        bounds = await log.bounds()
        assert (bounds.high_watermark, bounds.is_end_known, bounds.local_start_offset) == (17, False, None)
        assert await offsets(log) == [each for each in range(2, 17) if each not in (10, 16)]


class TestCutBackLog:
    """The files end below the high watermark, 22; the tier ends at 17."""

    @pytest.mark.parametrize("end_offset", [0, 5, 8, 11, 14, 17, 20])
    @pytest.mark.parametrize("max_bytes", [1, 1 << 20])
    @pytest.mark.parametrize("is_known", [True, False])
    async def test_consumer_gets_what_the_tier_has_and_waits_for_what_neither_log_has(
        self, both: SampleHost, end_offset: int, max_bytes: int, *, is_known: bool
    ) -> None:
        log = both.host.log(PARTITION)
        if not is_known:
            await log.bounds()
        cut_log(both.path, end_offset)
        if is_known:
            await both.session.manager._log_dirs.scan(both.path)
        found = [each.offset async for each in consumed(log, UNCOMMITTED, max_bytes=max_bytes)]
        assert found == [each for each in range(2, max(end_offset, 17)) if each not in (10, 16)]
        found = [each.offset async for each in consumed(log, COMMITTED, max_bytes=max_bytes)]
        assert found == [2, 3, 4, 8, 9, 11, 12, 13, 14, 15]

    @pytest.mark.parametrize("end_offset", [8, 20])
    async def test_position_of_a_consumer_stays_and_the_end_is_not_known(
        self, both: SampleHost, end_offset: int
    ) -> None:
        """The broker gets the records back, or writes others at their offsets: neither end is the latest one."""
        cut_log(both.path, end_offset)
        await both.session.manager._log_dirs.scan(both.path)
        log = both.host.log(PARTITION)
        bounds = await log.bounds()
        assert (bounds.high_watermark, bounds.is_end_known, bounds.local_start_offset) == (22, False, None)
        assert bounds.last_stable_offset == 17
        for offset in (max(end_offset, 17), 21, 22):
            found = await read(log, offset)
            assert (found.records, found.has_more) == ((), False)

    async def test_records_that_the_broker_gets_back_are_read_and_the_end_is_known_again(
        self, both: SampleHost
    ) -> None:
        active = both.path / file_name(ROLLS[-1], ".log")
        content = active.read_bytes()
        log = both.host.log(PARTITION)
        cut_log(both.path, 20)
        assert await offsets(log, start=17) == [17, 18, 19]
        assert not (await log.bounds()).is_end_known
        with active.open("ab") as file:
            file.write(content[active.stat().st_size :])
        bounds = await log.bounds()
        assert (bounds.high_watermark, bounds.is_end_known, bounds.last_stable_offset) == (22, True, 17)
        assert await offsets(log, start=20) == [20, 21]

    async def test_stable_offset_follows_a_marker_that_came_back(self, both: SampleHost) -> None:
        """An idle partition has no later high watermark that would make the daemon look again."""
        write_high_watermark(both.path, 23)
        log = both.host.log(PARTITION)
        assert (await log.bounds()).last_stable_offset == 17
        with (both.path / file_name(ROLLS[-1], ".log")).open("ab") as active:
            active.write(marker(22, 9, commit=True))
        bounds = await log.bounds()
        assert (bounds.is_end_known, bounds.last_stable_offset) == (True, 23)
        assert await offsets(log, COMMITTED, start=17) == [17, 18, 19, 20, 21]

    async def test_record_behind_the_cut_is_found_by_its_time_and_a_lost_one_is_an_error(
        self, both: SampleHost
    ) -> None:
        cut_log(both.path, 8)
        log = both.host.log(PARTITION)
        found = await log.list_offset(1040, isolation=UNCOMMITTED)
        assert found is not None
        assert found.offset == 14
        with pytest.raises(OffsetOutOfRangeError, match="offset 17 is not in the tier"):
            await log.list_offset(1050, isolation=UNCOMMITTED)

    async def test_cut_is_logged_once(self, both: SampleHost) -> None:
        log = both.host.log(PARTITION)
        with capture_logs() as lines:
            cut_log(both.path, 8)
            for offset in (8, 17, 17):
                await read(log, offset)
        assert [
            (each["log_level"], each["log_end_offset"], each["high_watermark"])
            for each in lines
            if each["event"] == "local_log_cut_back"
        ] == [("warning", 8, 22)]

    async def test_log_of_a_cluster_that_is_gone_ends_with_its_files(self, both: SampleHost) -> None:
        both.host.parts = replace(both.host.parts, is_tier_final=True)
        log = both.host.log(PARTITION)
        cut_log(both.path, 20)
        assert await offsets(log) == [each for each in range(2, 20) if each not in (10, 16)]
        bounds = await log.bounds()
        assert (bounds.high_watermark, bounds.is_end_known) == (20, True)

    async def test_records_behind_a_cut_that_a_broker_does_not_tell_of_are_read_from_the_tier(
        self, written: Path, tmp_path: Path
    ) -> None:
        broker = WatermarkBroker()
        broker.move(key_of(PARTITION), 22, last_stable_offset=22)
        async with running(broker) as setup, opened(written, tmp_path, broker=setup.watermarks) as sample:
            log = sample.host.log(PARTITION)
            assert (await log.bounds()).last_stable_offset == 22
            cut_log(sample.path, 8)
            assert await offsets(log) == [each for each in range(2, 17) if each not in (10, 16)]
            assert await offsets(log, COMMITTED) == [2, 3, 4, 8, 9, 11, 12, 13, 14, 15]
            assert not (await log.bounds()).is_end_known


class TestWithoutAReplica:
    @pytest.fixture
    async def away(self, written: Path, tmp_path: Path) -> AsyncIterator[SampleHost]:
        """Open the sample as a host sees it that neither leads it nor has a replica."""
        async with opened(written, tmp_path, is_away=True) as sample:
            yield sample

    async def test_log_ends_with_the_tier_and_its_end_is_not_known(self, away: SampleHost) -> None:
        bounds = await away.host.log(PARTITION).bounds()
        assert (bounds.log_start_offset, bounds.high_watermark, bounds.last_stable_offset) == (2, 17, 17)
        assert (bounds.is_end_known, bounds.leader_epoch) == (False, 2)

    async def test_log_of_a_cluster_that_is_gone_ends_with_the_tier(self, away: SampleHost) -> None:
        away.host.parts = replace(away.host.parts, is_tier_final=True)
        assert (await away.host.log(PARTITION).bounds()).is_end_known

    async def test_segment_that_expired_since_the_view_was_read_is_out_of_range(self, away: SampleHost) -> None:
        log = away.host.log(PARTITION)
        assert await offsets(log, start=2)
        await away.expire_first()
        with pytest.raises(OffsetOutOfRangeError):
            await read(log, 2)
        assert (await log.bounds()).log_start_offset == 8

    async def test_listener_hears_of_segments_that_another_host_copies(self, away: SampleHost) -> None:
        log, heard = away.host.log(PARTITION), asyncio.Event()
        await log.bounds()
        leave = log.listen(heard.set)
        watching = asyncio.create_task(away.host.views.watch())
        try:
            await eventually(lambda: away.host.clock.sleeping > 0, what="the watch")
            away.host.clock.advance(2)
            await eventually(heard.is_set, what="the first look")
            await away.expire_first()
            heard.clear()
            await eventually(lambda: away.host.clock.sleeping > 0, what="the watch")
            away.host.clock.advance(2)
            await eventually(heard.is_set, what="the change")
            assert (await log.bounds()).log_start_offset == 8
        finally:
            leave()
            watching.cancel()
            await asyncio.wait({watching})

    async def test_store_of_the_metadata_that_is_away_leaves_the_last_view(self, away: SampleHost) -> None:
        log = away.host.log(PARTITION)
        await log.bounds()
        away.host.clock.advance(60)
        away.rows.read_faults.extend([Fault.FAIL] * 10)
        assert (await log.bounds()).high_watermark == 17
        with pytest.raises(RemoteStorageNotReadyError):
            await read(log, 100)


class TestReads:
    async def test_read_that_a_segment_or_its_bytes_ended_has_more(self, both: SampleHost) -> None:
        log = both.host.log(PARTITION)
        assert (await read(log, 2)).has_more
        assert (await read(log, 2, max_bytes=1)).has_more
        assert not (await read(log, 17)).has_more
        assert not (await read(log, 11, isolation=COMMITTED)).has_more  # it ends with the last stable offset

    async def test_slow_store_makes_a_read_pending_and_its_records_come_with_a_later_one(
        self, written: Path, tmp_path: Path
    ) -> None:
        async with opened(written, tmp_path, mix="remote") as sample:
            log = sample.host.log(PARTITION)
            await log.bounds()
            sample.storage.open.clear()
            first = await log.read(2, max_bytes=1000, isolation=UNCOMMITTED, at_least_one=True, max_wait_s=0.05)
            assert (first.is_pending, first.records) == (True, ())
            sample.storage.open.set()
            second = await log.read(2, max_bytes=1000, isolation=UNCOMMITTED, at_least_one=True, max_wait_s=10)
            assert content_of(second) == SAMPLE.content_from(2, 8)

    @pytest.mark.parametrize("lie", LIES)
    async def test_lie_of_the_store_is_an_error_of_that_moment_and_no_record(
        self, lie: str, written: Path, tmp_path: Path
    ) -> None:
        async with opened(written, tmp_path, mix="remote") as sample:
            log = sample.host.log(PARTITION)
            await log.bounds()
            sample.storage.distort = LIES[lie]
            with pytest.raises(TierError) as failure:
                await read(log, 2)
            assert not isinstance(failure.value, OffsetOutOfRangeError), "a client would reset its position"
            sample.storage.distort = None
            assert content_of(await read(log, 2)) == SAMPLE.content_from(2, 8)

    async def test_preallocated_room_behind_the_records_is_not_served(self, both: SampleHost) -> None:
        with (both.path / file_name(ROLLS[-1], ".log")).open("ab") as active:
            active.truncate(1 << 20)
        log = both.host.log(PARTITION)
        found = await read(log, 17)
        assert found.size_bytes == len(SAMPLE.content_from(17, SAMPLE.end_offset))
        assert (await read(log, SAMPLE.end_offset)).records == ()


class TestWatermarks:
    async def test_broker_tells_watermark_and_stable_offset_before_its_checkpoint(
        self, written: Path, tmp_path: Path
    ) -> None:
        broker = WatermarkBroker()
        broker.move(key_of(PARTITION), 22, last_stable_offset=17)
        async with running(broker) as setup, opened(written, tmp_path, broker=setup.watermarks) as sample:
            write_high_watermark(sample.path, 17)
            log = sample.host.log(PARTITION)
            bounds = await log.bounds()
            assert (bounds.high_watermark, bounds.last_stable_offset, bounds.is_end_known) == (22, 17, True)
            heard = asyncio.Event()
            leave = log.listen(heard.set)
            sample.append_next()
            broker.move(key_of(PARTITION), 24, last_stable_offset=17)
            async with asyncio.timeout(10):
                await heard.wait()
            leave()
            assert content_of(await read(log, 22)) == SAMPLE.next_batch

    @pytest.mark.parametrize("mix", ["local", "remote"])
    async def test_abort_in_a_segment_that_began_since_the_scan_is_told_to_committed_reads(
        self, written: Path, tmp_path: Path, mix: str
    ) -> None:
        broker = WatermarkBroker()
        broker.move(key_of(PARTITION), 22, last_stable_offset=17)
        async with running(broker) as setup, opened(written, tmp_path, mix=mix, broker=setup.watermarks) as sample:
            log = sample.host.log(PARTITION)
            first = await read(log, 11, isolation=COMMITTED)
            entry = struct.pack(">hqqqq", 0, 99, 12, 22, 23)
            (sample.path / file_name(22, ".log")).write_bytes(marker(22, 99, commit=False))
            (sample.path / file_name(22, ".txnindex")).write_bytes(entry)
            heard = asyncio.Event()
            leave = log.listen(heard.set)
            broker.move(key_of(PARTITION), 23, last_stable_offset=23)
            async with asyncio.timeout(10):
                await heard.wait()
            leave()
            assert 99 not in {each.producer_id for each in first.aborted}
            for offset in (11, 17):
                found = await read(log, offset, isolation=COMMITTED)
                assert 99 in {each.producer_id for each in found.aborted}, offset

    async def test_end_of_a_led_log_is_not_known_while_the_broker_does_not_answer(
        self, written: Path, tmp_path: Path
    ) -> None:
        async with (
            running(WatermarkBroker(), node_id=7) as setup,
            opened(written, tmp_path, broker=setup.watermarks) as sample,
        ):
            bounds = await sample.host.log(PARTITION).bounds()
            assert (bounds.high_watermark, bounds.last_stable_offset, bounds.is_end_known) == (22, 17, False)

    async def test_end_of_a_followed_log_is_not_known(self, both: SampleHost) -> None:
        (replica,) = both.session.tiering.replicas.all()
        both.session.tiering.replicas.assign(replica, Leadership(PARTITION, 3, Role.FOLLOWER))
        bounds = await both.host.log(PARTITION).bounds()
        assert (bounds.high_watermark, bounds.is_end_known) == (22, False)

    async def test_unchanged_log_is_looked_at_without_its_files(self, both: SampleHost) -> None:
        log = both.host.log(PARTITION)
        first = await log.bounds()
        for base in ROLLS:
            delete_segment(both.path, base)
        assert await log.bounds() is first
