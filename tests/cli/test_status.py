from pathlib import Path

import pytest

from tierd.cli.commands.status import hold_line, pipeline_line, rendered, tier_line
from tierd.cli.status_problems import (
    catalogue_lines,
    descriptor_lines,
    grace_line,
    uncleanable_lines,
    unheld_lines,
)
from tierd.serve import (
    CatalogueSummary,
    DescriptorsSummary,
    OwnLogsSummary,
    PartitionSummary,
    PipelineSummary,
    StatusAnswer,
    TierSummary,
)
from tierd.serve.control_answers import HoldSummary, LastRun, LogDirHolds, RunningRun

AT_MS = 1_795_300_000_000  # 2026-11-21 22:26:40
RUNNING = RunningRun(stage="rewriting", done=1, total=4, groups_replaced=3, groups_failed=0)
LAST = LastRun(outcome="nothing_due", ended_ms=AT_MS)


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        (
            PipelineSummary(enabled=True, running=RUNNING, last_run=LAST, next_begin_ms=AT_MS),
            "pipeline: rewriting 25 %, 3 groups replaced, 0 failed",
        ),
        (
            PipelineSummary(enabled=True, running=None, last_run=LAST, next_begin_ms=AT_MS + 60_000),
            "pipeline: last run nothing due at 2026-11-21 22:26 UTC, next at 2026-11-21 22:27 UTC",
        ),
        (
            PipelineSummary(enabled=True, running=None, last_run=None, next_begin_ms=AT_MS),
            "pipeline: next at 2026-11-21 22:26 UTC",
        ),
        (PipelineSummary(enabled=False, running=None, last_run=None, next_begin_ms=None), ""),
    ],
    ids=["running", "resting", "never ran", "not enabled"],
)
def test_pipeline_has_one_line_in_the_status(facts: PipelineSummary, line: str) -> None:
    assert pipeline_line(facts) == line


def test_stage_of_unknown_length_has_no_percentage() -> None:
    running = RunningRun(stage="starting", done=0, total=0, groups_replaced=0, groups_failed=0)

    assert (
        pipeline_line(PipelineSummary(enabled=True, running=running, last_run=None, next_begin_ms=None))
        == "pipeline: starting, 0 groups replaced, 0 failed"
    )


def test_size_and_age_of_the_tier_are_one_line() -> None:
    tier = TierSummary(partitions=2, segments=1234, size_bytes=3 << 30, oldest_ms=AT_MS - 86_400_000, newest_ms=AT_MS)

    assert tier_line(tier) == (
        "in the tier: 3.0 GiB in 1,234 segments of led partitions, from 2026-11-20 22:26 UTC to 2026-11-21 22:26 UTC"
    )


def test_tier_without_timestamps_has_no_age_and_an_empty_one_no_line() -> None:
    assert tier_line(TierSummary(partitions=1, segments=1, size_bytes=10)) == (
        "in the tier: 10 B in 1 segments of led partitions"
    )
    assert tier_line(TierSummary(partitions=3)) == ""


def test_parts_that_are_missing_from_the_catalogue_are_named_with_their_cause() -> None:
    facts = CatalogueSummary(problems={"topics": "denied", "positions": "no route to the store"})

    assert catalogue_lines(facts) == [
        "catalogue for restores, positions: no route to the store",
        "catalogue for restores, topics: denied",
    ]
    assert catalogue_lines(CatalogueSummary()) == []


def test_own_logs_that_are_not_cleaned_are_named_with_their_cause() -> None:
    facts = OwnLogsSummary(uncleanable={"orders-0": "torn batch at position 8192"})

    assert uncleanable_lines(facts) == ["orders-0 is not cleaned: torn batch at position 8192; run tierd inspect"]


@pytest.mark.parametrize("facts", [OwnLogsSummary(), OwnLogsSummary(uncleanable={})])
def test_own_logs_that_are_cleaned_have_no_line(facts: OwnLogsSummary) -> None:
    assert uncleanable_lines(facts) == []


def test_own_logs_that_are_not_cleaned_have_at_most_about_twenty_lines() -> None:
    facts = OwnLogsSummary(uncleanable={f"orders-{n}": "torn" for n in range(100)})

    lines = uncleanable_lines(facts)

    assert len(lines) == 21
    assert lines[-1] == "80 more logs are not cleaned: tierd status --json"


def test_descriptors_are_mentioned_from_four_fifths_of_their_limit_on() -> None:
    assert descriptor_lines(None) == []
    assert descriptor_lines(DescriptorsSummary(open=700, limit=1000, near_limit=False)) == []
    assert descriptor_lines(DescriptorsSummary(open=900, limit=1000, near_limit=True)) == [
        "900 of 1000 descriptors are open: raise LimitNOFILE of the unit"
    ]


def partition(name: str, state: str) -> PartitionSummary:
    return PartitionSummary(
        partition=name,
        role="leader",
        leader_epoch=1,
        state=state,
        reason=None,
        last_error=None,
        copied_through=5,
        high_watermark=6,
        lag_segments=0,
        lag_bytes=0,
        lag_seconds=0.0,
    )


def lines_of(facts: StatusAnswer) -> list[str]:
    return [line for part in rendered(facts) for line in part.lines(200, styled=False)]


def test_partitions_that_need_a_person_are_listed_first() -> None:
    partitions = [partition("a-0", "idle"), partition("b-0", "copying"), partition("c-0", "quarantined")]

    lines = lines_of(StatusAnswer(version="1", pid=7, not_ready=(), partitions=tuple(partitions)))

    assert lines[0] == "tierd 1, process 7, ready"
    assert [line.split()[0] for line in lines[2:]] == ["c-0", "b-0", "a-0"]


def test_last_column_has_the_error_of_a_partition_and_its_remedy() -> None:
    failed = partition("a-0", "quarantined").model_copy(
        update={"last_error": "torn batch at position 8192", "remedy": "run tierd inspect"}
    )

    lines = lines_of(StatusAnswer(version="1", pid=7, not_ready=(), partitions=(failed,)))

    assert lines[2].endswith("torn batch at position 8192; run tierd inspect")


def test_kind_of_the_holds_in_each_log_dir_is_shown_with_its_reason() -> None:
    links, files = Path("/a"), Path("/b")
    facts = HoldSummary(
        segments=3,
        bytes=2048,
        log_dirs=(
            LogDirHolds(path=str(links), mode="link"),
            LogDirHolds(path=str(files), mode="descriptor", reason="links end at a mount"),
        ),
    )

    assert hold_line(facts) == (
        "hold: 3 segments, 2.0 KiB; /a by hard links; /b by open files, which a restart of tierd loses "
        "(links end at a mount)"
    )
    assert hold_line(HoldSummary()) == ""


def test_segments_without_a_hold_are_a_problem_with_its_reason() -> None:
    facts = HoldSummary(unheld_segments=2, unheld_reason="hold.max_bytes is reached")

    assert unheld_lines(facts) == ["2 segments that wait to be copied are not held: hold.max_bytes is reached"]
    assert unheld_lines(HoldSummary(segments=3)) == []


def test_expired_segments_in_their_grace_are_counted() -> None:
    some = partition("a-0", "idle").model_copy(update={"in_grace_segments": 2})

    assert grace_line([some, some, partition("b-0", "idle")]) == (
        "grace: 4 expired segments are still in the tier; tierd undelete takes them back"
    )
    assert grace_line([partition("a-0", "idle")]) == ""


def test_causes_of_not_being_ready_are_the_first_lines() -> None:
    causes = ["object store unreachable since noon: refused", "stopping: SIGTERM"]

    lines = lines_of(StatusAnswer(version="1", pid=7, not_ready=tuple(causes), partitions=()))

    assert lines[:3] == ["tierd 1, process 7", *(f"not ready: {cause}" for cause in causes)]
