"""Reads of chunks that were read before: places in checked files of the cache, with the bytes of a copy."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.app.endpoint.consuming import COMMITTED, UNCOMMITTED, read
from tests.app.endpoint.hosts import EndpointHost, endpoint_host, open_chunks
from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter
from tests.fakes.manual_clock import ManualClock
from tests.fakes.transforms import transform_named
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, Tier, delete_segment, partition_of
from tierd.app.endpoint.endpoint_log import EndpointLog
from tierd.config import FetchSettings
from tierd.log import iter_batches
from tierd.model import TopicIdPartition
from tierd.remote import ChunkCache, SegmentStorage
from tierd.remote.cache.checked_chunks import CHECKED_S
from tierd.serve import FileSlice, LogRead
from tierd.serve.kafka.connections.channel import PlainChannel
from tierd.serve.kafka.connections.file_slices import FileSlices

MIB = 1 << 20
SEGMENTS, BATCHES = 2, 60
"""Batches of 10 to 80 KB, so that a segment has three chunks of 1 MiB, and some batches lie across two."""


@dataclass
class Host:
    """A tier alone, read through a cache of chunks; ``plain`` is read without one."""

    partition: TopicIdPartition
    session: Session
    cache: ChunkCache
    chunk_clock: ManualClock
    host: EndpointHost
    plain: EndpointHost

    @property
    def log(self) -> EndpointLog:
        return self.host.log(self.partition)

    @property
    def end_offset(self) -> int:
        return self.session.finished(self.partition)[-1][1] + 1

    @property
    def chunks(self) -> list[Path]:
        return sorted(self.cache._files.directory.glob("*.chunk"))

    async def warmed(self) -> None:
        """Read everything into the cache."""
        offset = 0
        while offset < self.end_offset:
            offset = await self.copied(self.log, offset)
        await eventually(lambda: not self.cache._unwritten.tasks, what="the chunks on disk")

    async def copied(self, log: EndpointLog, offset: int) -> int:
        result = await self.host.fetches.read(log._task, offset, max_bytes=MIB, isolation=UNCOMMITTED, max_wait_s=20.0)
        if result.throttled_ms:
            self.host.clock.advance(60)
        return result.next_offset


def is_placed(found: LogRead) -> bool:
    return bool(found.records) and all(isinstance(each, FileSlice) for each in found.records)


def content(found: LogRead) -> bytes:
    """Return all bytes of a read, those of slices from the open files."""
    return b"".join(
        each if isinstance(each, bytes) else os.pread(_descriptor(each), each.size_bytes, each.position)
        for each in found.records
    )


def _behind(found: LogRead) -> int:
    return list(iter_batches(content(found), name="answer"))[-1].last_offset + 1


def _descriptor(piece: FileSlice) -> int:
    assert piece.opened is not None
    return piece.opened.descriptor


@contextlib.asynccontextmanager
async def opened(
    folder: Path, *, transform: str = "plain", capacity_bytes: int = 64 * MIB, fetch: FetchSettings | None = None
) -> AsyncIterator[Host]:
    log_dir = LogDirWriter(folder / "kafka")
    writer = log_dir.add_partition("orders")
    for number in range(SEGMENTS):
        for at in range(BATCHES):
            count = 1 + (at * 7 + number) % 8
            writer.append([bytes([at]) * 10_000] * count)
        writer.roll()
    writer.append([b"active"])
    log_dir.write_checkpoints()
    stores = Tier(folder, [log_dir.path])

    def storage(cache: ChunkCache | None = None) -> SegmentStorage:
        return SegmentStorage(
            stores.store,
            cluster_id=CLUSTER_ID,
            broker_id=BROKER_ID,
            chunk_size=MIB,
            cache=cache,
            transform=transform_named(transform),
        )

    session = stores.session(storage=lambda _: storage())
    assert [outcome.error for outcome in (await session.copy_once()).values()] == [None]
    for base, _ in session.finished(partition := partition_of(writer.path)):
        delete_segment(writer.path, base)
    await session.manager._log_dirs.scan(writer.path)
    clock = ManualClock()
    async with (
        open_chunks(stores.store, folder / "chunks", capacity_bytes=capacity_bytes, clock=clock) as cache,
        endpoint_host(session, storage=(cached := storage(cache)), cached_logs=cached, fetch=fetch) as host,
        endpoint_host(session, storage=storage()) as plain,
    ):
        yield Host(partition, session, cache, clock, host, plain)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Host]:
    async with opened(tmp_path) as world:
        await world.warmed()
        yield world


@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_bytes_from_files_equal_the_bytes_of_a_copy(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    async def check() -> None:
        async with opened(tmp_path_factory.mktemp("host")) as world:
            await world.warmed()
            plain = world.plain.log(world.partition)
            for _ in range(40):
                ask = partial(
                    read,
                    offset=data.draw(st.integers(0, world.end_offset - 1)),
                    max_bytes=data.draw(st.integers(0, 3 * MIB)),
                    isolation=data.draw(st.sampled_from([COMMITTED, UNCOMMITTED])),
                    at_least_one=data.draw(st.booleans()),
                )
                found, expected = await ask(world.log), await ask(plain)
                assert content(found) == content(expected)
                assert replace(found, records=(), has_more=False) == replace(expected, records=(), has_more=False)
                assert bool(found.records) == bool(expected.records)
                assert not found.records or is_placed(found)
            assert world.cache.statistics().misses == len(world.chunks)

    asyncio.run(check())


async def test_batch_that_lies_across_two_chunks_is_sent_from_both(world: Host) -> None:
    log, offset, across = world.log, 0, 0
    while offset < world.end_offset:
        found = await read(log, offset, max_bytes=1)
        assert is_placed(found)
        across += len(found.records) == 2
        result = await read(world.plain.log(world.partition), offset, max_bytes=1)
        assert content(found) == content(result)
        offset = _behind(found)
    assert across == 4, "two segments of three chunks"


async def test_consumer_that_reads_on_stays_with_the_read_that_has_begun(tmp_path: Path) -> None:
    async with opened(tmp_path) as world:
        await world.warmed()
        log = world.log
        found = await read(log, await world.copied(log, 0))
        assert [type(each) for each in found.records] == [bytes]
        assert is_placed(await read(world.log, 0))


async def test_metrics_and_quota_count_what_is_sent_from_files(world: Host) -> None:
    before = world.cache.statistics()
    counted = world.host.session.recorder.fetched_bytes
    found = await read(world.log, 0)
    after = world.cache.statistics()
    assert is_placed(found)
    assert after.hit_bytes - before.hit_bytes == found.size_bytes
    assert world.host.session.recorder.fetched_bytes - counted == found.size_bytes


async def test_quota_holds_reads_from_files_back(tmp_path: Path) -> None:
    async with opened(tmp_path, fetch=FetchSettings(max_bytes_per_second=MIB)) as world:
        await world.warmed()
        world.host.clock.advance(1000)
        throttled = [(await read(world.log, 0)).throttled_ms for _ in range(30)]
        assert throttled[0] == 0
        assert throttled[-1] > 0


async def test_rot_behind_a_check_is_healed_within_the_bound(world: Host) -> None:
    expected = await read(world.plain.log(world.partition), 0)
    assert content(await read(world.log, 0)) == content(expected)
    for chunk in world.chunks:
        with chunk.open("r+b") as file:
            file.seek(1000)
            file.write(b"rot")
    assert content(await read(world.log, 0)) != content(expected), "the files are what is sent"
    world.chunk_clock.advance(CHECKED_S + 1)
    assert content(await read(world.log, 0)) == content(expected)
    assert world.cache.statistics().damaged >= 1


async def test_chunk_that_was_cut_short_is_dropped_once_an_answer_met_it(world: Host) -> None:
    expected = await read(world.plain.log(world.partition), 0)
    (piece, *_) = (await read(world.log, 0)).records
    assert isinstance(piece, FileSlice)
    assert piece.opened is not None
    os.truncate(piece.path, 100)
    piece.opened.is_doubted = True  # as ``FileSlices`` does when it sends too few bytes
    assert content(await read(world.log, 0)) == content(expected)


async def test_evicted_chunk_is_still_sent_to_the_client_that_has_its_place(world: Host) -> None:
    expected = await read(world.plain.log(world.partition), 0)
    found = await read(world.log, 0)
    for chunk in world.chunks:
        chunk.unlink()
    assert content(found) == content(expected)
    world.chunk_clock.advance(CHECKED_S + 1)
    assert content(await read(world.log, 0)) == content(expected), "fetched anew"


async def test_files_of_the_cache_are_closed_with_it(world: Host) -> None:
    await read(world.log, 0)
    assert world.cache._checked.open > 0
    await world.cache.close()
    await eventually(lambda: world.cache._checked.open == 0, what="the last thread lets its file go")


@pytest.mark.parametrize("name", ["zstd", "aes"])
async def test_transformed_segment_is_copied(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path, transform=name) as world:
        await world.warmed()
        expected = await read(world.plain.log(world.partition), 0)
        found = await read(world.log, 0)
        assert [type(each) for each in found.records] == [bytes]
        assert content(found) == content(expected)
        assert world.cache._checked.open == 0


async def test_read_falls_back_to_a_copy_when_the_disk_does_not_answer_in_time(
    world: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def hang(self: ChunkCache, name: str, size_bytes: int, crc32c: int) -> None:
        asked.set()
        await go_on.wait()

    monkeypatch.setattr(ChunkCache, "_check", hang)
    found = await world.log.read(0, max_bytes=MIB, isolation=UNCOMMITTED, at_least_one=True, max_wait_s=0.001)
    assert asked.is_set()
    assert found.is_pending or [type(each) for each in found.records] == [bytes]
    go_on.set()


async def test_next_chunk_is_checked_before_its_bytes_are_wanted(world: Host) -> None:
    """Reads of a quarter of a MiB: the third one of a chunk has the next chunk checked."""
    log, offset = world.log, 0
    for reads in (1, 1, 2):
        found = await read(log, offset, max_bytes=MIB // 4)
        await eventually(lambda: not world.cache._checked._running, what="the checks")
        assert world.cache._checked.open == reads
        offset = _behind(found)


async def test_chunks_that_are_evicted_during_a_send_arrive_whole(world: Host) -> None:
    expected = content(await read(world.plain.log(world.partition), 0, max_bytes=3 * MIB))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ThreadPoolExecutor(1) as executor, theirs:
        channel = PlainChannel(ours, FileSlices(executor, clock=world.host.clock))
        sent = (await read(world.log, 0, max_bytes=3 * MIB)).records
        assert len(sent) == 3
        sending = asyncio.create_task(channel.send(sent, lambda _: None))
        del sent
        reader, writer = await asyncio.open_connection(sock=theirs)
        received = await reader.readexactly(1000)
        await world.cache._remove(list(world.cache._index))
        assert world.chunks == []
        async with asyncio.timeout(60):
            received += await reader.readexactly(len(expected) - 1000)
            await sending
        assert received == expected
        del sending
        await eventually(lambda: world.cache._checked.open == 0, what="the files of the answer")
        writer.close()
        channel.close()
