"""Thousands of partitions: found, copied, then idle, then restarted."""

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.bench.child_process import cpu_seconds, resident_bytes
from tests.bench.report import Figure
from tests.fakes.log_dirs import LogDirWriter, write_log_dir
from tests.scenarios.installation import Daemon, Installation

SETTINGS = {"copy": {"interval": "30s", "reconcile_interval": "5m"}}
CHECKPOINT_INTERVAL_S = 5.0  # Kafka: replica.high.watermark.checkpoint.interval.ms
SETTLE_S = 10.0
COPY_DEADLINE_S = 3600.0
RATE_BEFORE_GROUPS = 126.0  # segments a second of the first measurement, whose objects and rows were synced one by one
BARE_SEGMENTS = 200
BARE_ROUNDS = 3
OBJECT_BYTES = 2000  # as large as the objects of the segments
ROW_BYTES = 300


def bench_many_partitions(
    root: Path, *, partitions: int, rolled_segments: int, idle_s: float, starts: int
) -> list[Figure]:
    """Copy ``partitions`` × ``rolled_segments`` small segments to the filesystem store, then watch the daemon rest.

    The copy is done once. The first start, on an empty tier each time, and the restart are medians of ``starts``.
    """
    log_dir_path = root / "logdir"
    shutil.rmtree(log_dir_path, ignore_errors=True)
    log_dir = write_log_dir(log_dir_path, partitions=partitions, rolled_segments=rolled_segments)
    first_ready_s = list[float]()
    for number in range(1, starts):
        first = Installation(root / f"first-{number}", [log_dir_path], settings=SETTINGS).daemon()
        first_ready_s.append(seconds_to_ready(first))
        first.kill()
    daemon = Installation(root / "many", [log_dir_path], settings=SETTINGS).daemon()
    bare_rates = [_bare_rate(root / f"bare-{number}") for number in range(BARE_ROUNDS)]

    first_ready_s.append(seconds_to_ready(daemon))
    begun_s = time.monotonic()
    total = partitions * rolled_segments
    daemon.wait_until(lambda: _finished(daemon, partitions, log_dir), what="all copies", deadline_s=COPY_DEADLINE_S)
    copied_s = time.monotonic() - begun_s + first_ready_s[-1]
    copy_cpu_s = cpu_seconds(daemon.pid)
    bare_rates += [_bare_rate(root / f"bare-after-{number}") for number in range(BARE_ROUNDS)]
    _, copy_peak = resident_bytes(daemon.pid)
    assert _store_requests(daemon) >= total, "the metric that shows idleness counts nothing"
    with _checkpoints_rewritten(log_dir):
        idle = _idle(daemon, idle_s)
    quiet = _idle(daemon, idle_s)
    daemon.stop()

    restarts = [_restart(daemon)]
    while len(restarts) < starts:
        daemon.stop()
        restarts.append(_restart(daemon))
    after_restart = _idle(daemon, idle_s)
    daemon.stop()
    return [
        Figure("many: partitions", partitions, ""),
        Figure("many: rolled segments", total, ""),
        Figure("many: first start to ready", median(first_ready_s), "s", "<= 15"),
        Figure("many: all copied after", copied_s, "s"),
        Figure("many: segments copied", total / copied_s, "1/s", f">= {3 * RATE_BEFORE_GROUPS:.0f}"),
        Figure("many: segments of a bare loop that syncs each object and row", median(bare_rates), "1/s"),
        Figure("many: against the bare loop", total / copied_s / median(bare_rates), "ratio", ">= 1"),
        Figure("many: CPU of a segment, with the start", 1000 * copy_cpu_s / total, "ms"),
        Figure("many: peak memory while copying", copy_peak / 1e6, "MB", "< 300"),
        Figure("many: idle CPU beside a broker", idle.cpu_percent, "% of core", "< 1"),
        Figure("many: idle CPU, nothing changes at all", quiet.cpu_percent, "% of core", "< 1"),
        Figure("many: store operations while idle", idle.store_requests + quiet.store_requests, "", "<= 0"),
        Figure("many: restart to ready", median(ready_s for ready_s, _ in restarts), "s", "<= 3"),
        Figure("many: idle CPU after a restart", after_restart.cpu_percent, "% of core", "< 1"),
        Figure("many: store operations after a restart", after_restart.store_requests, "", "<= 0"),
        Figure(
            "many: resident memory after a restart", median(resident for _, resident in restarts) / 1e6, "MB", "< 300"
        ),
    ]


def _bare_rate(root: Path) -> float:
    """Return how many segments a second a bare loop stores: three objects and two rows each, all synced one by one."""
    root.mkdir()
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    rows = sqlite3.connect(root / "rows.db", isolation_level=None)
    rows.execute("PRAGMA journal_mode=WAL")
    rows.execute("PRAGMA synchronous=FULL")
    rows.execute("CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID")
    begun_s = time.monotonic()
    for number in range(BARE_SEGMENTS):
        rows.execute("INSERT INTO kv VALUES (?, ?)", (f"started/{number}", bytes(ROW_BYTES)))
        for name in ("log", "indexes", "manifest"):
            _store_bare(root / f"{number}.{name}", directory)
        rows.execute("INSERT INTO kv VALUES (?, ?)", (f"finished/{number}", bytes(ROW_BYTES)))
    rate = BARE_SEGMENTS / (time.monotonic() - begun_s)
    rows.close()
    os.close(directory)
    return rate


def _store_bare(path: Path, directory: int) -> None:
    temporary = path.with_suffix(path.suffix + ".tmp")
    with temporary.open("xb") as file:
        file.write(bytes(OBJECT_BYTES))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    os.fsync(directory)


class _Idle:
    """CPU time and store operations of a period without work."""

    def __init__(self, *, cpu_percent: float, store_requests: float) -> None:
        self.cpu_percent = cpu_percent
        self.store_requests = store_requests


def _idle(daemon: Daemon, idle_s: float) -> _Idle:
    time.sleep(SETTLE_S)
    requests_before = _store_requests(daemon)
    cpu_before, begun_s = cpu_seconds(daemon.pid), time.monotonic()
    time.sleep(idle_s)
    cpu_percent = 100 * (cpu_seconds(daemon.pid) - cpu_before) / (time.monotonic() - begun_s)
    return _Idle(cpu_percent=cpu_percent, store_requests=_store_requests(daemon) - requests_before)


def _store_requests(daemon: Daemon) -> float:
    prefix = "tierd_object_store_requests_total"
    return sum(value for name, value in daemon.metrics().items() if name.startswith(prefix))


def _restart(daemon: Daemon) -> tuple[float, int]:
    """Start a daemon that was stopped; return the seconds to ready, and the resident memory once it has settled."""
    ready_s = seconds_to_ready(daemon)
    time.sleep(SETTLE_S)
    return ready_s, resident_bytes(daemon.pid)[0]


def seconds_to_ready(daemon: Daemon) -> float:
    begun_s = time.monotonic()
    daemon.start()
    daemon.wait_ready(deadline_s=300)
    return time.monotonic() - begun_s


def _finished(daemon: Daemon, partitions: int, log_dir: LogDirWriter) -> bool:
    time.sleep(1.0)  # the request itself costs the daemon CPU time
    status = daemon.status()["partitions"]
    end = next(iter(log_dir.partitions.values())).active_segment.stem
    return len(status) == partitions and all(entry["copied_through"] == int(end) - 1 for entry in status)


@contextmanager
def _checkpoints_rewritten(log_dir: LogDirWriter) -> Iterator[None]:
    """Rewrite the checkpoints as often as a broker does, which it also does when nothing has changed."""
    end = threading.Event()

    def rewrite() -> None:
        while not end.wait(CHECKPOINT_INTERVAL_S):
            log_dir.write_checkpoints()

    thread = threading.Thread(target=rewrite, name="checkpoints")
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
