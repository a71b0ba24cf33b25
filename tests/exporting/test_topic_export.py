"""Exports whose log changes between plan and read."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.exporting.exported import all_offsets, staged
from tests.pipeline.source.small_tier import SmallTier
from tierd.app import Deployment, SourceRequest
from tierd.config import load_config
from tierd.errors import OffsetOutOfRangeError, RefusedError
from tierd.exporting import ExportFormat, ExportLimits, ExportRequest
from tierd.exporting.topic_export import ExportedRange, export_job
from tierd.model import IsolationLevel
from tierd.testing import cancel_at


async def exported(
    small: SmallTier,
    into: Path,
    *,
    kind: ExportFormat = ExportFormat.JSONL,
    rows: int | None = None,
    planned: Callable[[], object] = lambda: None,
) -> ExportedRange:
    """Export ``orders-0``, with a call of ``planned`` between plan and read."""
    config_file = small.installation.config_file
    request = ExportRequest(
        into=into,
        patterns=("orders",),
        start=None,
        end=None,
        isolation=IsolationLevel.READ_COMMITTED,
        format=kind,
        limits=ExportLimits(rows=rows, size_bytes=1 << 30),
        folders=(),
        source=SourceRequest(),
    )
    async with export_job(
        Deployment(load_config(config_file, {}), config_file), request, on_progress=lambda _: None
    ) as job:
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


@pytest.mark.parametrize("kind", ExportFormat)
async def test_export_that_is_cancelled_at_any_await_goes_on_without_losing_or_repeating_a_record(
    small: SmallTier, tmp_path: Path, kind: ExportFormat
) -> None:
    suspension, was_cancelled = 0, True
    while was_cancelled:
        suspension += 1
        into = tmp_path / str(suspension)

        async def export(into: Path = into) -> None:
            await exported(small, into, kind=kind, rows=8)

        was_cancelled = await cancel_at(suspension, export)
        await export()
        assert all_offsets(into) == list(range(27)), f"cancelled at suspension {suspension}"
        assert staged(into) == []
        shutil.rmtree(into)
    assert suspension > 10


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


async def test_export_goes_on_in_the_log_of_a_new_leader(small: SmallTier, tmp_path: Path) -> None:
    into = tmp_path / "out"
    await exported(small, into)
    small.partition().begin_epoch(3)
    small.append(5)
    small.log_dir.write_checkpoints()
    second = await exported(small, into)
    assert (second.next_offset, second.records, second.problem) == (32, 5, None)
    assert all_offsets(into) == list(range(32))


@pytest.mark.parametrize("count", [3, 7, 20], ids=["still shorter", "as long as before", "longer than before"])
async def test_log_that_wrote_exported_offsets_again_is_refused(small: SmallTier, tmp_path: Path, count: int) -> None:
    into = tmp_path / "out"
    await exported(small, into)
    small.partition().cut_back(20)
    small.partition().begin_epoch(3)
    small.append(count)
    small.log_dir.write_checkpoints()

    with pytest.raises(RefusedError, match="orders-0: the log was cut back to offset 20 since an earlier run exported"):
        await exported(small, into)

    assert all_offsets(into) == list(range(27))
    await exported(small, tmp_path / "other")
    assert all_offsets(tmp_path / "other") == list(range(20 + count))


async def test_export_whose_journal_is_of_an_earlier_version_goes_on(small: SmallTier, tmp_path: Path) -> None:
    into = tmp_path / "out"
    await exported(small, into)
    journal = into / ".tierd-export" / "journal"
    header, *steps = (json.loads(line) for line in journal.read_text().splitlines())
    for step in steps:
        assert step.pop("epoch") == 0
    journal.write_text("".join(f"{json.dumps(line)}\n" for line in (header, *steps)))
    small.append(5)
    small.log_dir.write_checkpoints()
    assert (await exported(small, into)).next_offset == 32
    assert all_offsets(into) == list(range(32))


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
