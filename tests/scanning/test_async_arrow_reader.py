"""``tierd.async_reader``: the same reads in the caller's event loop."""

import asyncio
from contextlib import aclosing

import pyarrow as pa
import pytest

import tierd
from tests.pipeline.source.small_tier import SmallTier
from tests.scanning.rows import offsets_of
from tierd.errors import ScanRequestError, UnknownPartitionError
from tierd.scanning.arrow_reader import ScanProgress

SMALL_BATCHES = 1 << 10


async def test_async_scan_equals_the_scan_of_a_thread(small: SmallTier) -> None:
    seen: list[ScanProgress] = []
    with tierd.reader(small.installation.config_file) as threaded:
        expected = threaded.scan("orders").to_table()
    async with tierd.async_reader(small.installation.config_file) as tier:
        assert [topic.name for topic in await tier.topics()] == ["orders"]
        scan = await tier.scan("orders", batch_bytes=SMALL_BATCHES, on_progress=seen.append)
        batches = [batch async for batch in scan]
        assert pa.Table.from_batches(batches).combine_chunks() == expected.combine_chunks()
        assert (await scan.to_table()).combine_chunks() == expected.combine_chunks()
        assert (await scan.select("offset").to_table()).column_names == ["offset"]
        assert scan.schema == expected.schema
    assert seen[-1].records == 67
    assert len(asyncio.all_tasks()) == 1


async def test_two_async_scans_at_once_do_not_disturb_each_other(small: SmallTier) -> None:
    async with tierd.async_reader(small.installation.config_file) as tier:
        scan = await tier.scan("orders", batch_bytes=SMALL_BATCHES)
        async with asyncio.TaskGroup() as group:
            reads = [group.create_task(scan.to_table()) for _ in range(3)]
        assert all(offsets_of(read.result()) == offsets_of(reads[0].result()) for read in reads)


async def test_async_scan_that_is_left_early_ends_with_the_loop_or_with_the_reader(small: SmallTier) -> None:
    async with tierd.async_reader(small.installation.config_file) as tier:
        scan = await tier.scan("orders", batch_bytes=SMALL_BATCHES)
        async with aclosing(aiter(scan)) as batches:
            await anext(batches)
            assert len(asyncio.all_tasks()) > 1
        assert len(asyncio.all_tasks()) == 1
        left = aiter(scan)
        await anext(left)
    assert len(asyncio.all_tasks()) == 1
    with pytest.raises(StopAsyncIteration):
        await anext(left)


async def test_async_errors_have_their_remedy_in_the_traceback(small: SmallTier) -> None:
    async with tierd.async_reader(small.installation.config_file) as tier:
        with pytest.raises(UnknownPartitionError) as unknown:
            await tier.scan("payments")
        with pytest.raises(ScanRequestError) as refused:
            (await tier.scan("orders")).select("ofset")
    assert unknown.value.__notes__ == [unknown.value.remedy]
    assert refused.value.__notes__ == [refused.value.remedy]


async def test_scan_whose_reader_was_closed_says_so(small: SmallTier) -> None:
    async with tierd.async_reader(small.installation.config_file) as tier:
        scan = await tier.scan("orders")
    for call in (scan.to_table(), tier.topics(), tier.scan("orders")):
        with pytest.raises(ScanRequestError, match="the reader of the tier was closed"):
            await call
