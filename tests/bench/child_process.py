"""Program run as a child with its costs: wall time, CPU seconds, peak memory."""

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

_SAMPLE_INTERVAL_S = 0.01


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one run of a child, its threads and its own children."""

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int


def run(command: Sequence[str | Path]) -> Cost:
    """Run a command to its end.

    Peak memory is sampled: the value of ``wait4`` would count our own memory, which the child shares until it executes.

    Raises:
        RuntimeError: the command failed; the message holds the end of its output.
    """
    with tempfile.TemporaryFile() as output:
        begun_s = time.perf_counter()
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        peak_rss_bytes = 0
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            peak_rss_bytes = max(peak_rss_bytes, _peak_rss(process.pid))
            time.sleep(_SAMPLE_INTERVAL_S)
        wall_s = time.perf_counter() - begun_s
        process.returncode = os.waitstatus_to_exitcode(ended[1])
        if process.returncode:
            output.seek(0)
            tail = output.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"{command} ended with {process.returncode}: {tail}")
    return Cost(wall_s, ended[2].ru_utime + ended[2].ru_stime, peak_rss_bytes)


def median_cost(costs: Sequence[Cost]) -> Cost:
    """Return the median of each figure by itself."""
    return Cost(
        median(cost.wall_s for cost in costs),
        median(cost.cpu_s for cost in costs),
        int(median(cost.peak_rss_bytes for cost in costs)),
    )


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a running process has used so far, with all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> tuple[int, int]:
    """Return the resident memory of a running process, now and at its peak."""
    values = _status(pid)
    return values["VmRSS"], values["VmHWM"]


def _peak_rss(pid: int) -> int:
    return _status(pid).get("VmHWM", 0)  # a process that has ended and was not waited for yet has no memory


def _status(pid: int) -> dict[str, int]:
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[-1] == "kB"}
