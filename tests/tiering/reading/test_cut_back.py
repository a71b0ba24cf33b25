"""Reads of a local log that was cut back: its files end below the high watermark in the checkpoint."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS, LogDirWriter, PartitionWriter
from tests.log.logs import NOW_MS, TransactionalProducers
from tests.tiering.setups import Session, delete_segment, partition_of
from tests.tiering.setups import Tier as Stores
from tierd.errors import OffsetOutOfRangeError, SegmentChangedError
from tierd.log import LogConfig, committed_batches, data_batches, iter_batches, opened_partition
from tierd.model import IsolationLevel
from tierd.tiering import Tier, TieredLog
from tierd.tiering.reading.fetch_result import FetchResult

COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
END = 17
LAYOUT = "- A - | - A! - B - B+ | -"  # offsets 0 to 2, 3 to 8, and 9


async def consumed(
    session: Session, path: Path, start: int = 0, *, isolation: IsolationLevel = UNCOMMITTED, max_bytes: int = 1 << 20
) -> list[int]:
    """Return the offsets that a consumer gets until a fetch brings nothing."""
    found: list[int] = []
    offset = start
    while True:
        result = await session.reader(path).read(offset, max_bytes=max_bytes, isolation=isolation)
        batches = list(iter_batches(result.data, name="answer"))
        if not batches:
            assert result.next_offset == offset, "nothing is passed over"
            return found
        wanted = committed_batches(batches, result.aborted) if isolation is COMMITTED else data_batches(batches)
        found += [record.offset for batch in wanted for record in batch.records() if record.offset >= offset]
        assert result.next_offset > offset, "an answer brings its reader forward"
        offset = result.next_offset


class CutLog:
    """Log of 17 offsets, of which each fourth one begins a segment. All segments but the active one may be in the tier.

    A batch has one record, whose value is its offset. The record at offset n is n milliseconds younger than the first.
    """

    def __init__(self, tmp_path: Path, *, end_offset: int = END) -> None:
        self.log_dir = LogDirWriter(tmp_path / "kafka")
        self.writer: PartitionWriter = self.log_dir.add_partition("orders")
        self.append(end_offset)
        self.log_dir.write_checkpoints()
        self.session: Session = Stores(tmp_path, [self.log_dir.path]).session()

    @property
    def path(self) -> Path:
        return self.writer.path

    def append(self, end_offset: int, *, what: bytes = b"") -> None:
        """Append up to ``end_offset``."""
        while (at := self.writer.end_offset) < end_offset:
            if at and at % 4 == 0 and self.writer.active_segment.stat().st_size:
                self.writer.roll()
            self.writer.append([what + b"%d" % at], timestamp_ms=FIRST_TIMESTAMP_MS + at)

    async def copied(self) -> "CutLog":
        assert [o.error for o in (await self.session.copy_once()).values()] == [None]
        return self

    def cut_back(self, end_offset: int) -> None:
        """Lose what was not flushed: the checkpoint keeps the high watermark."""
        self.writer.cut_back(end_offset)

    async def read(self, offset: int) -> FetchResult:
        return await self.session.reader(self.path).read(offset, max_bytes=1 << 20, isolation=UNCOMMITTED)

    async def consumed(self, start: int = 0, *, max_bytes: int = 1 << 20) -> list[int]:
        return await consumed(self.session, self.path, start, max_bytes=max_bytes)


@pytest.fixture
async def cut(tmp_path: Path) -> CutLog:
    """Return the log, whose local files end at offset 6."""
    log = await CutLog(tmp_path).copied()
    log.cut_back(6)
    return log


class TestFetches:
    @pytest.mark.parametrize("offset", [6, 7, 8, 12, 15])
    async def test_offset_behind_the_cut_is_read_from_the_tier(self, cut: CutLog, offset: int) -> None:
        found = await cut.read(offset)
        assert (found.tier, found.base_offset) == (Tier.REMOTE, offset)

    async def test_offset_before_the_cut_is_read_from_the_local_log(self, cut: CutLog) -> None:
        found = await cut.read(5)
        assert (found.tier, found.base_offset, found.next_offset) == (Tier.LOCAL, 5, 6)

    async def test_offset_that_neither_log_has_is_waited_for(self, cut: CutLog) -> None:
        assert await cut.read(16) == FetchResult.nothing(Tier.REMOTE, 16)
        assert (await cut.read(END)).data == b""

    @pytest.mark.parametrize("max_bytes", [1, 1 << 20])
    async def test_consumer_gets_each_record_once_and_the_lost_one_when_it_is_back(
        self, cut: CutLog, max_bytes: int
    ) -> None:
        assert await cut.consumed(max_bytes=max_bytes) == list(range(16))
        assert await cut.consumed(16, max_bytes=max_bytes) == []
        cut.append(END)  # from another replica, and the checkpoint stays as it is
        assert await cut.consumed(16, max_bytes=max_bytes) == [16]

    async def test_log_that_has_lost_everything_is_read_from_the_tier(self, cut: CutLog) -> None:
        cut.cut_back(0)
        assert await cut.consumed() == list(range(16))

    async def test_offsets_of_a_new_leader_are_not_read_from_segments_of_the_epoch_before(self, cut: CutLog) -> None:
        """The new leader's log was shorter; the checkpoint still has the high watermark of the one before."""
        cut.writer.begin_epoch(1)
        cut.append(9, what=b"new ")
        assert await cut.consumed() == list(range(9))
        assert b"new 6" in (await cut.read(6)).data
        assert await cut.read(9) == FetchResult.nothing(Tier.REMOTE, 9)

    async def test_log_that_is_cut_back_under_a_read_is_read_on_in_the_tier(self, tmp_path: Path) -> None:
        log = await CutLog(tmp_path).copied()
        async with aclosing(log.session.reader(log.path).records(None, 16, UNCOMMITTED)) as records:
            seen = [(await anext(records)).offset]
            log.cut_back(6)
            seen += [record.offset async for record in records]
        assert seen == list(range(16))

    async def test_snapshot_that_never_learns_of_the_cut_is_an_error_of_that_moment(self, tmp_path: Path) -> None:
        log = await CutLog(tmp_path).copied()
        before = await log.session.tiered_log(log.path)
        log.cut_back(6)

        async def snapshot() -> TieredLog:
            return replace(await log.session.tiered_log(log.path), cut_at=None, high_watermark=before.high_watermark)

        reader = log.session.reader(log.path)
        reader._sources = replace(reader._sources, snapshot=snapshot)
        with pytest.raises(SegmentChangedError):
            await reader.read(6, max_bytes=1 << 20, isolation=UNCOMMITTED)


class TestWholeReads:
    @pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
    async def test_read_to_the_end_names_the_lost_offset_behind_all_records(
        self, cut: CutLog, isolation: IsolationLevel
    ) -> None:
        async with aclosing(cut.session.reader(cut.path).records(None, None, isolation)) as records:
            assert [(await anext(records)).offset for _ in range(16)] == list(range(16))
            problem = "offset 16 is not in the tier, .* end at 6, below .* 17"
            with pytest.raises(OffsetOutOfRangeError, match=problem) as failed:
                await anext(records)
        assert "start the broker" in failed.value.remedy

    @pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
    async def test_read_that_ends_before_the_lost_offset_is_complete(
        self, cut: CutLog, isolation: IsolationLevel
    ) -> None:
        records = cut.session.reader(cut.path).records(3, 16, isolation)
        assert [record.offset async for record in records] == list(range(3, 16))

    async def test_read_from_the_high_watermark_on_lacks_nothing(self, cut: CutLog) -> None:
        assert [record async for record in cut.session.reader(cut.path).records(END, None, UNCOMMITTED)] == []

    async def test_tier_that_has_everything_makes_the_read_complete(self, cut: CutLog) -> None:
        (cut.log_dir.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 16\n")
        assert [record.offset for record in await cut.session.read_all(cut.path)] == list(range(16))


class TestTransactions:
    """Producer A's transaction began in the part that is left; its marker was lost with the rest of the local log."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "kafka" / "payments-0"

    @pytest.fixture
    async def session(self, tmp_path: Path, path: Path) -> Session:
        log_dir = LogDirWriter(tmp_path / "kafka")
        with opened_partition(path, config=LogConfig(), now_ms=NOW_MS, create_with=UUID(int=249)) as log:
            log.assign_leader_epoch(0, 0)
            producers = TransactionalProducers(log)
            for entry in LAYOUT.split():
                if entry == "|":
                    log.roll(now_ms=NOW_MS)
                else:
                    producers.append(entry)
        (log_dir.path / "replication-offset-checkpoint").write_text("0\n1\npayments 0 10\n")
        session = Stores(tmp_path, [log_dir.path]).session()
        assert [o.error for o in (await session.copy_once()).values()] == [None]
        assert session.finished(partition_of(path)) == [(0, 2), (3, 8)]
        for base in (3, 9):
            delete_segment(path, base)
        return session

    @pytest.mark.parametrize("max_bytes", [1, 1 << 20])
    async def test_records_whose_abort_the_tier_alone_knows_are_not_shown(
        self, session: Session, path: Path, max_bytes: int
    ) -> None:
        assert await consumed(session, path, isolation=COMMITTED, max_bytes=max_bytes) == [0, 2, 3, 5, 6, 7]

    async def test_read_of_committed_records_names_the_lost_offset(self, session: Session, path: Path) -> None:
        with pytest.raises(OffsetOutOfRangeError, match="offset 9 is not in the tier"):
            await session.read_all(path, COMMITTED)

    async def test_reader_of_uncommitted_records_gets_those_of_the_tier(self, session: Session, path: Path) -> None:
        assert await consumed(session, path) == [0, 1, 2, 3, 5, 6, 7]


class TestTimes:
    async def test_record_behind_the_cut_is_found_by_its_time(self, cut: CutLog) -> None:
        reader = cut.session.reader(cut.path)
        for offset in (2, 5, 6, 11, 15):
            found = await reader.list_offset(FIRST_TIMESTAMP_MS + offset)
            assert found is not None
            assert found.offset == offset

    async def test_time_behind_the_known_records_is_no_end_while_records_are_lost(self, cut: CutLog) -> None:
        """None would send a consumer to the end of the log, behind the records that come back."""
        with pytest.raises(OffsetOutOfRangeError, match="offset 16 is not in the tier"):
            await cut.session.reader(cut.path).list_offset(FIRST_TIMESTAMP_MS + 16)
        cut.append(END)
        found = await cut.session.reader(cut.path).list_offset(FIRST_TIMESTAMP_MS + 16)
        assert found is not None
        assert found.offset == 16
        assert await cut.session.reader(cut.path).list_offset(FIRST_TIMESTAMP_MS + 99) is None


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_consumer_misses_repeats_and_invents_no_record_while_a_log_is_cut_back_and_comes_back(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    asyncio.run(_play(tmp_path_factory.mktemp("cut"), data))


async def _play(folder: Path, data: st.DataObject) -> None:
    copied_to = data.draw(st.sampled_from([4, 8, 12, 16]), label="copied to")
    log = await CutLog(folder, end_offset=copied_to + 1).copied()
    log.append(END)
    log.log_dir.write_checkpoints()
    max_bytes = data.draw(st.sampled_from([1, 200, 1 << 20]), label="max_bytes")
    local_end, offset = END, 0
    for _ in range(data.draw(st.integers(1, 6), label="steps")):
        if data.draw(st.booleans(), label="cut"):
            local_end = data.draw(st.integers(0, local_end), label="local end")
            log.cut_back(local_end)
        else:
            local_end = data.draw(st.integers(local_end, END), label="local end")
            log.append(local_end)
        found = await log.consumed(offset, max_bytes=max_bytes)
        assert found == list(range(offset, max(local_end, copied_to, offset)))
        offset += len(found)
    log.append(END)
    assert await log.consumed(offset, max_bytes=max_bytes) == list(range(offset, END))
