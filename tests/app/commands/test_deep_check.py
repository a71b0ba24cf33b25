"""Deep check in several runs: each segment once a round, changed and damaged ones again, whatever ends a run."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, segment
from tests.tiering.auditing.audited import Audited
from tierd.app import DeepCheckRound
from tierd.errors import AlreadyRunningError, RefusedError, StateDirError
from tierd.model import RemoteLogSegmentMetadata

JOB = {"cluster": "c", "prefix": "", "partitions": []}


def rows(count: int) -> list[RemoteLogSegmentMetadata]:
    made = [segment(at * 10, at * 10 + 9, segment_id=UUID(int=at + 1)) for at in range(count)]
    return [replace(each, state=FINISHED) for each in made]


async def run(
    path: Path,
    tier: Sequence[RemoteLogSegmentMetadata],
    *,
    budget: int = 1 << 30,
    damaged: frozenset[int] = frozenset(),
) -> list[int]:
    """Walk a tier with time for ``budget`` downloads; return the numbers of the downloaded segments."""
    clock, downloaded = FakeClock(), list[int]()
    with DeepCheckRound.in_file(path, JOB, clock=clock, duration_s=budget) as check:
        for number, row in enumerate(tier):
            if check.takes(row):
                downloaded.append(number)
                clock.advance(1)
                if number not in damaged:
                    await check.passed([row])
        await check.finish()
    return downloaded


@given(st.integers(1, 12), st.lists(st.integers(0, 5), max_size=8))
def test_runs_together_download_each_segment_once_and_the_next_round_all_of_them(
    count: int, budgets: list[int]
) -> None:
    async def tell() -> None:
        with tempfile.TemporaryDirectory() as folder:
            path, tier = Path(folder, "progress"), rows(count)
            left = list(range(count))
            for budget in budgets:
                downloaded = await run(path, tier, budget=budget)
                assert downloaded == left[:budget]
                left = left[budget:] or list(range(count))  # a round that is complete is followed by another
            assert await run(path, tier) == left

    asyncio.run(tell())


async def test_segment_whose_metadata_has_changed_is_checked_again(tmp_path: Path) -> None:
    tier = rows(3)
    assert await run(tmp_path / "progress", tier, budget=2) == [0, 1]
    tier[1] = replace(tier[1], custom_metadata=b"stored anew")

    assert await run(tmp_path / "progress", tier) == [1, 2]


async def test_rows_that_are_no_finished_segments_are_not_downloaded(tmp_path: Path) -> None:
    with DeepCheckRound.in_file(tmp_path / "progress", JOB, clock=FakeClock()) as check:
        assert not check.takes(None)
        assert not check.takes(replace(rows(1)[0], state=DELETE_STARTED))
        assert (await check.finish()).segments == 0


async def test_killed_run_loses_at_most_the_line_that_it_was_writing(tmp_path: Path) -> None:
    path, tier = tmp_path / "progress", rows(4)
    await run(path, tier, budget=3)
    path.write_bytes(path.read_bytes()[:-9])

    assert await run(path, tier) == [2, 3]


async def test_statistics_say_what_the_round_and_this_run_have_checked(tmp_path: Path) -> None:
    path, tier = tmp_path / "progress", rows(5)
    await run(path, tier, budget=2)
    clock = FakeClock(now_ms=1_800_000_000_000)
    with DeepCheckRound.in_file(path, JOB, clock=clock, duration_s=1) as check:
        assert [check.takes(row) for row in tier[:3]] == [False, False, True]
        await check.passed([tier[2]])
        clock.advance(1)
        assert not check.takes(tier[3])
        seen = await check.finish()

    assert (seen.segments, seen.checked, seen.checked_now, seen.left) == (4, 3, 1, 1)
    assert seen.begun_ms == FakeClock().now_ms()


async def test_damaged_segment_is_reported_by_every_run_until_it_is_repaired(tmp_path: Path) -> None:
    tier = Audited(tmp_path, rolled_segments=3)
    await tier.session.copy_once()
    spoilt = (await tier.objects(".log"))[0]
    good = await tier.tier.store.get(spoilt.key)
    await tier.spoil(".log")

    found = [await _findings(tier, tmp_path / "progress", duration_s=1000) for _ in range(2)]
    await tier.overwrite(spoilt.key, good)
    found.append(await _findings(tier, tmp_path / "progress", duration_s=1000))

    assert ["damaged-log" in kinds for kinds, _ in found] == [True, True, False]
    assert [checked for _, checked in found] == [2, 2, 3]


async def _findings(tier: Audited, path: Path, *, duration_s: float) -> tuple[list[str], int]:
    with DeepCheckRound.in_file(path, JOB, clock=tier.tier.clock, duration_s=duration_s) as check:
        reports = [report async for report in tier.audit().run(deep=check)]
        seen = await check.finish()
    return [finding.kind for report in reports for finding in report.findings], seen.checked


def test_second_process_with_the_same_file_is_refused(tmp_path: Path) -> None:
    with (
        DeepCheckRound.in_file(tmp_path / "progress", JOB, clock=FakeClock()),
        pytest.raises(AlreadyRunningError, match="another process works on this check"),
    ):
        DeepCheckRound.in_file(tmp_path / "progress", JOB, clock=FakeClock())


def test_file_of_another_check_is_refused_and_stays(tmp_path: Path) -> None:
    DeepCheckRound.in_file(tmp_path / "progress", JOB, clock=FakeClock()).__exit__()
    before = (tmp_path / "progress").read_bytes()

    with pytest.raises(RefusedError, match="another tier or of other partitions"):
        DeepCheckRound.in_file(tmp_path / "progress", JOB | {"prefix": "other"}, clock=FakeClock())

    assert (tmp_path / "progress").read_bytes() == before


@pytest.mark.parametrize("content", [b"no journal\n", b'{"tierd_check_journal":1}\n', b"[]\n"])
def test_file_that_is_none_of_a_check_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "progress").write_bytes(content)

    with pytest.raises((StateDirError, RefusedError)) as refused:
        DeepCheckRound.in_file(tmp_path / "progress", JOB, clock=FakeClock())

    assert "name another file with --resume" in refused.value.remedy


def test_journal_whose_first_step_is_none_of_a_round_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    DeepCheckRound.in_file(path, JOB, clock=FakeClock()).__exit__()
    header = path.read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(header + b'{"other":1}\n')

    with pytest.raises(StateDirError, match="cannot be used"):
        DeepCheckRound.in_file(path, JOB, clock=FakeClock())
    with pytest.raises(StateDirError, match="cannot be used"):  # the lock was released
        DeepCheckRound.in_file(path, JOB, clock=FakeClock())
