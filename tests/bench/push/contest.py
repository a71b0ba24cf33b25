"""Push replication to a standby, all on this host: bytes per second, latency, CPU and memory.

Leader and standby are processes of their own, without TLS. The reference is a plain connection whose receiver writes
the same bytes to a file; both take turns in one run, and medians count. Nothing syncs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final

from tests.bench.append import KIB, MIB, make_batches
from tests.bench.child_process import cpu_seconds, resident_bytes
from tests.bench.copying import touch_free_memory
from tests.bench.push.raw_stream import raw_bytes_per_s
from tests.bench.report import Figure
from tests.services.ports import free_port

_GOALS: Final = {MIB: ">= 0.8", 16 * KIB: ">= 0.4"}
_GB: Final = 1e9


class NodeProcess:
    """Program of a node; ``ask`` runs a verb in it."""

    def __init__(self, module: str, root: Path, *ports: int) -> None:
        """Start it with a directory of its own, and return when it serves."""
        command = [sys.executable, "-m", f"tests.bench.push.{module}", str(root), *map(str, ports)]
        self._log_file = root.with_suffix(".log")
        with self._log_file.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self.pid = self._process.pid
        self._answer()

    def ask(self, verb: str, **arguments: float) -> dict[str, float]:
        """Return the answer of a verb."""
        assert self._process.stdin is not None
        print(json.dumps([verb, arguments]), file=self._process.stdin, flush=True)
        return self._answer()

    def kill(self) -> None:
        """End the program at once."""
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        """End the program in order."""
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0, self._log_file.read_text()[-2000:]

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the node has ended: {self._log_file.read_text()[-2000:]}"
        found: dict[str, float] = json.loads(line)
        return found


class Pair:
    """A leader and its standby, and what their verbs cost both."""

    def __init__(self, leader: NodeProcess, standby: NodeProcess) -> None:
        self.leader = leader
        self.standby = standby

    def measure(self, verb: str, **arguments: float) -> dict[str, float]:
        """Return the answer of the leader, with the CPU seconds of both and the wall time."""
        before = [cpu_seconds(each.pid) for each in (self.leader, self.standby)]
        begun_s = monotonic()
        answer = self.leader.ask(verb, **arguments)
        leader_s, standby_s = (
            cpu_seconds(each.pid) - used_s for each, used_s in zip((self.leader, self.standby), before, strict=True)
        )
        return {"leader_cpu_s": leader_s, "standby_cpu_s": standby_s, "wall_s": monotonic() - begun_s} | answer


def bench_push(root: Path, *, data_bytes: int, rounds: int, seconds: float, idle_partitions: int) -> list[Figure]:
    """Send ``data_bytes`` a round in batches of both sizes; append, then rest with idle partitions, for ``seconds``."""
    figures: list[Figure] = []
    with running_pair(root / "throughput") as pair:
        for batch_bytes, goal in _GOALS.items():
            figures += _throughput(root, pair, batch_bytes, goal, data_bytes=data_bytes, rounds=rounds)
        peaks = [resident_bytes(each.pid)[1] for each in (pair.leader, pair.standby)]
    figures += [
        Figure(f"push: peak memory of the {name}", peak / 1e6, "MB")
        for name, peak in zip(("leader", "standby"), peaks, strict=True)
    ]
    os.sync()  # gigabytes on their way to the disk would stop the appends whose latency counts
    with running_pair(root / "latency") as pair:
        return figures + _latency(pair, seconds, rounds) + _idle(pair, idle_partitions, seconds)


@contextmanager
def running_pair(root: Path) -> Iterator[Pair]:
    """Run a leader and its standby inside the block, below ``root``, which is made."""
    root.mkdir()
    leader_port, standby_port = free_port(), free_port()
    leader = NodeProcess("leader_node", root / "leader", standby_port, leader_port)
    standby = NodeProcess("standby_node", root / "standby", leader_port, standby_port)
    try:
        yield Pair(leader, standby)
    except BaseException:
        leader.kill()
        standby.kill()
        raise
    leader.end()
    standby.end()


def _throughput(root: Path, pair: Pair, batch_bytes: int, goal: str, *, data_bytes: int, rounds: int) -> list[Figure]:
    batches = make_batches(batch_bytes=batch_bytes, data_bytes=data_bytes)
    raw: list[float] = []
    cases: dict[str, list[dict[str, float]]] = {"handed over": [], "handed over, 8 partitions": [], "appended": []}
    for _ in range(rounds + 1):
        touch_free_memory(root, data_bytes)
        raw.append(raw_bytes_per_s(root / "raw", batches))
        for name, found in cases.items():
            touch_free_memory(root, data_bytes)
            verb, partitions = ("owned", 1) if name == "appended" else ("handed", 8 if "8" in name else 1)
            found.append(pair.measure(verb, batch_bytes=batch_bytes, data_bytes=data_bytes, partitions=partitions))
    case = f"push: batches of {batch_bytes // KIB} KiB"
    base = median(raw[1:])  # the first round warms up
    figures = [Figure(f"{case}, plain connection to a file", base / MIB, "MiB/s")]
    for name, found in cases.items():
        rate = median(each["bytes"] / each["seconds"] for each in found[1:])
        figures += [
            Figure(f"{case}, {name}", rate / MIB, "MiB/s"),
            Figure(f"{case}, {name}, relative", rate / base, "ratio", "" if name == "appended" else goal),
        ]
        figures += [
            Figure(f"{case}, {name}: CPU of the {side}", _cpu_s_per_gb(found[1:], side), "s/GB")
            for side in ("leader", "standby")
        ]
    return figures


def _cpu_s_per_gb(found: list[dict[str, float]], side: str) -> float:
    return median(each[f"{side}_cpu_s"] / (each["bytes"] / _GB) for each in found)


def _latency(pair: Pair, seconds: float, rounds: int) -> list[Figure]:
    found = [
        pair.measure("latency", batch_bytes=4 * KIB, partitions=100, appends_per_s=1000, seconds=seconds)
        for _ in range(rounds)
    ]
    ms = {name: [1e3 * each[f"{name}_s"] for each in found] for name in ("p50", "p99")}
    return [
        Figure("push: append to acknowledged, 1,000/s over 100 partitions, p50", median(ms["p50"]), "ms"),
        Figure("push: the same, p99", median(ms["p99"]), "ms", "< 5"),
        Figure("push: the same, p99 of the slowest round", max(ms["p99"]), "ms"),
    ] + [
        Figure(
            f"push: the same, CPU of the {side}",
            100 * median(each[f"{side}_cpu_s"] for each in found) / seconds,
            "% of core",
        )
        for side in ("leader", "standby")
    ]


def _idle(pair: Pair, partitions: int, seconds: float) -> list[Figure]:
    """Have sessions of partitions that nobody writes to."""
    before = [resident_bytes(each.pid)[0] for each in (pair.leader, pair.standby)]
    pair.leader.ask("begin_idle", partitions=partitions)
    pair.leader.ask("rest", seconds=seconds / 3)  # the logs of the standby are made
    found = pair.measure("rest", seconds=seconds)
    grown = [resident_bytes(each.pid)[0] - was for each, was in zip((pair.leader, pair.standby), before, strict=True)]
    figures = [Figure("push: idle partitions", partitions, "")]
    for side, grown_bytes in zip(("leader", "standby"), grown, strict=True):
        percent = 100 * found[f"{side}_cpu_s"] / found["wall_s"]
        figures += [
            Figure(f"push: idle partitions, CPU of the {side}", percent, "% of core"),
            Figure(f"push: idle partitions, memory of the {side}", grown_bytes / partitions / 1024, "KiB each"),
        ]
    return figures
