"""MetricsFile: written at the begin, every five seconds and at the end; a failure later on ends no work."""

import os
from pathlib import Path

import pytest
import structlog

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tierd.errors import RefusedError
from tierd.telemetry import MetricsFile


class Counted:
    """Content that counts how often it was asked for."""

    def __init__(self) -> None:
        self.count = 0

    def render(self) -> bytes:
        self.count += 1
        return b"count %d\n" % self.count


async def test_file_is_replaced_every_five_seconds_and_at_the_end(tmp_path: Path) -> None:
    path, counted, clock = tmp_path / "restore.prom", Counted(), ManualClock(now_ms=0)
    async with MetricsFile(path, counted.render, clock=clock).kept():
        assert path.read_bytes() == b"count 1\n"
        await eventually(lambda: clock.sleeping > 0, what="the writer to sleep")
        clock.advance(5)
        await eventually(lambda: path.read_bytes() == b"count 2\n", what="the second content")
    assert path.read_bytes() == b"count 3\n"
    assert [each.name for each in tmp_path.iterdir()] == ["restore.prom"]


async def test_file_that_cannot_be_written_at_the_begin_is_refused(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "nowhere" / "restore.prom", Counted().render, clock=ManualClock(now_ms=0))
    with pytest.raises(RefusedError, match="cannot be written"):
        async with file.kept():
            pytest.fail("the block does not begin")


async def test_pipe_in_the_place_of_the_temporary_file_is_refused_and_keeps_nothing_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "restore.prom.tmp")
    file = MetricsFile(tmp_path / "restore.prom", Counted().render, clock=ManualClock(now_ms=0))
    with pytest.raises(RefusedError, match="not a regular file"):
        async with file.kept():
            pytest.fail("the block does not begin")


async def test_file_that_cannot_be_written_later_is_a_line_in_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    file = MetricsFile(folder / "restore.prom", Counted().render, clock=ManualClock(now_ms=0))
    with structlog.testing.capture_logs() as logs:
        async with file.kept():
            (folder / "restore.prom").unlink()
            folder.rmdir()
    assert [entry["event"] for entry in logs] == ["metrics_not_written"]
