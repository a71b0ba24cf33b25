"""Results of the benchmarks: a table for people, the goals that were met and missed, a section of a page, and JSON."""

import json
import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from operator import ge, gt, le, lt
from pathlib import Path
from typing import Final, NamedTuple

SECTION: Final = "## Goals"
_HEAD: Final = ("| figure | value | goal | | measured |", "|---|---|---|---|---|")
_COMPARISONS: Final = {">=": ge, ">": gt, "<=": le, "<": lt}
_GOAL: Final = re.compile(rf"({'|'.join(_COMPARISONS)}) (\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Figure:
    """Measured number; ``goal`` is its limit as ``>= 0.8`` (or ``>``, ``<=``, ``<``), empty for information only."""

    name: str
    value: float
    unit: str
    goal: str = ""

    def __post_init__(self) -> None:
        """Refuse a goal that no program can check.

        Raises:
            ValueError: the goal is not a comparison with a number.
        """
        if self.goal and not _GOAL.fullmatch(self.goal):
            raise ValueError(f"{self.name}: {self.goal!r} is not a goal such as '>= 0.8'")

    @property
    def is_met(self) -> bool | None:
        """Return True if the value reaches its goal; None without a goal."""
        found = _GOAL.fullmatch(self.goal)
        return found and _COMPARISONS[found[1]](self.value, float(found[2]))

    @property
    def verdict(self) -> str:
        """Return ``met`` or ``missed``; empty without a goal."""
        return {None: "", True: "met", False: "missed"}[self.is_met]


class GoalRow(NamedTuple):
    """Row of the section of a page: the cells after the name, as Markdown."""

    value: str
    goal: str
    verdict: str
    measured: str

    def line(self, name: str) -> str:
        """Return the row as a line of the table."""
        return f"| {name} | {' | '.join(self)} |"


def print_table(figures: Sequence[Figure]) -> None:
    """Print one aligned line a figure."""
    width = max(len(figure.name) for figure in figures)
    print(f"{'figure':<{width}}  {'value':>10}  unit        goal")
    for figure in figures:
        print(f"{figure.name:<{width}}  {figure.value:>10.3g}  {figure.unit:<10}  {figure.goal:<8}  {figure.verdict}")


def print_goals(figures: Iterable[Figure]) -> None:
    """Print the figures that have a goal, the missed ones first, and the number of each."""
    with_goal = sorted((figure for figure in figures if figure.goal), key=lambda figure: bool(figure.is_met))
    if not with_goal:
        return
    met = sum(bool(figure.is_met) for figure in with_goal)
    print(f"goals: {met} met, {len(with_goal) - met} missed\n")
    print_table(with_goal)


def with_goals(page: str, figures: Iterable[Figure], *, measured: str, is_whole: bool) -> str:
    """Return a page with the goals of these figures in its section ``## Goals``. Pure.

    Args:
        page: Markdown that has the section; everything else of the page stays.
        figures: those without a goal are left out.
        measured: the date of the run, as the rows of these figures tell it.
        is_whole: the run had all benchmarks, so that rows of other figures go; otherwise they stay.

    Raises:
        ValueError: the page has no such section, or two.
    """
    sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    places = [place for place, section in enumerate(sections) if section.startswith(f"{SECTION}\n")]
    if len(places) != 1:
        raise ValueError(f"the page has {len(places)} sections {SECTION!r}, not one")
    lines = sections[places[0]].splitlines()[1:]
    rows = {} if is_whole else _rows(line for line in lines if line.startswith("|"))
    for figure in figures:
        if figure.goal:
            rows[figure.name] = GoalRow(
                f"{figure.value:.3g} {figure.unit.replace('ratio', '')}".strip(),
                figure.goal.replace(">=", "≥").replace("<=", "≤"),
                "met" if figure.is_met else "**missed**",
                measured,
            )
    prose = "\n".join(line for line in lines if not line.startswith("|")).strip()
    table = "\n".join([*_HEAD, *(row.line(name) for name, row in sorted(rows.items()))])
    sections[places[0]] = f"{SECTION}\n\n{prose}\n\n{table}\n\n"
    return "".join(sections).rstrip("\n") + "\n"


def _rows(lines: Iterable[str]) -> dict[str, GoalRow]:
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]
    return {name: GoalRow(*rest) for name, *rest in cells[len(_HEAD) :]}


def write_json(figures: Sequence[Figure], file: Path) -> None:
    """Write the figures together with the machine that they are of."""
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    file.write_text(
        json.dumps({"machine": machine, "figures": [asdict(figure) for figure in figures]}, indent=2) + "\n"
    )
