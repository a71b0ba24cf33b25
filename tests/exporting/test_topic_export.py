"""Exports whose log changes between plan and read."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.exporting.exported import all_offsets
from tests.pipeline.source.small_tier import SmallTier
from tierd.app import Deployment, SourceRequest
from tierd.config import load_config
from tierd.errors import OffsetOutOfRangeError
from tierd.exporting import ExportFormat, ExportLimits, ExportRequest
from tierd.exporting.topic_export import ExportedRange, export_job
from tierd.model import IsolationLevel


async def exported(small: SmallTier, into: Path, *, planned: Callable[[], object] = lambda: None) -> ExportedRange:
    """Export ``orders-0``, with a call of ``planned`` between plan and read."""
    config_file = small.installation.config_file
    request = ExportRequest(
        into=into,
        patterns=("orders",),
        start=None,
        end=None,
        isolation=IsolationLevel.READ_COMMITTED,
        format=ExportFormat.JSONL,
        limits=ExportLimits(rows=None, size_bytes=1 << 30),
        folders=(),
        source=SourceRequest(),
    )
    async with export_job(Deployment(load_config(config_file, {}), config_file), request, tell=lambda _: None) as job:
        planned()
        (outcome,) = await job.run(on_progress=lambda _: None)
        return outcome


@pytest.fixture
def small(tmp_path: Path) -> SmallTier:
    """Return ``orders-0`` with offsets 0 to 26, of which 20 and more are not in the tier."""
    made = SmallTier(tmp_path)
    made.append(20)
    made.roll()
    made.copy()
    made.append(7)
    made.log_dir.write_checkpoints()
    return made


async def test_export_goes_on_behind_what_it_has_read_where_the_replica_left_the_host(
    small: SmallTier, tmp_path: Path
) -> None:
    replica, elsewhere, into = small.partition().path, tmp_path / "elsewhere", tmp_path / "out"

    first = await exported(small, into, planned=lambda: shutil.move(replica, elsewhere))
    assert (first.next_offset, first.records) == (20, 20)
    with pytest.raises(OffsetOutOfRangeError, match="ends at offset 20, not at 27"):
        raise first.problem or AssertionError("no problem")

    shutil.move(elsewhere, replica)
    second = await exported(small, into)
    assert (second.next_offset, second.records, second.problem) == (27, 7, None)
    assert all_offsets(into) == list(range(27))


async def test_export_waits_for_the_compiled_kernel_before_its_ranges(
    small: SmallTier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_for: list[int] = []

    async def wait(count: int) -> None:
        waited_for.append(count)

    monkeypatch.setattr("tierd.exporting.topic_export.compile_kernels_for", wait)
    outcome = await exported(small, tmp_path / "out")
    assert (outcome.records, waited_for) == (27, [27])


async def test_export_of_a_log_that_was_cut_back_goes_on_when_the_records_are_back(
    small: SmallTier, tmp_path: Path
) -> None:
    into = tmp_path / "out"
    small.partition().cut_back(25)  # the checkpoint still says 27

    first = await exported(small, into)
    assert (first.next_offset, first.records) == (25, 25)
    with pytest.raises(OffsetOutOfRangeError, match="ends at offset 25, not at 27"):
        raise first.problem or AssertionError("no problem")

    small.append(2)
    second = await exported(small, into)
    assert (second.next_offset, second.records, second.problem) == (27, 2, None)
    assert all_offsets(into) == list(range(27))
