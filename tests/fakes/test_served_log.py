"""The fake log keeps the promises that the endpoint relies on."""

from pathlib import Path

import pytest

from tests.contracts.served_log import SAMPLE, ServedLogContract, ServedSample, content_of
from tests.fakes.served_log import FakeServedLog
from tierd.model import IsolationLevel


def _sample_log() -> FakeServedLog:
    log = FakeServedLog()
    for batch in SAMPLE.batches:
        log.append_encoded(bytes(batch.data))
    log.log_start_offset = SAMPLE.log_start_offset
    return log


def _served(log: FakeServedLog) -> ServedSample:
    async def grow() -> None:
        log.append_encoded(SAMPLE.next_batch)

    return ServedSample(log, grow)


class TestFakeServedLog(ServedLogContract):
    @pytest.fixture
    def served(self) -> ServedSample:
        return _served(_sample_log())


class TestFakeServedLogInAFile(ServedLogContract):
    @pytest.fixture
    def served(self, tmp_path: Path) -> ServedSample:
        log = _sample_log()
        log.keep_in(tmp_path / "00000000000000000000.log")
        return _served(log)


class TestFakeServedLogOfSeveralSegments(ServedLogContract):
    @pytest.fixture
    def served(self) -> ServedSample:
        log = _sample_log()
        log.segment_starts = {8, 14, 17}
        return _served(log)


async def test_read_ends_with_its_segment_and_says_that_there_is_more() -> None:
    log = _sample_log()
    log.segment_starts = {8}
    read = await log.read(
        2, max_bytes=1 << 20, isolation=IsolationLevel.READ_UNCOMMITTED, at_least_one=True, max_wait_s=1.0
    )
    assert read.has_more
    assert content_of(read) == SAMPLE.content_from(2, 8)
