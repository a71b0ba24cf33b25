"""Starts of a daemon on ten thousand partitions of twenty rolled segments each: seconds to ready, memory afterwards."""

import time
from pathlib import Path
from statistics import median

from tests.bench.child_process import resident_bytes
from tests.bench.many_partitions import SETTINGS, SETTLE_S, seconds_to_ready
from tests.bench.registered_segments import register_segments
from tests.bench.report import Figure
from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.scenarios.installation import Daemon, Installation

REQUESTS = "tierd_object_store_requests_total"


def bench_huge_start(root: Path, *, partitions: int, rolled_segments: int, starts: int) -> list[Figure]:
    """Measure ``starts`` starts on an empty tier, and as many on a tier that has every rolled segment; medians.

    The log dir has real files, and both starts are those of ``tierd run``. To copy the segments would take a quarter of
    an hour: the daemon of the first start is killed once it is ready. The restart is that of a second installation on
    the same log dir, whose metadata store has the rows of all segments (``register_segments``) and no objects.
    """
    log_dir_path, shape = root / "logdir", SegmentShape()
    log_dir = write_log_dir(log_dir_path, partitions=partitions, rolled_segments=rolled_segments, shape=shape)
    first_ready_s = list[float]()
    for number in range(starts):
        first = Installation(root / f"first-{number}", [log_dir_path], settings=SETTINGS).daemon()
        first_ready_s.append(seconds_to_ready(first))
        first.kill()

    tierd = Installation(root / "again", [log_dir_path], settings=SETTINGS)
    register_segments(tierd, list(log_dir.partitions.values()), shape)
    daemon, restart_s, memory = tierd.daemon(), list[float](), list[tuple[int, int]]()
    for _ in range(starts):
        restart_s.append(seconds_to_ready(daemon))
        time.sleep(SETTLE_S)
        memory.append(resident_bytes(daemon.pid))
        _require_all_known(daemon, partitions=partitions, segments=partitions * rolled_segments)
        daemon.kill()  # it has nothing under way
    return [
        Figure("huge: partitions", partitions, ""),
        Figure("huge: rolled segments", partitions * rolled_segments, ""),
        Figure("huge: first start to ready", median(first_ready_s), "s", "<= 60"),
        Figure("huge: restart to ready", median(restart_s), "s", "<= 15"),
        Figure(
            "huge: resident memory after a restart", median(resident for resident, _ in memory) / 1e6, "MB", "< 300"
        ),
        Figure("huge: peak memory of a restart", median(peak for _, peak in memory) / 1e6, "MB"),
    ]


def _require_all_known(daemon: Daemon, *, partitions: int, segments: int) -> None:
    """Fail where the daemon does not know every rolled segment, or has read objects: that would be another start."""
    assert daemon.status()["metadata"]["segments"] == segments
    requests = {name: value for name, value in daemon.metrics().items() if name.startswith(REQUESTS)}
    assert sum(requests.values()) < partitions, requests
