"""Consumers of the endpoint while crashes cut a log back and the broker gets its records back, seen or unseen."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.app.endpoint.consuming import offsets
from tests.app.endpoint.hosts import endpoint_host
from tests.fakes.log_dirs import LogDirWriter, PartitionWriter
from tests.tiering.setups import Tier, partition_of

END = 17
STEP = st.tuples(st.sampled_from(["cut", "grow"]), st.integers(0, END), st.booleans())


def append(writer: PartitionWriter, end_offset: int) -> None:
    """Append up to ``end_offset``; each fourth offset begins a segment."""
    while (at := writer.end_offset) < end_offset:
        if at and at % 4 == 0 and writer.active_segment.stat().st_size:
            writer.roll()
        writer.append([b"%d" % at])


@settings(max_examples=40, deadline=None)
@given(copied_to=st.sampled_from([4, 8, 12, 16]), steps=st.lists(STEP, min_size=1, max_size=6))
def test_consumer_misses_and_repeats_no_record_while_a_log_is_cut_back_and_comes_back(
    copied_to: int, steps: list[tuple[str, int, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    asyncio.run(_play(tmp_path_factory.mktemp("cut"), copied_to, steps))


async def _play(folder: Path, copied_to: int, steps: list[tuple[str, int, bool]]) -> None:
    log_dir = LogDirWriter(folder / "kafka")
    writer = log_dir.add_partition("orders")
    append(writer, copied_to + 1)
    log_dir.write_checkpoints()
    session = Tier(folder, [log_dir.path]).session()
    assert [outcome.error for outcome in (await session.copy_once()).values()] == [None]
    append(writer, END)
    log_dir.write_checkpoints()
    await session.manager._log_dirs.scan(writer.path)
    async with endpoint_host(session) as host:
        log, position = host.log(partition_of(writer.path)), 0
        for kind, end_offset, is_seen in steps:
            if kind == "cut":
                writer.cut_back(min(end_offset, writer.end_offset))
            else:
                append(writer, end_offset)
            if is_seen:
                await session.manager._log_dirs.scan(writer.path)
            found = await offsets(log, start=position)
            assert found == list(range(position, max(writer.end_offset, copied_to, position)))
            position += len(found)
            bounds = await log.bounds()
            assert bounds.high_watermark == END, "the position of a consumer stays"
            if position < END:
                assert not bounds.is_end_known
        append(writer, END)
        await session.manager._log_dirs.scan(writer.path)
        assert await offsets(log, start=position) == list(range(position, END))
        assert (await log.bounds()).is_end_known
