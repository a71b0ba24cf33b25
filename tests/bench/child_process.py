"""Running a program as a child and knowing what it cost: wall time, CPU seconds, peak memory."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a child, its threads and the children that it waited for, took."""

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int


def run(command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None) -> Cost:
    """Run a command to its end.

    Raises:
        RuntimeError: it failed; the message holds the end of its output.
    """
    begun_s = time.perf_counter()
    process = subprocess.Popen(
        list(map(str, command)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | dict(environment or {}),
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - begun_s
    process.stdout.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}: {output[-2000:].decode(errors='replace')}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def median_cost(costs: Sequence[Cost]) -> Cost:
    """The median of each figure by itself."""
    return Cost(
        median(cost.wall_s for cost in costs),
        median(cost.cpu_s for cost in costs),
        int(median(cost.peak_rss_bytes for cost in costs)),
    )


def cpu_seconds(pid: int) -> float:
    """CPU time that a running process has used so far, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> tuple[int, int]:
    """Resident memory of a running process: now, and at its peak."""
    values = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return int(values["VmRSS"].split()[0]) * 1024, int(values["VmHWM"].split()[0]) * 1024
