"""CPU seconds of the verbs that ask the daemon or read the metadata, beside a real daemon with a small tier."""

from pathlib import Path
from typing import Final

from tests.bench.child_process import Cost, median_cost, run
from tests.bench.report import Figure
from tests.fakes.log_dirs import write_log_dir
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation

GOAL: Final = "< 0.3"
_PARTITIONS: Final = 4
_ROLLED_SEGMENTS: Final = 5

ASKING: Final = ("status", "status --json", "pause synthetic-0", "resume synthetic-0", "sync synthetic-0")
READING: Final = (
    *("topics", "segments synthetic-0", "offsets synthetic-0", "explain synthetic-0 0", "deletions", "cost"),
    *("compact --history", "drill --history", "erase list"),
)


def bench_verbs(root: Path, *, rounds: int) -> list[Figure]:
    """Return the median CPU seconds, user and system, of each verb in a process of its own."""
    log_dir = write_log_dir(root / "kafka", partitions=_PARTITIONS, rolled_segments=_ROLLED_SEGMENTS)
    tierd = Installation(root / "tierd", [log_dir.path])
    with tierd.daemon() as daemon:
        daemon.wait_until(lambda: len(tierd.segments("synthetic-0")) == _ROLLED_SEGMENTS, what="the copies")
        options = ["--config", str(tierd.config_file)]
        figures = [
            Figure(f"verbs: {verb}", _median([*verb.split(), *options], rounds), "CPU s", GOAL)
            for verb in (*ASKING, *READING)
        ]
    return [*figures, Figure("verbs: --version", _median(["--version"], rounds), "CPU s")]


def _median(arguments: list[str], rounds: int) -> float:
    costs: list[Cost] = [run([TIERD, *arguments]) for _ in range(rounds)]
    return median_cost(costs).cpu_s
