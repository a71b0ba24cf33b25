"""RemoteSegmentSource: changelogs in the tier (changelog-restore 3.4)."""

import asyncio
from pathlib import Path

import pytest

from tests.fakes.left_tasks import nothing_left
from tests.fakes.remote_segments import PARTITION
from tests.restore.changelog.sources.changelog_fixtures import (
    COMMITTED,
    NAME,
    UNCOMMITTED,
    MovingLogs,
    RemoteLogs,
    batch_of,
    counted,
    offsets_of,
    read_rest,
    transactional_log,
)
from tierd.errors import RetriableRemoteStorageError, UnknownPartitionError
from tierd.log import build_indexes, empty_batch, iter_batches
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.model import ByteRange, IndexType, RemoteLogSegmentMetadata, TopicPartition
from tierd.restore.changelog.changelog_errors import (
    ChangelogRangeError,
    CorruptSourceError,
    RestoreError,
    SourceUnavailableError,
)
from tierd.restore.changelog.sources.remote_blocks import BlockBudget, BlockLimits
from tierd.testing import cancel_at

SMALL = BlockLimits(block_bytes=100, ahead_blocks=4)
DAY_MS = 86_400_000


def emptied(log: bytes, from_offset: int) -> bytes:
    """Return ``log`` with the batches from ``from_offset`` on emptied, as compaction leaves the last ones."""
    return b"".join(
        bytes(batch.data) if batch.base_offset < from_offset else empty_batch(batch, base_offset=batch.base_offset)
        for batch in iter_batches(log, name="log")
    )


async def test_records_come_with_all_their_columns() -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 10), start=0, end=10)

    result = await remote.source().read(NAME, 3, max_bytes=1, isolation=UNCOMMITTED)

    assert result.records.offsets == [3, 4]  # the batch holds 0 to 4
    assert result.records.keys == [b"k3", b"k4"]
    assert result.records.values == [b"v3", b"v4"]
    assert result.records.timestamps_ms == [3, 4]
    assert result.records.timestamp_types == ["CreateTime"] * 2
    assert result.records.headers == [(), ()]
    assert result.records.leader_epochs == [0, 0]
    assert (result.next_offset, result.at_end) == (5, False)
    assert result.remote_bytes == result.size_bytes > 0


async def test_bounds_and_identity_are_those_of_the_metadata() -> None:
    remote = RemoteLogs()
    remote.add(counted(10, 20), start=10, end=20, epochs={3: 10})
    source = remote.source(delete_retention_ms=DAY_MS)

    assert await source.list_partitions() == {NAME}
    assert await source.earliest_offset(NAME) == 10
    assert await source.end_offset(NAME, UNCOMMITTED) == 20
    assert await source.end_offset(NAME, COMMITTED) == 20
    identity = await source.identity(NAME)
    assert (identity.topic_id, identity.delete_retention_ms) == (PARTITION.topic_id, DAY_MS)
    assert [(entry.epoch, entry.start_offset) for entry in identity.lineage.entries] == [(3, 10)]


async def test_offsets_outside_the_log_are_out_of_range_and_the_end_is_not() -> None:
    remote = RemoteLogs()
    remote.add(counted(10, 20), start=10, end=20)
    source = remote.source()
    for offset in (9, 21):
        with pytest.raises(ChangelogRangeError) as refused:
            await source.read(NAME, offset, max_bytes=1, isolation=UNCOMMITTED)
        assert (refused.value.earliest_offset, refused.value.end_offset) == (10, 20)
    result = await source.read(NAME, 20, max_bytes=1, isolation=UNCOMMITTED)
    assert (len(result.records), result.next_offset, result.at_end) == (0, 20, True)


async def test_segment_that_is_copied_during_a_restore_is_read() -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 10), start=0, end=10)
    source = remote.source()
    assert await offsets_of(source) == list(range(10))
    remote.add(counted(10, 20), start=10, end=20)
    assert await offsets_of(source, 10) == list(range(10, 20))


@pytest.mark.spec("changelog-restore 47")
async def test_overlapping_segments_of_two_epochs_are_cut_by_the_lineage() -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 100, epoch=1, word="old"), start=0, end=100, epochs=1)
    remote.add(counted(90, 150, epoch=2, word="new"), start=90, end=150, epochs={2: 90})

    found, end = await read_rest(remote.source())

    assert end == 150
    assert [offset for offset, _ in found] == list(range(150))
    assert [value for _, value in found[88:92]] == [b"old88", b"old89", b"new90", b"new91"]


@pytest.mark.spec("changelog-restore 48")
async def test_hole_is_an_error_that_names_it_unless_the_topic_is_compacted() -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 50), start=0, end=50)
    remote.add(counted(80, 100), start=80, end=100)

    source = remote.source()
    assert (await source.read(NAME, 45, max_bytes=1, isolation=UNCOMMITTED)).next_offset == 50
    with pytest.raises(CorruptSourceError, match=r"offsets 50 to 79 are missing"):
        await source.read(NAME, 50, max_bytes=1, isolation=UNCOMMITTED)
    assert await offsets_of(remote.source(delete_retention_ms=DAY_MS)) == [*range(50), *range(80, 100)]


@pytest.mark.spec("changelog-restore 48")
async def test_hole_inside_a_segment_is_an_error_unless_the_topic_is_compacted() -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 10) + counted(20, 30), start=0, end=40)

    with pytest.raises(CorruptSourceError, match=r"offsets 10 to 19 are missing"):
        await offsets_of(remote.source())
    with pytest.raises(CorruptSourceError, match=r"offsets 30 to 39 are missing"):
        await offsets_of(remote.source(), 20)
    found, end = await read_rest(remote.source(delete_retention_ms=DAY_MS))
    assert ([offset for offset, _ in found], end) == ([*range(10), *range(20, 30)], 40)


@pytest.mark.spec("changelog-restore 51")
async def test_aborted_records_are_left_out_though_the_marker_is_segments_later(tmp_path: Path) -> None:
    remote = RemoteLogs()
    remote.add_rolled(transactional_log(tmp_path, "A - B B+ - A! -"))

    found, end = await read_rest(remote.source(), isolation=COMMITTED)

    assert [offset for offset, _ in found] == [1, 2, 4, 6]
    assert end == 7


@pytest.mark.spec("changelog-restore 51")
async def test_committed_read_of_an_aborted_batch_returns_no_record_and_moves_on(tmp_path: Path) -> None:
    remote = RemoteLogs()
    remote.add_rolled(transactional_log(tmp_path, "A - A! -"))

    result = await remote.source().read(NAME, 0, max_bytes=1, isolation=COMMITTED)

    assert (len(result.records), result.next_offset) == (0, 1)
    assert await offsets_of(remote.source()) == [0, 1, 3]


@pytest.mark.spec("changelog-restore 52")
async def test_committed_read_ends_where_a_transaction_is_open_at_the_end_of_the_tier(tmp_path: Path) -> None:
    remote = RemoteLogs()
    remote.add_rolled(transactional_log(tmp_path, "- A - -"))
    source = remote.source()

    assert await source.end_offset(NAME, COMMITTED) == 1
    assert await source.end_offset(NAME, UNCOMMITTED) == 4
    assert await offsets_of(source, isolation=COMMITTED) == [0]
    result = await source.read(NAME, 1, max_bytes=1, isolation=COMMITTED)
    assert (len(result.records), result.next_offset, result.at_end) == (0, 1, True)


@pytest.mark.spec("changelog-restore 53")
@pytest.mark.parametrize("block_bytes", [1, 7, 61, 100, 1 << 20])
async def test_batch_that_lies_across_blocks_is_read_once(block_bytes: int) -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 20), start=0, end=20)
    remote.add(counted(20, 40), start=20, end=40)
    source = remote.source(limits=BlockLimits(block_bytes=block_bytes))
    assert await offsets_of(source) == list(range(40))


@pytest.mark.spec("changelog-restore 53")
async def test_flipped_bit_is_damage_that_names_segment_and_position() -> None:
    remote = RemoteLogs()
    log = counted(0, 20)
    metadata = remote.add(log, start=0, end=20)
    batches = list(iter_batches(log, name="log"))
    remote.damage(metadata, batches[2].position + batches[2].size_bytes - 1)

    with pytest.raises(CorruptSourceError) as refused:
        await read_rest(remote.source())

    assert str(metadata.segment) in str(refused.value)
    assert f"position {batches[2].position}" in str(refused.value)


@pytest.mark.spec("changelog-restore 54")
async def test_vanished_object_costs_one_new_plan_and_is_then_out_of_range() -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 10), start=0, end=10)
    vanished = remote.add(counted(10, 20), start=10, end=20)
    source = remote.source()
    assert await source.end_offset(NAME, UNCOMMITTED) == 20
    remote.vanish(vanished)
    loads = remote.loads

    with pytest.raises(ChangelogRangeError) as refused:
        await source.read(NAME, 10, max_bytes=1, isolation=UNCOMMITTED)

    assert refused.value.offset == 10
    assert remote.loads == loads + 1
    remote.expire(vanished)
    remote.add(counted(10, 20), start=10, end=20)
    assert await offsets_of(source, 10) == list(range(10, 20))


def moving(path: Path, part: IndexType | None, moves: int) -> MovingLogs:
    """Return a tier with an aborted transaction in offsets 0 to 6, and a segment of offsets 7 to 16 behind it."""
    remote = MovingLogs(part, moves)
    remote.add_rolled(transactional_log(path, "A - B B+ - A! -"))
    remote.add(counted(7, 17), start=7, end=17)
    return remote


PARTS = pytest.mark.parametrize(
    ("part", "start"),
    [
        pytest.param(None, 0, id="log"),
        pytest.param(IndexType.OFFSET, 9, id="offset index"),
        pytest.param(IndexType.TRANSACTION, 0, id="transaction index"),
        pytest.param(IndexType.PRODUCER_SNAPSHOT, 0, id="producer snapshot"),
    ],
)


@pytest.mark.spec("changelog-restore 54")
@PARTS
@pytest.mark.parametrize("moves", [1, 2, 4])
async def test_segment_that_is_replaced_again_under_a_read_is_looked_up_again(
    tmp_path: Path, part: IndexType | None, start: int, moves: int
) -> None:
    remote = moving(tmp_path, part, moves)

    found = await offsets_of(remote.source(), start, isolation=COMMITTED)

    assert found == [offset for offset in (1, 2, 4, 6, *range(7, 17)) if offset >= start]
    assert remote.moves_left == 0


@pytest.mark.spec("changelog-restore 54")
@PARTS
async def test_segment_that_is_replaced_at_every_look_makes_the_source_unavailable(
    tmp_path: Path, part: IndexType | None, start: int
) -> None:
    remote = moving(tmp_path, part, 1000)
    source = remote.source()

    with pytest.raises(SourceUnavailableError) as refused:
        await offsets_of(source, start, isolation=COMMITTED)

    assert refused.value.retriable
    assert remote.moves_left > 1000 - 100
    remote.moves_left = 0
    assert await offsets_of(source, 9, isolation=COMMITTED) == list(range(9, 17))


async def test_last_segment_that_is_replaced_while_the_bounds_are_looked_up_is_looked_up_again(tmp_path: Path) -> None:
    remote = moving(tmp_path, IndexType.PRODUCER_SNAPSHOT, 3)
    source = remote.source()
    assert await source.end_offset(NAME, COMMITTED) == 17
    assert (await source.identity(NAME)).topic_id == PARTITION.topic_id
    assert remote.moves_left == 0


async def test_segment_without_a_producer_snapshot_is_not_looked_up_again() -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 10), start=0, end=10, artefacts={IndexType.OFFSET: b""})
    with pytest.raises(RestoreError, match="no producer_snapshot") as refused:
        await remote.source().end_offset(NAME, COMMITTED)
    assert not refused.value.retriable
    assert remote.loads == 1


@pytest.mark.spec("changelog-restore 54")
async def test_offset_below_a_log_start_that_was_moved_is_out_of_range_once_its_segment_is_gone() -> None:
    remote = RemoteLogs()
    expired = remote.add(counted(0, 10), start=0, end=10)
    remote.add(counted(10, 20), start=10, end=20)
    source = remote.source()
    assert await source.earliest_offset(NAME) == 0
    remote.move_log_start(13)
    remote.vanish(expired)
    remote.expire(expired)

    with pytest.raises(ChangelogRangeError) as refused:
        await source.read(NAME, 0, max_bytes=1, isolation=UNCOMMITTED)

    assert (refused.value.offset, refused.value.earliest_offset, refused.value.end_offset) == (0, 13, 20)
    assert await offsets_of(source, 13) == list(range(13, 20))


async def test_transaction_index_that_cannot_be_read_makes_the_source_unavailable(tmp_path: Path) -> None:
    class Busy(RemoteLogs):
        is_busy = True

        async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
            if index_type is IndexType.TRANSACTION and self.is_busy:
                raise RetriableRemoteStorageError("busy")
            return await super().fetch_index(metadata, index_type)

    remote = Busy()
    remote.add_rolled(transactional_log(tmp_path, "A - A! -"))
    source = remote.source()
    with pytest.raises(SourceUnavailableError, match="busy"):
        await source.read(NAME, 0, max_bytes=1, isolation=COMMITTED)
    remote.is_busy = False
    assert await offsets_of(source, isolation=COMMITTED) == [1, 3]


@pytest.mark.spec("changelog-restore 54")
async def test_vanished_object_whose_segment_was_replaced_is_read_from_the_new_one() -> None:
    remote = RemoteLogs()
    replaced = remote.add(counted(0, 10), start=0, end=10)
    source = remote.source()
    assert await source.end_offset(NAME, UNCOMMITTED) == 10
    remote.vanish(replaced)
    remote.expire(replaced)
    remote.add(counted(0, 10), start=0, end=10)

    assert await offsets_of(source) == list(range(10))


@pytest.mark.spec("changelog-restore 54")
async def test_offset_below_a_log_start_that_retention_has_moved_is_out_of_range() -> None:
    remote = RemoteLogs()
    expired = remote.add(counted(0, 10), start=0, end=10)
    remote.add(counted(10, 20), start=10, end=20)
    source = remote.source()
    assert await source.earliest_offset(NAME) == 0
    remote.vanish(expired)
    remote.expire(expired)

    with pytest.raises(ChangelogRangeError) as refused:
        await source.read(NAME, 0, max_bytes=1, isolation=UNCOMMITTED)

    assert refused.value.earliest_offset == 10


@pytest.mark.spec("changelog-restore 55")
async def test_batch_that_compaction_has_emptied_at_the_end_leads_to_the_end() -> None:
    remote = RemoteLogs()
    remote.add(emptied(counted(0, 20), 15), start=0, end=20)

    found, end = await read_rest(remote.source(delete_retention_ms=DAY_MS))

    assert ([offset for offset, _ in found], end) == (list(range(15)), 20)


async def test_read_in_the_middle_of_a_segment_begins_at_the_position_of_the_index(tmp_path: Path) -> None:
    remote = RemoteLogs()
    log = counted(0, 1000)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(log)
    index, _ = build_indexes(path, base_offset=0, index_interval_bytes=4096)
    metadata = remote.add(log, start=0, end=1000, artefacts=_with_index(bytes(index)))
    source = remote.source()

    assert (await source.read(NAME, 900, max_bytes=1, isolation=UNCOMMITTED)).records.offsets == list(range(900, 905))
    assert remote.ranges[0][1].start > metadata.size_bytes // 2


@pytest.mark.parametrize(
    "index",
    [
        pytest.param(b"\x00\x00\x00\x05\x00\x00\x00\x07", id="a position inside a batch"),
        pytest.param(b"\x00\x00\x00\x05\x7f\xff\xff\xff", id="a position behind the end"),
        pytest.param(b"123", id="no whole entry"),
        pytest.param(None, id="no index"),
    ],
)
async def test_wrong_offset_index_costs_a_walk_from_the_first_byte(index: bytes | None) -> None:
    remote = RemoteLogs()
    remote.add(counted(0, 20), start=0, end=20, artefacts=None if index is None else _with_index(index))
    assert await offsets_of(remote.source(), 12) == list(range(12, 20))


async def test_index_that_leads_beyond_the_offset_costs_a_walk_from_the_first_byte() -> None:
    remote = RemoteLogs()
    log = counted(0, 20)
    position = list(iter_batches(log, name="log"))[3].position
    index = b"\x00\x00\x00\x05" + position.to_bytes(4, "big")
    remote.add(log, start=0, end=20, artefacts=_with_index(index))
    assert await offsets_of(remote.source(), 7) == list(range(7, 20))


async def test_batches_above_the_stable_end_are_read_once_the_end_moves(tmp_path: Path) -> None:
    path = transactional_log(tmp_path / "one", "- A - -")
    remote = RemoteLogs()
    remote.add_rolled(path)
    source = remote.source()
    assert await offsets_of(source, isolation=COMMITTED) == [0]
    whole = RemoteLogs()
    whole.add_rolled(transactional_log(tmp_path / "two", "- A - - A+ -"))
    remote.view, remote._logs, remote._artefacts = whole.view, whole._logs, whole._artefacts
    assert await offsets_of(source, 1, isolation=COMMITTED) == [1, 2, 3, 5]


async def test_open_transaction_in_one_segment_is_never_read_past(tmp_path: Path) -> None:
    """Read a segment that holds decided and undecided batches, then the rest of it once that is decided."""
    path = transactional_log(tmp_path, "- A - A+", is_rolled=False)
    log = (path / f"{0:020d}.log").read_bytes()
    remote = RemoteLogs()
    remote.add(log, start=0, end=4)
    source = remote.source()
    changelog = (await source._opened(NAME)).changelog
    piece = await changelog.read(0, end_offset=1, max_bytes=1 << 20)
    assert [batch.base_offset for batch in piece.batches] == [0]
    piece = await changelog.read(1, end_offset=4, max_bytes=1 << 20)
    assert [batch.base_offset for batch in piece.batches] == [1, 2, 3]


class SlowLogs(RemoteLogs):
    """Tier that answers only when the test lets it, and counts what is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = asyncio.Event()
        self.asked = asyncio.Event()
        self.under_way = 0
        self.most_under_way = 0
        self.error: Exception | None = None
        self.turns_to_end = 0  # of the loop

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        self.under_way += 1
        self.asked.set()
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.allowed.wait()
            if self.error is not None:
                raise self.error
            return await super().fetch_log_segment(metadata, byte_range)
        finally:
            for _ in range(self.turns_to_end):
                await asyncio.sleep(0)
            self.under_way -= 1


async def test_blocks_are_fetched_ahead_through_the_next_segment_within_the_limit() -> None:
    remote = SlowLogs()
    for start in range(0, 60, 20):
        remote.add(counted(start, start + 20), start=start, end=start + 20)
    source = remote.source(limits=SMALL)

    reading = asyncio.ensure_future(offsets_of(source))
    await remote.asked.wait()
    await asyncio.sleep(0)
    assert remote.most_under_way == SMALL.ahead_blocks
    remote.allowed.set()
    assert await reading == list(range(60))
    assert remote.most_under_way == SMALL.ahead_blocks
    fetched = [(start, each.start) for start, each in remote.ranges]
    assert len(set(fetched)) == len(fetched)  # nothing is fetched twice
    await source.close()


async def test_cancelled_read_leaves_no_fetch_behind_and_can_be_repeated() -> None:
    remote = SlowLogs()
    remote.add(counted(0, 20), start=0, end=20)
    budget = BlockBudget(1 << 20)
    source = remote.source(limits=SMALL, budget=budget)
    await source.end_offset(NAME, UNCOMMITTED)
    reading = asyncio.ensure_future(source.read(NAME, 0, max_bytes=1, isolation=UNCOMMITTED))
    await remote.asked.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.sleep(0)
    assert (remote.under_way, budget.used_bytes) == (0, 0)
    remote.allowed.set()
    assert await offsets_of(source) == list(range(20))


async def test_close_that_is_cancelled_at_any_await_leaves_no_fetch_behind() -> None:
    suspension, was_cancelled = 0, True
    while was_cancelled:
        suspension += 1
        remote = SlowLogs()
        remote.add(counted(0, 20), start=0, end=20)
        source = remote.source(limits=SMALL)
        await source.end_offset(NAME, UNCOMMITTED)
        remote.turns_to_end = 3
        with nothing_left():
            reading = asyncio.ensure_future(source.read(NAME, 0, max_bytes=1, isolation=UNCOMMITTED))
            await remote.asked.wait()
            await asyncio.sleep(0)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert remote.under_way
            was_cancelled = await cancel_at(suspension, source.close)
            assert remote.under_way == 0
    assert suspension > 1


async def test_store_that_is_away_makes_the_source_unavailable_and_can_be_asked_again() -> None:
    remote = SlowLogs()
    remote.allowed.set()
    remote.error = RetriableRemoteStorageError("busy")
    remote.add(counted(0, 20), start=0, end=20)
    source = remote.source(limits=SMALL)
    with pytest.raises(SourceUnavailableError, match="busy") as refused:
        await source.read(NAME, 0, max_bytes=1, isolation=UNCOMMITTED)
    assert refused.value.retriable
    remote.error = None
    assert await offsets_of(source) == list(range(20))


@pytest.mark.spec("changelog-restore 63")
async def test_budget_is_never_exceeded_while_eight_partitions_are_read_at_once() -> None:
    budget = BlockBudget(1000)
    sources = []
    for _ in range(8):
        remote = SlowLogs()
        remote.allowed.set()
        remote.add(counted(0, 100), start=0, end=100)
        sources.append(remote.source(limits=BlockLimits(block_bytes=300), budget=budget))
    sequential = await offsets_of(sources[0])

    found = await asyncio.gather(*(offsets_of(source) for source in sources))

    assert all(each == sequential for each in found)
    assert budget.peak_bytes <= 1000


@pytest.mark.spec("changelog-restore 63")
async def test_partition_that_is_not_read_on_gives_its_blocks_up() -> None:
    budget = BlockBudget(600)
    idle, busy = RemoteLogs(), RemoteLogs()
    for remote in (idle, busy):
        remote.add(counted(0, 100), start=0, end=100)
    limits = BlockLimits(block_bytes=300)
    first, second = idle.source(limits=limits, budget=budget), busy.source(limits=limits, budget=budget)
    result = await first.read(NAME, 0, max_bytes=1, isolation=UNCOMMITTED)
    assert budget.used_bytes == 600

    assert await offsets_of(second) == list(range(100))

    assert await offsets_of(first, result.next_offset) == list(range(result.next_offset, 100))
    assert budget.peak_bytes <= 600


async def test_unknown_changelog_is_an_error_that_names_it() -> None:
    with pytest.raises(UnknownPartitionError, match="other-3"):
        await RemoteLogs().source().earliest_offset(TopicPartition("other", 3))


async def test_committed_offsets_are_refused_where_they_are_not_known() -> None:
    remote = RemoteLogs()
    with pytest.raises(RestoreError, match="group app"):
        await remote.source().committed_offset("app", NAME)


async def test_null_keys_tombstones_and_empty_values_stay_apart() -> None:
    remote = RemoteLogs()
    remote.add(batch_of([(None, b"v"), (b"k", None), (b"k", b""), (b"", b"v")]), start=0, end=4)
    result = await remote.source().read(NAME, 0, max_bytes=1, isolation=UNCOMMITTED)
    assert result.records.keys == [None, b"k", b"k", b""]
    assert result.records.values == [b"v", None, b"", b"v"]


def _with_index(index: bytes) -> dict[IndexType, bytes]:
    return {IndexType.OFFSET: index, IndexType.PRODUCER_SNAPSHOT: encode_producer_snapshot(())}
