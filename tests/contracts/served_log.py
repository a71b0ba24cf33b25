"""Promises of every ``ServedLog``. Provide a ``served`` fixture, a log that holds ``SAMPLE``.

The batches of the sample may lie anywhere: in local segments, in the tier, in both.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pytest

from tests.fakes.served_log import FakeServedLog
from tierd.errors import OffsetOutOfRangeError
from tierd.log import AbortedTransaction, Compression, RecordBatch, iter_batches
from tierd.model import EpochEndOffset, IsolationLevel, Lineage
from tierd.serve.kafka.served.served_log import FileSlice, LogRead, ServedLog
from tierd.tiering import OffsetSpec

COMMITTED: Final = IsolationLevel.READ_COMMITTED
UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED
_WAIT_S: Final = 10.0
_EVERYTHING: Final = 1 << 20


@dataclass(frozen=True)
class SampleLog:
    """Content of a log.

    Attributes:
        batches: in order, with their bytes.
        log_start_offset: inside the first batch, as DeleteRecords leaves it.
        end_offset: exclusive; the high watermark, too.
        last_stable_offset: first offset of the transaction that is open.
        lineage: of the whole log.
        aborted: every aborted transaction.
        next_batch: the batch that follows, which is not in the log yet.
    """

    batches: tuple[RecordBatch, ...]
    log_start_offset: int
    end_offset: int
    last_stable_offset: int
    lineage: Lineage
    aborted: tuple[AbortedTransaction, ...]
    next_batch: bytes

    @property
    def content(self) -> bytes:
        """Return the bytes of all batches."""
        return b"".join(bytes(each.data) for each in self.batches)

    def content_from(self, offset: int, end: int) -> bytes:
        """Return the bytes of the batches from the one that holds ``offset`` up to ``end``, exclusive."""
        return b"".join(bytes(b.data) for b in self.batches if b.last_offset >= offset and b.last_offset < end)


def _values(count: int) -> Sequence[bytes]:
    return [b"value %d" % at for at in range(count)]


def _sample() -> SampleLog:
    log = FakeServedLog()
    log.append(_values(5), timestamp_ms=1000)  # 0 to 4
    log.append(_values(3), timestamp_ms=1010, transaction_of=7)  # 5 to 7
    log.append(_values(2), timestamp_ms=1020)  # 8 and 9
    log.end_transaction(7, commit=False, timestamp_ms=1020)  # 10
    log.append(_values(3), timestamp_ms=1030, epoch=2, compression=Compression.GZIP)  # 11 to 13
    log.append(_values(2), timestamp_ms=1040, epoch=2, transaction_of=8)  # 14 and 15
    log.end_transaction(8, commit=True, epoch=2, timestamp_ms=1040)  # 16
    log.append(_values(3), timestamp_ms=1050, epoch=2, transaction_of=9)  # 17 to 19
    log.append(_values(2), timestamp_ms=1060, epoch=2)  # 20 and 21
    batches, lineage = tuple(log.batches), log.lineage
    next_batch = log.append(_values(2), timestamp_ms=1070, epoch=2)
    return SampleLog(
        batches=batches,
        log_start_offset=2,
        end_offset=22,
        last_stable_offset=17,
        lineage=lineage,
        aborted=(AbortedTransaction(7, 5, 10, 11),),
        next_batch=bytes(next_batch.data),
    )


SAMPLE: Final = _sample()


@dataclass(frozen=True)
class ServedSample:
    """A log that holds ``SAMPLE``.

    Attributes:
        log: the implementation under test.
        grow: appends ``next_batch`` as a broker would, and moves the high watermark behind it.
    """

    log: ServedLog
    grow: Callable[[], Awaitable[None]]


def content_of(read: LogRead) -> bytes:
    """Return the whole batches of a read; its slices are read from their files."""
    content = b"".join(each if isinstance(each, bytes) else _slice_content(each) for each in read.records)
    return b"".join(bytes(each.data) for each in iter_batches(content, name="answer"))


def _slice_content(piece: FileSlice) -> bytes:
    with piece.path.open("rb") as file:
        file.seek(piece.position)
        return file.read(piece.size_bytes)


class ServedLogContract:
    """Contract of a served log whose end is known."""

    async def test_bounds_are_those_of_the_log(self, served: ServedSample) -> None:
        bounds = await served.log.bounds()
        assert bounds.log_start_offset == SAMPLE.log_start_offset
        assert bounds.high_watermark == SAMPLE.end_offset
        assert bounds.last_stable_offset == SAMPLE.last_stable_offset
        assert bounds.leader_epoch == 2
        assert bounds.is_end_known

    @pytest.mark.parametrize("max_bytes", [1, 200, _EVERYTHING])
    @pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
    async def test_consecutive_reads_return_every_batch_once(
        self, served: ServedSample, max_bytes: int, isolation: IsolationLevel
    ) -> None:
        offset, content = SAMPLE.log_start_offset, b""
        end = SAMPLE.last_stable_offset if isolation is COMMITTED else SAMPLE.end_offset
        while offset < end:
            read = await self._read(served, offset, max_bytes=max_bytes, isolation=isolation)
            piece = content_of(read)
            assert piece, offset
            content += piece
            offset = list(iter_batches(piece, name="answer"))[-1].last_offset + 1
            assert not read.has_more or offset < end
        assert offset == end
        assert content == SAMPLE.content_from(SAMPLE.log_start_offset, end)

    @pytest.mark.parametrize("offset", range(2, 22))
    async def test_read_begins_with_the_batch_that_holds_the_offset(self, served: ServedSample, offset: int) -> None:
        read = await self._read(served, offset)
        assert SAMPLE.content_from(offset, SAMPLE.end_offset).startswith(content_of(read))
        assert content_of(read)

    async def test_records_from_the_local_start_on_are_slices_of_files(self, served: ServedSample) -> None:
        local_start = (await served.log.bounds()).local_start_offset
        if local_start is not None and local_start < SAMPLE.end_offset:
            read = await self._read(served, max(local_start, SAMPLE.log_start_offset))
            assert all(isinstance(each, FileSlice) for each in read.records)

    async def test_read_at_the_end_returns_no_record(self, served: ServedSample) -> None:
        for offset, isolation in ((SAMPLE.end_offset, UNCOMMITTED), (SAMPLE.last_stable_offset, COMMITTED)):
            read = await self._read(served, offset, isolation=isolation)
            assert (read.records, read.has_more) == ((), False)

    async def test_committed_read_between_stable_offset_and_high_watermark_returns_no_record(
        self, served: ServedSample
    ) -> None:
        read = await self._read(served, SAMPLE.last_stable_offset + 2, isolation=COMMITTED)
        assert read.records == ()
        assert read.bounds.high_watermark == SAMPLE.end_offset

    @pytest.mark.parametrize("offset", [0, 1, 23, 1000])
    @pytest.mark.parametrize("isolation", [COMMITTED, UNCOMMITTED])
    async def test_read_outside_the_log_is_out_of_range(
        self, served: ServedSample, offset: int, isolation: IsolationLevel
    ) -> None:
        with pytest.raises(OffsetOutOfRangeError):
            await self._read(served, offset, isolation=isolation)

    async def test_read_stays_within_its_limit_except_for_the_first_batch(self, served: ServedSample) -> None:
        first, second = (each.size_bytes for each in SAMPLE.batches[:2])
        both = await self._read(served, 2, max_bytes=first + second)
        assert 0 < both.size_bytes <= first + second
        assert len(content_of(await self._read(served, 2, max_bytes=1))) >= first
        nothing = await self._read(served, 2, max_bytes=first - 1, at_least_one=False)
        assert content_of(nothing) == b""

    @pytest.mark.parametrize("offset", [2, 5, 9, 10])
    async def test_committed_read_names_the_aborted_transactions_that_it_touches(
        self, served: ServedSample, offset: int
    ) -> None:
        read = await self._read(served, offset, isolation=COMMITTED)
        assert [(each.producer_id, each.first_offset) for each in read.aborted] == [(7, 5)]

    async def test_committed_read_behind_the_marker_names_no_aborted_transaction(self, served: ServedSample) -> None:
        assert (await self._read(served, 11, isolation=COMMITTED)).aborted == ()

    async def test_uncommitted_read_names_no_aborted_transaction(self, served: ServedSample) -> None:
        assert (await self._read(served, 5)).aborted == ()

    @pytest.mark.parametrize(
        ("timestamp_ms", "isolation", "expected"),
        [
            (0, UNCOMMITTED, (1000, 2)),
            (1000, UNCOMMITTED, (1000, 2)),
            (1001, UNCOMMITTED, (1010, 5)),
            (1025, UNCOMMITTED, (1030, 11)),
            (1050, UNCOMMITTED, (1050, 17)),
            (1060, UNCOMMITTED, (1060, 20)),
            (1040, COMMITTED, (1040, 14)),
        ],
    )
    async def test_timestamp_is_answered_with_the_first_record_that_is_no_older(
        self, served: ServedSample, timestamp_ms: int, isolation: IsolationLevel, expected: tuple[int, int]
    ) -> None:
        found = await served.log.list_offset(timestamp_ms, isolation=isolation)
        assert found is not None
        assert (found.timestamp_ms, found.offset) == expected
        assert found.leader_epoch == SAMPLE.lineage.epoch_for(found.offset)

    async def test_timestamp_behind_the_readable_records_is_answered_with_nothing(self, served: ServedSample) -> None:
        assert await served.log.list_offset(NEVER_MS, isolation=UNCOMMITTED) is None
        assert await served.log.list_offset(NEVER_MS, isolation=COMMITTED) is None

    async def test_named_offsets_are_the_bounds_of_the_log(self, served: ServedSample) -> None:
        earliest = await served.log.list_offset(OffsetSpec.EARLIEST, isolation=UNCOMMITTED)
        latest = await served.log.list_offset(OffsetSpec.LATEST, isolation=UNCOMMITTED)
        stable = await served.log.list_offset(OffsetSpec.LATEST, isolation=COMMITTED)
        assert earliest is not None
        assert latest is not None
        assert stable is not None
        assert (earliest.offset, earliest.leader_epoch) == (SAMPLE.log_start_offset, 0)
        assert (latest.offset, latest.leader_epoch) == (SAMPLE.end_offset, 2)
        assert stable.offset == SAMPLE.last_stable_offset

    async def test_negative_number_without_a_name_is_refused(self, served: ServedSample) -> None:
        with pytest.raises(ValueError, match="-7"):
            await served.log.list_offset(-7, isolation=UNCOMMITTED)

    @pytest.mark.parametrize(("epoch", "end"), [(0, (0, 11)), (1, (0, 11)), (3, (-1, -1)), (-1, (-1, -1))])
    async def test_end_of_an_epoch_is_the_start_of_the_next_one(
        self, served: ServedSample, epoch: int, end: tuple[int, int]
    ) -> None:
        assert await served.log.epoch_end(epoch) == EpochEndOffset(*end)

    async def test_latest_epoch_ends_no_lower_than_the_high_watermark(self, served: ServedSample) -> None:
        found = await served.log.epoch_end(2)
        assert found.epoch == 2
        assert found.end_offset >= SAMPLE.end_offset

    async def test_listener_hears_of_growth_until_it_leaves(self, served: ServedSample) -> None:
        grown = asyncio.Event()
        leave = served.log.listen(grown.set)
        await served.grow()
        async with asyncio.timeout(_WAIT_S):
            while (await served.log.bounds()).high_watermark == SAMPLE.end_offset:
                await grown.wait()
                grown.clear()
        leave()
        assert content_of(await self._read(served, SAMPLE.end_offset)) == SAMPLE.next_batch

    async def test_cancelled_read_leaves_the_log_readable(self, served: ServedSample) -> None:
        reads = [asyncio.ensure_future(self._read(served, 2)) for _ in range(8)]
        await asyncio.sleep(0)
        for read in reads[::2]:
            read.cancel()
        results = await asyncio.gather(*reads, return_exceptions=True)
        whole = await self._read(served, 2)
        for result in results[1::2]:
            assert isinstance(result, LogRead)
            assert replace(result, bounds=whole.bounds) == whole

    async def _read(
        self,
        served: ServedSample,
        offset: int,
        *,
        max_bytes: int = _EVERYTHING,
        isolation: IsolationLevel = UNCOMMITTED,
        at_least_one: bool = True,
    ) -> LogRead:
        async with asyncio.timeout(_WAIT_S):
            while True:
                read = await served.log.read(
                    offset, max_bytes=max_bytes, isolation=isolation, at_least_one=at_least_one, max_wait_s=_WAIT_S
                )
                if not read.is_pending:
                    return read


NEVER_MS: Final = 1 << 60
