"""Goals of the benchmarks: what is met, and the section of the page."""

import pytest

from tests.bench.report import Figure, print_goals, with_goals

PAGE = """# Performance

Text.

## Goals

What these are.

| figure | value | goal | | measured |
|---|---|---|---|---|
| append | 0.3 | ≥ 0.4 | **missed** | 2026-01-01 |
| gone | 1 | ≥ 2 | **missed** | 2026-01-01 |

## Copy

| figure | value |
|---|---|
| other | 1 |
"""


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (">= 0.8", 0.8, True),
        (">= 0.8", 0.79, False),
        ("<= 15", 15, True),
        ("<= 15", 15.1, False),
        ("< 5", 5, False),
        ("> 1", 1, False),
        ("<= 0", 0, True),
        ("", 1, None),
    ],
)
def test_goal_is_met_by_values_up_to_its_bound(goal: str, value: float, met: bool | None) -> None:
    assert Figure("append", value, "ratio", goal).is_met is met


def test_goal_that_is_no_comparison_is_refused() -> None:
    with pytest.raises(ValueError, match=r"append: 'about 3' is not a goal"):
        Figure("append", 1, "s", "about 3")


def test_last_table_has_missed_goals_first_and_no_other_figures(capsys: pytest.CaptureFixture[str]) -> None:
    print_goals([Figure("good", 1, "", ">= 1"), Figure("told", 3, "MB/s"), Figure("bad", 2, "s", "< 1")])

    first, _, _, *rows = capsys.readouterr().out.splitlines()
    assert first == "goals: 1 met, 1 missed"
    assert [row.split()[0] for row in rows] == ["bad", "good"]
    assert [row.split()[-1] for row in rows] == ["missed", "met"]


def test_run_without_goals_prints_no_table_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    print_goals([Figure("told", 3, "MB/s")])

    assert not capsys.readouterr().out


@pytest.mark.parametrize("is_whole", [True, False])
def test_page_gets_new_rows_and_keeps_those_of_other_benchmarks_only_after_a_part(is_whole: bool) -> None:
    figures = [Figure("append", 0.451, "ratio", ">= 0.4"), Figure("start", 7, "s", "< 5"), Figure("told", 3, "MB/s")]

    page = with_goals(PAGE, figures, measured="2026-02-02", is_whole=is_whole)

    rows = [
        "| append | 0.451 | ≥ 0.4 | met | 2026-02-02 |",
        "| gone | 1 | ≥ 2 | **missed** | 2026-01-01 |",
        "| start | 7 s | < 5 | **missed** | 2026-02-02 |",
    ]
    kept = [row for row in rows if not (is_whole and "gone" in row)]
    old = "\n".join(PAGE.splitlines()[10:12])
    assert page == PAGE.replace(old, "\n".join(kept))
    assert with_goals(page, figures, measured="2026-02-02", is_whole=is_whole) == page


def test_section_at_the_end_of_a_page_stays_there() -> None:
    page = with_goals("# P\n\n## Goals\n\nText.\n", [Figure("a", 1, "", ">= 1")], measured="now", is_whole=True)

    assert page.endswith(
        "Text.\n\n| figure | value | goal | | measured |\n|---|---|---|---|---|\n| a | 1 | ≥ 1 | met | now |\n"
    )


def test_page_without_the_section_is_refused() -> None:
    with pytest.raises(ValueError, match="0 sections"):
        with_goals("# P\n", [], measured="now", is_whole=True)
