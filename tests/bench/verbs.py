"""CPU seconds of the verbs that ask the daemon or read the metadata, beside a real daemon with a small tier.

The modules are compiled once before, as in every package: an environment in which Python keeps no compiled modules
would be charged with the compilation. The rounds take turns over the verbs, so that other work on the machine falls on
all of them; the bare start of Python beside them says how busy the machine was.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.bench.child_process import Cost, median_cost, run
from tests.bench.report import Figure
from tests.fakes.log_dirs import write_log_dir
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation

GOAL: Final = "< 0.3"
BARE: Final = "bare python"
_PARTITIONS: Final = 4
_ROLLED_SEGMENTS: Final = 5

ASKING: Final = ("status", "status --json", "pause synthetic-0", "resume synthetic-0", "sync synthetic-0")
READING: Final = (
    *("topics", "segments synthetic-0", "offsets synthetic-0", "explain synthetic-0 0", "deletions", "cost"),
    *("compact --history", "drill --history", "erase list"),
)


def bench_verbs(root: Path, *, rounds: int) -> list[Figure]:
    """Return the median CPU seconds, user and system, of each verb in a process of its own, and of a bare Python."""
    log_dir = write_log_dir(root / "kafka", partitions=_PARTITIONS, rolled_segments=_ROLLED_SEGMENTS)
    tierd = Installation(root / "tierd", [log_dir.path])
    options = ["--config", str(tierd.config_file)]
    commands = {verb: [str(TIERD), *verb.split(), *options] for verb in (*ASKING, *READING)}
    commands |= {"--version": [str(TIERD), "--version"], BARE: [sys.executable, "-c", "pass"]}
    with tierd.daemon() as daemon:
        daemon.wait_until(lambda: len(tierd.segments("synthetic-0")) == _ROLLED_SEGMENTS, what="the copies")
        _run_each(commands.values())
        costs = [_run_each(commands.values()) for _ in range(rounds)]
    return [
        Figure(f"verbs: {name}", median_cost(each).cpu_s, "CPU s", GOAL if name in (*ASKING, *READING) else "")
        for name, each in zip(commands, zip(*costs, strict=True), strict=True)
    ]


def _run_each(commands: Iterable[list[str]]) -> list[Cost]:
    return [run(command) for command in commands]
