"""Drills in the status and on the page: what is proven, and what needs a person."""

import pytest

from tierd.serve.control_answers import DrillsSummary
from tierd.serve.status_lines import drill_line, drill_problems

SCHEDULED = DrillsSummary(
    enabled=True,
    partitions=14,
    unproven=2,
    proven_until_ms=1_700_000_000_000,
    next_begin_ms=1_700_003_600_000,
    last_success_ms=1_700_000_100_000,
)


def test_nothing_is_said_where_drills_are_off_and_nothing_was_proven() -> None:
    assert drill_line(DrillsSummary(partitions=3, unproven=3)) == ""
    assert drill_problems(DrillsSummary()) == []


@pytest.mark.parametrize(
    ("drills", "line"),
    [
        (
            SCHEDULED,
            (
                "drills: 12 of 14 partitions proven to come back, oldest proof 2023-11-14 22:13 UTC, "
                "next at 2023-11-14 23:13 UTC"
            ),
        ),
        (
            SCHEDULED.model_copy(update={"running": True, "partition": "orders-0", "proven_until_ms": 0}),
            "drills: 12 of 14 partitions proven to come back, running now: orders-0",
        ),
        (
            SCHEDULED.model_copy(update={"enabled": False, "next_begin_ms": None}),
            "drills: 12 of 14 partitions proven to come back, oldest proof 2023-11-14 22:13 UTC",
        ),
    ],
    ids=["scheduled", "running", "by commands alone"],
)
def test_line_says_what_is_proven_and_when_the_next_drill_begins(drills: DrillsSummary, line: str) -> None:
    assert drill_line(drills) == line


def test_problems_name_the_partitions_that_are_not_proven() -> None:
    drills = SCHEDULED.model_copy(
        update={
            "problem": "no answer",
            "failing": {"orders-0": "failed: segment 7 is damaged"},
            "failing_partitions": 3,
        }
    )
    assert drill_problems(drills) == [
        "drills: no answer",
        "drill of orders-0 failed: segment 7 is damaged",
        "2 more partitions are not proven: tierd drill --history",
    ]
