"""Results of the benchmarks, as a table for people and as JSON."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """Measured number; ``goal`` is its limit, empty for information only."""

    name: str
    value: float
    unit: str
    goal: str = ""


def print_table(figures: Sequence[Figure]) -> None:
    """Print one aligned line a figure."""
    width = max(len(figure.name) for figure in figures)
    print(f"{'figure':<{width}}  {'value':>10}  unit        goal")
    for figure in figures:
        print(f"{figure.name:<{width}}  {figure.value:>10.3g}  {figure.unit:<10}  {figure.goal}")


def write_json(figures: Sequence[Figure], file: Path) -> None:
    """Write the figures together with the machine that they are of."""
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release()}
    file.write_text(
        json.dumps({"machine": machine, "figures": [asdict(figure) for figure in figures]}, indent=2) + "\n"
    )
