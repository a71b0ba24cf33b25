"""Reads of both tiers as one log with compacted segments: gaps, empty segments, and replacement during a read."""

import random
import shutil
import struct
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS, LogDirWriter
from tests.log.logs import NOW_MS, TransactionalProducers
from tests.tiering.compacted import Compaction
from tests.tiering.reading.test_fetch_task import CountingStorage
from tests.tiering.setups import Session, delete_segment, partition_of
from tests.tiering.setups import Tier as Stores
from tierd.errors import OffsetOutOfRangeError, RemoteResourceNotFoundError
from tierd.log import LogConfig, opened_partition
from tierd.model import ByteRange, IndexType, IsolationLevel, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierd.tiering import FetchTask, Tier, TieredLog
from tierd.tiering.reading.kept_readers import KeptReaders
from tierd.tiering.reading.offset_places import OffsetSpec

UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
EACH, SEGMENTS, END = 4, 6, 25
TRANSACTIONS = ("A", "B", "A", "B", "A!", "B+", "-")

Replacement = tuple[int, int, Collection[int]]  # start, end, and the kept offsets
Hook = Callable[[], Awaitable[None]]


class HookedStorage(CountingStorage):
    """Storage that runs a hook once, just before the next fetch of a log or of an index."""

    before_log: Hook | None = None
    before_index: Hook | None = None

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        hook, self.before_log = self.before_log, None
        if hook is not None:
            await hook()
        return await super().fetch_log_segment(metadata, byte_range)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        if index_type is IndexType.TRANSACTION and self.before_index is not None:
            hook, self.before_index = self.before_index, None
            await hook()
        return await super().fetch_index(metadata, index_type)


class Compacted:
    """Six rolled and copied segments of four batches of one record each, and an active one of one record."""

    def __init__(self, tmp_path: Path, *, value_bytes: int = 200) -> None:
        log_dir = LogDirWriter(tmp_path / "kafka")
        writer = log_dir.add_partition("orders")
        for segment in range(SEGMENTS):
            for n in range(EACH):
                offset = segment * EACH + n
                writer.append([b"%d" % offset * value_bytes], timestamp_ms=FIRST_TIMESTAMP_MS + 1000 * offset)
            writer.roll()
        writer.append([b"active"], timestamp_ms=FIRST_TIMESTAMP_MS + 1000 * (END - 1))
        log_dir.write_checkpoints()
        self._begin(tmp_path, writer.path)

    def _begin(self, tmp_path: Path, path: Path) -> None:
        self.path = path
        self.stores = Stores(tmp_path, [path.parent])
        self.storage = HookedStorage(self.stores)
        self.session: Session = self.stores.session(storage=lambda _: self.storage)
        self.partition = partition_of(path)
        self.compaction = Compaction(self.session, self.partition, tmp_path / "compacted")

    async def copied(self, *, local_from: int = SEGMENTS * EACH) -> "Compacted":
        """Copy, and keep on local disk only the records from ``local_from`` on."""
        assert [o.error for o in (await self.session.copy_once()).values()] == [None]
        for base in range(0, local_from, EACH):
            delete_segment(self.path, base)
        return self

    async def replaced(self, *replacements: Replacement, is_grace_over: bool = True) -> "Compacted":
        for start, end, keep in replacements:
            await self.compaction.replace(start, end, keep, is_grace_over=is_grace_over)
        return self

    def reader(self, *, prefetch_bytes: int = 1 << 20, kept: KeptReaders | None = None) -> FetchTask:
        return FetchTask(
            lambda: self.session.tiered_log(self.path),
            remote=self.storage,
            recorder=self.session.recorder,
            prefetch_bytes=prefetch_bytes,
            kept=kept,
        )

    async def offsets(self, start: int | None = None, isolation: IsolationLevel = UNCOMMITTED) -> list[int]:
        return [record.offset async for record in self.reader().records(start, None, isolation)]


LAYOUTS = [
    pytest.param([(0, 23, {0, 9, 23})], id="one segment, few records"),
    pytest.param([(0, 7, {5, 6}), (8, 15, {8}), (16, 23, {16, 17, 18})], id="gaps at the ends"),
    pytest.param([(4, 11, ())], id="an empty one between"),
    pytest.param([(0, 3, ()), (4, 7, ()), (8, 11, ()), (12, 19, {13})], id="several empty ones in a row"),
    pytest.param([(12, 15, {12}), (16, 19, ()), (20, 23, ())], id="the last ones of the tier empty"),
    pytest.param([(0, 3, ()), (4, 7, ()), (8, 11, ()), (12, 15, ()), (16, 19, ()), (20, 23, ())], id="nothing left"),
]


def expected(replacements: Sequence[Replacement], *, local_from: int) -> list[int]:
    gone = {
        offset
        for start, end, keep in replacements
        for offset in range(start, end + 1)
        if offset not in keep and offset < local_from
    }
    return [offset for offset in range(END) if offset not in gone]


@pytest.mark.parametrize("local_from", [24, 16, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_reader_at_any_offset_returns_all_remaining_records_behind_that_offset(
    tmp_path: Path, layout: list[Replacement], local_from: int
) -> None:
    setup = await (await Compacted(tmp_path).copied(local_from=local_from)).replaced(*layout)
    left = expected(layout, local_from=local_from)
    for isolation in (UNCOMMITTED, COMMITTED):
        for start in range(END):
            assert await setup.offsets(start, isolation) == [offset for offset in left if offset >= start]


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
@pytest.mark.parametrize("local_from", [24, 16])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_fetch_inside_a_gap_returns_the_next_batch(
    tmp_path: Path, layout: list[Replacement], local_from: int, isolation: IsolationLevel
) -> None:
    setup = await (await Compacted(tmp_path).copied(local_from=local_from)).replaced(*layout)
    left = expected(layout, local_from=local_from)
    for start in range(END):
        result = await setup.reader().read(start, max_bytes=1, isolation=isolation)
        following = next(offset for offset in left if offset >= start)
        assert (result.base_offset, result.next_offset) == (following, following + 1)
        assert result.tier is (Tier.LOCAL if following >= local_from else Tier.REMOTE)
    assert (await setup.reader().read(END, max_bytes=1, isolation=isolation)).data == b""


@pytest.mark.parametrize("max_bytes", [1, 600, 1 << 20])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_consecutive_fetches_return_every_batch_once(
    tmp_path: Path, layout: list[Replacement], max_bytes: int
) -> None:
    setup = await (await Compacted(tmp_path).copied()).replaced(*layout)
    kept = KeptReaders(capacity=4, clock=FakeClock())
    reader, found, offset = setup.reader(kept=kept), list[int](), 0
    while offset < END:
        result = await reader.read(offset, max_bytes=max_bytes, isolation=COMMITTED)
        found += [struct.unpack_from(">q", result.data)[0]] if max_bytes == 1 else _bases(result.data)
        offset = result.next_offset
    await kept.close()
    assert found == expected(layout, local_from=24)


async def test_read_that_ends_behind_an_emptied_segment_searches_no_further(tmp_path: Path) -> None:
    """Behind the end of the read may lie offsets that were lost before they were copied."""
    setup = await (await Compacted(tmp_path).copied()).replaced((0, 3, ()), (8, 11, ()))
    hole = next(row for row in setup.session.rows(setup.partition) if row.start_offset == 4)
    removed = hole.advance(RemoteLogSegmentState.DELETE_SEGMENT_STARTED, event_timestamp_ms=0, broker_id=1)
    await setup.session.metadata.update(removed)
    shutil.rmtree(setup.path)
    log = TieredLog(setup.partition, setup.session.metadata.view(setup.partition), None, None)

    async def look() -> TieredLog:
        return log

    reader = FetchTask(look, remote=setup.session.storage, recorder=setup.session.recorder, prefetch_bytes=0)
    assert [record.offset async for record in reader.records(0, 4, UNCOMMITTED)] == []
    with pytest.raises(OffsetOutOfRangeError, match="offset 4 is in neither tier"):
        assert [record.offset async for record in reader.records(0, 5, UNCOMMITTED)]


async def test_gap_at_the_end_of_a_segment_needs_no_extra_request(tmp_path: Path) -> None:
    setup = await (await Compacted(tmp_path).copied()).replaced((0, 7, {1, 2}), (8, 15, ()), (16, 23, {20}))
    kept = KeptReaders(capacity=4, clock=FakeClock())
    reader, offset = setup.reader(kept=kept), 0
    setup.storage.ranges.clear()
    setup.storage.indexes.clear()
    while offset < END - 1:
        offset = (await reader.read(offset, max_bytes=1 << 20, isolation=UNCOMMITTED)).next_offset
    await kept.close()
    assert len(setup.storage.ranges) == 2
    assert setup.storage.indexes == []


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
async def test_fetch_behind_the_last_record_continues_at_the_end_of_the_tier(
    tmp_path: Path, isolation: IsolationLevel
) -> None:
    setup = await (await Compacted(tmp_path).copied()).replaced((8, 15, {8}), (16, 19, ()), (20, 23, ()))
    shutil.rmtree(setup.path)  # no local file is left, and so the last record is unknown

    async def without_replica() -> TieredLog:
        return TieredLog(setup.partition, setup.session.metadata.view(setup.partition), None, None)

    reader = FetchTask(without_replica, remote=setup.storage, recorder=setup.session.recorder, prefetch_bytes=1 << 20)
    for start in (9, 12, 16, 23):
        result = await reader.read(start, max_bytes=1, isolation=isolation)
        assert (result.data, result.base_offset, result.next_offset) == (b"", None, 24)
    assert (await reader.read(24, max_bytes=1, isolation=isolation)).next_offset == 24
    assert [record.offset async for record in reader.records(9, None, isolation)] == []


async def test_empty_segment_is_not_requested_from_the_store(tmp_path: Path) -> None:
    setup = await (await Compacted(tmp_path).copied()).replaced((4, 11, ()), (12, 15, ()))
    setup.storage.ranges.clear()
    setup.storage.indexed_segments.clear()
    await setup.offsets()
    for start in range(4, 16):
        await setup.offsets(start)
    assert 4 not in setup.storage.indexed_segments
    assert 12 not in setup.storage.indexed_segments


class TestTimestamps:
    @pytest.mark.parametrize("local_from", [24, 16])
    @pytest.mark.parametrize("layout", LAYOUTS)
    async def test_first_record_since_a_timestamp_is_found_behind_gaps(
        self, tmp_path: Path, layout: list[Replacement], local_from: int
    ) -> None:
        setup = await (await Compacted(tmp_path).copied(local_from=local_from)).replaced(*layout)
        left = expected(layout, local_from=local_from)
        for offset in range(END):
            listed = await setup.reader().list_offset(FIRST_TIMESTAMP_MS + 1000 * offset - 1)
            following = next(each for each in left if each >= offset)
            assert listed is not None
            assert (listed.offset, listed.timestamp_ms) == (following, FIRST_TIMESTAMP_MS + 1000 * following)
        assert await setup.reader().list_offset(FIRST_TIMESTAMP_MS + 1000 * END) is None

    @pytest.mark.parametrize("layout", LAYOUTS)
    async def test_offset_specs_resolve_to_the_bounds_of_both_tiers(
        self, tmp_path: Path, layout: list[Replacement]
    ) -> None:
        setup = await (await Compacted(tmp_path).copied()).replaced(*layout)
        for spec, offset in (
            (OffsetSpec.EARLIEST, 0),
            (OffsetSpec.LATEST, END),
            (OffsetSpec.LATEST_TIERED, 23),
            (OffsetSpec.EARLIEST_LOCAL, 24),
            (OffsetSpec.EARLIEST_PENDING_UPLOAD, 24),
            (OffsetSpec.MAX_TIMESTAMP, 24),
        ):
            listed = await setup.reader().list_offset(spec)
            assert listed is not None
            assert listed.offset == offset

    async def test_search_continues_in_the_replacement_of_a_removed_segment(self, tmp_path: Path) -> None:
        setup = await Compacted(tmp_path).copied()

        async def compact() -> None:
            await setup.replaced((4, 11, {9}))

        setup.storage.before_log = compact
        listed = await setup.reader().list_offset(FIRST_TIMESTAMP_MS + 5000)
        assert listed is not None
        assert listed.offset == 9

    async def test_search_in_a_lost_segment_is_an_error(self, tmp_path: Path) -> None:
        setup = await Compacted(tmp_path).copied()
        for info in await setup.stores.store.list_objects(""):
            await setup.stores.store.delete(info.key)
        with pytest.raises(RemoteResourceNotFoundError):
            await setup.reader().list_offset(FIRST_TIMESTAMP_MS)


class TestReplacementDuringRead:
    """Replacement during a read: the grace is over, and all objects of the replaced segments are deleted."""

    @pytest.mark.parametrize("at", range(24))
    async def test_reader_continues_at_its_next_offset_after_a_replacement(self, tmp_path: Path, at: int) -> None:
        setup = await Compacted(tmp_path, value_bytes=15_000).copied()
        layout: list[Replacement] = [(0, 11, {0, 3, 10}), (12, 15, ()), (16, 23, {17, 23})]
        found: list[int] = []
        async with aclosing(setup.reader(prefetch_bytes=64 << 10).records(None, None, COMMITTED)) as reading:
            async for record in reading:
                found.append(record.offset)
                if record.offset == at:
                    await setup.replaced(*layout)
        assert found == sorted(set(found))
        left = expected(layout, local_from=24)
        assert set(found) >= {*range(at + 1), *(offset for offset in left if offset > at)}
        assert found[-5:][-1] == END - 1

    async def test_reader_continues_after_two_replacements(self, tmp_path: Path) -> None:
        setup = await Compacted(tmp_path, value_bytes=30_000).copied()
        found: list[int] = []
        async with aclosing(setup.reader(prefetch_bytes=64 << 10).records(None, None, UNCOMMITTED)) as reading:
            async for record in reading:
                found.append(record.offset)
                if record.offset == 0:
                    await setup.replaced((0, 7, {0, 5}), (8, 15, {9, 14}), (16, 23, {20}))
                if record.offset == 9:
                    await setup.replaced((0, 23, {14}))
        assert found == sorted(set(found))
        assert {0, 9, 14, 24} <= set(found)
        assert 20 not in found

    @pytest.mark.parametrize("at", [0, 5, 9, 22])
    async def test_fetches_continue_at_the_next_offset_after_a_replacement(self, tmp_path: Path, at: int) -> None:
        setup = await Compacted(tmp_path).copied()
        kept = KeptReaders(capacity=4, clock=FakeClock())
        reader, found, offset = setup.reader(kept=kept), list[int](), 0
        while offset < END:
            result = await reader.read(offset, max_bytes=1, isolation=COMMITTED)
            found += _bases(result.data)
            offset = result.next_offset
            if found[-1] == at:
                await setup.replaced((0, 7, {6}), (8, 23, {8, 9, 21}))
        await kept.close()
        left = expected([(0, 7, {6}), (8, 23, {8, 9, 21})], local_from=24)
        assert found == [*range(at + 1), *(each for each in left if each > at)]

    async def test_read_continues_if_the_segment_behind_a_gap_is_replaced(self, tmp_path: Path) -> None:
        setup = await (await Compacted(tmp_path).copied()).replaced((0, 3, ()), (4, 7, ()))

        async def compact() -> None:
            await setup.replaced((8, 15, {15}))

        setup.storage.before_log = compact
        result = await setup.reader().read(1, max_bytes=1, isolation=UNCOMMITTED)
        assert result.base_offset == 15

    async def test_lost_object_beside_replaced_segments_is_an_error(self, tmp_path: Path) -> None:
        setup = await (await Compacted(tmp_path).copied()).replaced((0, 7, {6}))
        for info in await setup.stores.store.list_objects(""):
            if f"/{8:020d}-" in info.key:
                await setup.stores.store.delete(info.key)
        with pytest.raises(RemoteResourceNotFoundError):
            await setup.offsets()
        assert setup.session.recorder.fetch_failures == 1


@pytest.mark.parametrize("seed", range(12))
async def test_readers_during_random_compactions_see_each_remaining_record_once(tmp_path: Path, seed: int) -> None:
    """A record that a reader misses was compacted away before the reader came to its offset."""
    source = random.Random(seed)
    setup = await Compacted(tmp_path).copied()
    kept = KeptReaders(capacity=4, clock=FakeClock())
    readers = [_Walk(setup.reader(kept=kept), isolation) for isolation in (UNCOMMITTED, COMMITTED)]
    left = set(range(END))
    while any(walk.offset < END for walk in readers):
        if source.random() < 0.3:
            left -= await _compact_at_random(setup, source, left)
        walk = source.choice(readers)
        if walk.offset < END:
            began_at = walk.offset
            new = await walk.step(max_bytes=source.choice([1, 700, 1 << 20]))
            assert sorted(new) == new
            assert set(new) == {offset for offset in left if began_at <= offset < walk.offset}
    await kept.close()


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
async def test_segment_that_is_replaced_between_two_pieces_of_a_read_loses_no_record(
    tmp_path: Path, isolation: IsolationLevel
) -> None:
    """The second piece came from the new segment and was dropped; the next read went on behind it."""
    setup = await Compacted(tmp_path, value_bytes=30_000).copied()
    kept = KeptReaders(capacity=4, clock=FakeClock())
    walk = _Walk(setup.reader(kept=kept, prefetch_bytes=64 << 10), isolation)

    replaced_at: list[int] = []

    async def compact() -> None:
        replaced_at.append(walk.offset)
        await setup.replaced((0, 23, range(24)))

    found = await walk.step(max_bytes=50_000)
    setup.storage.before_log = compact
    while walk.offset < END:
        found += await walk.step(max_bytes=50_000)
    await kept.close()
    assert len(replaced_at) == 1
    assert found == list(range(END))


@pytest.mark.parametrize("isolation", [UNCOMMITTED, COMMITTED])
@pytest.mark.parametrize("seed", range(15))
async def test_random_replacements_in_the_middle_of_reads_lose_no_record(
    tmp_path: Path, seed: int, isolation: IsolationLevel
) -> None:
    source = random.Random(seed)
    setup = await Compacted(tmp_path, value_bytes=source.choice([200, 15_000, 30_000])).copied()
    await setup.replaced((0, source.choice([11, 23]), range(24)))
    kept = KeptReaders(capacity=4, clock=FakeClock())
    prefetch_bytes = source.choice([64 << 10, 256 << 10, 1 << 20])
    walk, found = _Walk(setup.reader(kept=kept, prefetch_bytes=prefetch_bytes), isolation), list[int]()

    async def compact() -> None:
        ranges = setup.session.finished(partition_of(setup.path))
        first = source.randrange(len(ranges))
        last = source.randrange(first, len(ranges))
        await setup.replaced((ranges[first][0], ranges[last][1], range(24)))

    while walk.offset < END:
        if source.random() < 0.4:
            setup.storage.before_log = compact
        found += await walk.step(max_bytes=source.choice([1, 700, 50_000, 70_000, 1 << 20]))
    await kept.close()
    assert found == list(range(END))


class _Walk:
    """Reader that continues at its last offset."""

    def __init__(self, reader: FetchTask, isolation: IsolationLevel) -> None:
        self.reader = reader
        self.isolation = isolation
        self.offset = 0

    async def step(self, *, max_bytes: int) -> list[int]:
        result = await self.reader.read(self.offset, max_bytes=max_bytes, isolation=self.isolation)
        self.offset = result.next_offset
        return _bases(result.data)


async def _compact_at_random(setup: Compacted, source: random.Random, left: set[int]) -> set[int]:
    """Replace some neighbouring segments, drop some of their records, and return the dropped ones."""
    ranges = setup.session.finished(partition_of(setup.path))
    first = source.randrange(len(ranges))
    last = source.randrange(first, min(first + 3, len(ranges)))
    start, end = ranges[first][0], ranges[last][1]
    inside = {offset for offset in left if start <= offset <= end}
    keep = {offset for offset in inside if source.random() < 0.6}
    await setup.replaced((start, end, keep))
    return inside - keep


class TestTransactions:
    """Transactions ``A``, aborted, and ``B``, committed; each entry of ``TRANSACTIONS`` is a segment."""

    async def _setup(self, tmp_path: Path) -> Compacted:
        log_dir = LogDirWriter(tmp_path / "kafka").path
        path = log_dir / "payments-0"
        with opened_partition(path, config=LogConfig(), now_ms=NOW_MS, create_with=UUID(int=248)) as log:
            log.assign_leader_epoch(0, 0)
            TransactionalProducers(log).append_each_rolled(TRANSACTIONS)
        setup = Compacted.__new__(Compacted)
        setup._begin(tmp_path, path)
        assert [o.error for o in (await setup.session.copy_once()).values()] == [None]
        for base in range(7):
            delete_segment(path, base)
        return setup

    async def _abort_index(self, setup: Compacted) -> bytes:
        (row,) = [row for row in setup.session.rows(partition_of(setup.path)) if row.start_offset == 4]
        return await setup.storage.fetch_index(row, IndexType.TRANSACTION)

    @pytest.mark.parametrize("groups", [[(0, 6)], [(0, 1), (2, 3), (4, 6)], [(0, 3), (4, 4)], [(2, 5)]])
    async def test_remaining_aborted_data_stays_hidden_by_the_index_of_its_marker(
        self, tmp_path: Path, groups: list[tuple[int, int]]
    ) -> None:
        setup = await self._setup(tmp_path)
        index = await self._abort_index(setup)
        for start, end in groups:
            has_marker = start <= 4 <= end
            await setup.compaction.replace(
                start, end, lambda _: True, transaction_index=index if has_marker else None, is_grace_over=True
            )
        assert await setup.offsets(isolation=COMMITTED) == [1, 3, 6, 7]
        assert await setup.offsets() == [0, 1, 2, 3, 6, 7]

    @pytest.mark.parametrize("end", [3, 4, 6])
    async def test_committed_records_are_read_with_and_without_markers_of_removed_data(
        self, tmp_path: Path, end: int
    ) -> None:
        setup = await self._setup(tmp_path)
        await setup.compaction.replace(0, end, {1, 3, 5, 6}, is_grace_over=True)
        for isolation in (UNCOMMITTED, COMMITTED):
            assert await setup.offsets(isolation=isolation) == [1, 3, 6, 7]

    async def test_aborted_data_stays_hidden_if_its_index_is_removed_during_a_read(self, tmp_path: Path) -> None:
        setup = await self._setup(tmp_path)

        async def compact() -> None:
            await setup.compaction.replace(0, 6, {1, 3, 6}, is_grace_over=True)

        setup.storage.before_index = compact
        assert await setup.offsets(isolation=COMMITTED) == [1, 3, 6, 7]

    async def test_aborted_data_stays_hidden_if_its_index_is_removed_during_a_fetch(self, tmp_path: Path) -> None:
        setup = await self._setup(tmp_path)

        async def compact() -> None:
            await setup.compaction.replace(0, 6, {1, 3, 6}, is_grace_over=True)

        setup.storage.before_index = compact
        result = await setup.reader().read(0, max_bytes=1, isolation=COMMITTED)
        assert (result.base_offset, result.aborted) == (1, ())

    async def test_fetch_with_a_lost_index_is_an_error(self, tmp_path: Path) -> None:
        setup = await self._setup(tmp_path)
        for info in await setup.stores.store.list_objects(""):
            if f"/{4:020d}-" in info.key:
                await setup.stores.store.delete(info.key)
        with pytest.raises(RemoteResourceNotFoundError):
            await setup.reader().read(0, max_bytes=1, isolation=COMMITTED)


def _bases(data: bytes) -> list[int]:
    """Return the base offsets of the batches in ``data``."""
    found, at = list[int](), 0
    while at < len(data):
        base, size = struct.unpack_from(">qi", data, at)
        found.append(base)
        at += 12 + size
    return found
