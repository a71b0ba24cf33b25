"""Plan of a restore of very many partitions: its time and its memory."""

from pathlib import Path
from typing import Final

from tests.bench.child_process import Cost, median_cost, run
from tests.bench.report import Figure
from tests.fakes.log_dirs import write_log_dir
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation

_COPY_DEADLINE_S: Final = 3600.0


def bench_restore_planning(root: Path, *, partitions: int, rolled_segments: int, rounds: int) -> list[Figure]:
    """Plan all partitions, with the metadata of SQLite and with metadata that is read from the bucket first."""
    planned, start = _tier(root / "many", partitions, rolled_segments), _tier(root / "one", 1, 1)
    figures = [Figure("plan: partitions", partitions, ""), Figure("plan: segments", partitions * rolled_segments, "")]
    for name, options in (("metadata of SQLite", []), ("metadata of the bucket", ["--from-bucket"])):
        cost = median_cost([_plan(planned, options) for _ in range(rounds)])
        alone = median_cost([_plan(start, options) for _ in range(rounds)])
        seconds = cost.wall_s - alone.wall_s
        figures += [
            Figure(f"plan, {name}: time", seconds, "s"),
            Figure(f"plan, {name}: partitions", partitions / seconds, "1/s"),
            Figure(f"plan, {name}: peak memory", cost.peak_rss_bytes / 1e6, "MB"),
            Figure(f"plan, {name}: peak memory of a plan of one partition", alone.peak_rss_bytes / 1e6, "MB"),
        ]
    return figures


def _tier(root: Path, partitions: int, rolled_segments: int) -> Installation:
    log_dir = root / "logdir"
    write_log_dir(log_dir, partitions=partitions, rolled_segments=rolled_segments)
    tier = Installation(root / "installation", [log_dir])
    copied = tier.tierd("copy", "--once", deadline_s=_COPY_DEADLINE_S)
    assert copied.exit_code == 0, copied.output
    (root / "restored").mkdir()
    return tier


def _plan(tier: Installation, options: list[str]) -> Cost:
    command: list[str | Path] = [TIERD, "restore", "log-dir", "--config", tier.config_file, "--mode", "last-copy"]
    into = tier.root.parent / "restored"
    return run([*command, "--into", into, "--hold-retention", "--dry-run", "--json", *options])
