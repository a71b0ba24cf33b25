"""The fake log keeps the promises that the endpoint relies on."""

from pathlib import Path

import pytest

from tests.contracts.served_log import SAMPLE, ServedLogContract, ServedSample
from tests.fakes.served_log import FakeServedLog


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
