"""Program ``python -m tests.bench``: all benchmarks, or the named ones. ``--quick`` only checks that they work.

The last table has the goals, met and missed; ``--page docs/performance.md`` writes them into that page, too. The page
and ``--json`` are written after each benchmark, so that a later one that fails takes nothing with it.
"""

import argparse
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.append import bench_append
from tests.bench.cold_reading import bench_cold_reading
from tests.bench.compaction import bench_compaction
from tests.bench.copying import MIB, bench_filesystem, bench_s3, bench_s3_transformed
from tests.bench.decode import bench_decode
from tests.bench.endpoint import bench_endpoint
from tests.bench.huge_start import bench_huge_start
from tests.bench.jvm import environment
from tests.bench.loading import bench_loading
from tests.bench.many_partitions import bench_many_partitions
from tests.bench.metadata import bench_metadata, bench_rebuild
from tests.bench.push.contest import bench_push
from tests.bench.python_reading import bench_python_reading
from tests.bench.reading import bench_reading
from tests.bench.recovery import bench_recovery
from tests.bench.report import Figure, print_goals, print_table, with_goals, write_json
from tests.bench.restore_planning import bench_restore_planning
from tests.bench.restoring_log_dirs import bench_restoring_log_dirs
from tests.bench.restoring_stores import bench_restoring_stores
from tests.bench.restoring_topics import bench_restoring_topics
from tests.bench.small_segments import bench_small_segments
from tests.bench.spark_scan import bench_spark_scan
from tests.bench.tail_mode import bench_tail_mode
from tests.bench.transforming import bench_transforming
from tests.bench.verbs import bench_verbs

NAMES = (
    *("filesystem", "s3", "s3-transformed", "s3-small", "transform", "cold", "metadata", "rebuild"),
    *("many", "huge", "decode", "append", "recovery", "loading", "reading", "python", "spark-scan"),
    *("compaction", "restore-log-dir", "restore-topic", "restore-store", "restore-plan"),
    *("endpoint", "tail", "push", "verbs"),
)


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--quick", action="store_true", help="little data, one round: a smoke test")
    parser.add_argument("--dir", type=Path, help="where the data goes; default: the temporary directory")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--page", type=Path, help="also write the goals into the section Goals of this page")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="tierd-bench-") as compiled, environment(_kept_bytecode(compiled)):
        for name in options.names or NAMES:
            with tempfile.TemporaryDirectory(prefix="tierd-bench-", dir=options.dir) as root:
                Path(root).chmod(0o711)
                found = run_one(name, Path(root), quick=options.quick)
            print_table(found)
            print(flush=True)
            figures += found
            _write(options, figures, is_whole=False)
    print_goals(figures)
    _write(options, figures, is_whole=not options.names)


def _write(options: argparse.Namespace, figures: Sequence[Figure], *, is_whole: bool) -> None:
    if options.json:
        write_json(figures, options.json)
    if options.page:
        today = datetime.now(UTC).date().isoformat()
        page = with_goals(options.page.read_text(), figures, measured=today, is_whole=is_whole)
        options.page.write_text(page)


def _kept_bytecode(directory: str) -> dict[str, str]:
    """Return the variables with which modules are compiled once, as in an installation, whatever the host forbids."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": directory}


def run_one(name: str, root: Path, *, quick: bool) -> list[Figure]:
    """Run one benchmark in an empty directory."""
    rounds = 1 if quick else 5
    match name:
        case "filesystem":
            return bench_filesystem(
                root, partitions=2 if quick else 4, segment_bytes=(64 if quick else 512) * MIB, rounds=rounds
            )
        case "s3":
            return bench_s3(root, segments=1 if quick else 4, segment_bytes=(64 if quick else 512) * MIB, rounds=rounds)
        case "s3-transformed":
            return bench_s3_transformed(
                root, segments=1 if quick else 2, segment_bytes=(64 if quick else 512) * MIB, rounds=rounds
            )
        case "s3-small":
            return bench_small_segments(
                root, partitions=10 if quick else 100, rolled_segments=5 if quick else 20, rounds=1 if quick else 3
            )
        case "metadata":
            return bench_metadata(
                root, segments=2_000 if quick else 100_000, seconds=0.3 if quick else 1, rounds=1 if quick else 3
            )
        case "rebuild":
            return bench_rebuild(root, segments=200 if quick else 10_000)
        case "decode":
            return bench_decode(data_bytes=(4 if quick else 16) * MIB, rounds=rounds)
        case "append":
            return bench_append(root, data_bytes=(64 if quick else 512) * MIB, rounds=rounds)
        case "reading":
            return bench_reading(root, size_bytes=(16 if quick else 512) * MIB, rounds=rounds)
        case "spark-scan":
            return bench_spark_scan(root, size_bytes=(64 if quick else 1024) * MIB, rounds=min(rounds, 3))
        case "python":
            return bench_python_reading(root, size_bytes=(32 if quick else 512) * MIB, rounds=min(rounds, 3))
        case "cold":
            return bench_cold_reading(root, size_bytes=(32 if quick else 256) * MIB, rounds=min(rounds, 3))
        case "transform":
            return bench_transforming(root, size_bytes=(32 if quick else 1024) * MIB, rounds=1 if quick else 3)
        case "recovery":
            return bench_recovery(root, data_bytes=(64 if quick else 1024) * MIB, rounds=rounds)
        case "compaction":
            return bench_compaction(
                root,
                size_bytes=(64 if quick else 4096) * MIB,
                keys=200_000 if quick else 10_000_000,
                rounds=min(rounds, 3),
            )
        case "restore-log-dir":
            return bench_restoring_log_dirs(
                root, segments=1 if quick else 4, segment_bytes=(32 if quick else 256) * MIB, rounds=rounds
            )
        case "restore-topic":
            return bench_restoring_topics(root, size_bytes=(32 if quick else 1024) * MIB, rounds=min(rounds, 3))
        case "restore-store":
            return bench_restoring_stores(root, keys=100_000 if quick else 10_000_000, rounds=min(rounds, 3))
        case "restore-plan":
            return bench_restore_planning(
                root, partitions=50 if quick else 10_000, rolled_segments=2 if quick else 1, rounds=min(rounds, 3)
            )
        case "endpoint":
            return bench_endpoint(root, size_bytes=(32 if quick else 1024) * MIB, rounds=min(rounds, 3))
        case "tail":
            return bench_tail_mode(
                root,
                partitions=200 if quick else 10_000,
                idle_s=2 if quick else 60,
                grown_bytes=(32 if quick else 1024) * MIB,
            )
        case "push":
            return bench_push(
                root,
                data_bytes=(32 if quick else 256) * MIB,
                rounds=rounds,
                seconds=2 if quick else 15,
                idle_partitions=200 if quick else 10_000,
            )
        case "verbs":
            return bench_verbs(root, rounds=rounds)
        case "huge":
            return bench_huge_start(
                root,
                partitions=100 if quick else 10_000,
                rolled_segments=5 if quick else 20,
                starts=1 if quick else 3,
            )
        case "loading":
            return bench_loading(root, partitions=200 if quick else 10_000, rounds=1 if quick else 3)
        case _:
            return bench_many_partitions(
                root,
                partitions=100 if quick else 2_000,
                rolled_segments=5 if quick else 20,
                idle_s=5 if quick else 30,
                starts=1 if quick else 3,
            )


if __name__ == "__main__":
    main()
