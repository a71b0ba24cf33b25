"""Positions of clients that an endpoint must not reset: ends and starts that it knows late, or not yet."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.app.endpoint.hosts import write_high_watermark
from tests.app.endpoint.test_endpoint_log import PARTITION, SampleHost, opened, written
from tests.contracts.served_log import SAMPLE
from tierd.log import REPLICATION_OFFSET_CHECKPOINT

__all__ = ["written"]


@pytest.fixture
async def both(written: Path, tmp_path: Path) -> AsyncIterator[SampleHost]:
    async with opened(written, tmp_path) as sample:
        yield sample


class TestCheckpointOfTheBroker:
    async def test_end_is_not_known_before_the_broker_has_written_a_high_watermark(self, both: SampleHost) -> None:
        (both.path.parent / REPLICATION_OFFSET_CHECKPOINT).write_text("0\n0\n")
        bounds = await both.host.log(PARTITION).bounds()
        assert (bounds.high_watermark, bounds.is_end_known) == (17, False)
        write_high_watermark(both.path, SAMPLE.end_offset)
        bounds = await both.host.log(PARTITION).bounds()
        assert (bounds.high_watermark, bounds.is_end_known) == (SAMPLE.end_offset, True)

    async def test_latest_epoch_ends_with_the_log_when_the_high_watermark_is_an_old_one(self, both: SampleHost) -> None:
        write_high_watermark(both.path, 18)
        log = both.host.log(PARTITION)
        assert (await log.bounds()).high_watermark == 18
        assert (await log.epoch_end(2)).end_offset == SAMPLE.end_offset
        both.append_next()
        assert (await log.epoch_end(2)).end_offset == SAMPLE.end_offset + 2
