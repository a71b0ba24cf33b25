"""Restore of a log dir from a real S3 server, against a loop of ranged GETs that writes the same files."""

import filecmp
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.bench.child_process import Cost, median_cost, run
from tests.bench.copying import GB, interleaved, remote_section
from tests.bench.report import Figure
from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tests.services.s3 import S3Admin, S3Service
from tests.services.services import Services

_SHAPES: Final = {
    "16 KiB": SegmentShape(records_per_batch=16, value_bytes=1000),
    "1 KiB": SegmentShape(records_per_batch=4, value_bytes=230),
}
_COPY_DEADLINE_S: Final = 1800.0


def bench_restoring_log_dirs(root: Path, *, segments: int, segment_bytes: int, rounds: int) -> list[Figure]:
    """Restore one partition, with batches of either size; every batch and every index is checked.

    Both sides sync their files. tierd also writes indexes, checkpoints and a report.
    """
    figures: list[Figure] = []
    with _s3(root) as service:
        for name, shape in _SHAPES.items():
            lab = root / name.replace(" ", "-")
            batches = segment_bytes // len(shape.batch())
            shape_of = replace(shape, batches=batches)
            figures += _contest(lab, name, service, shape_of, segments=segments, rounds=rounds)
            shutil.rmtree(lab)
    return figures


@contextmanager
def _s3(root: Path) -> Iterator[S3Service]:
    (root / "services").mkdir(parents=True)
    with Services(root / "services") as services:
        yield S3Service.of(services.start("s3"), services)


def _contest(
    root: Path, name: str, service: S3Service, shape: SegmentShape, *, segments: int, rounds: int
) -> list[Figure]:
    size_bytes = segments * shape.batches * len(shape.batch())
    log_dir = root / "logdir"
    write_log_dir(log_dir, partitions=1, rolled_segments=segments, shape=shape)
    admin = S3Admin(service)
    bucket = admin.create_bucket()
    tier = Installation(root / "installation", [log_dir], remote=remote_section(service, bucket))
    copied = tier.tierd("copy", "--once", deadline_s=_COPY_DEADLINE_S)
    assert copied.exit_code == 0, copied.output
    keys = [key for key in admin.keys(bucket) if key.endswith(".log")]
    assert len(keys) == segments
    admin.overwrite(bucket, "smallest", b"x")
    admin.close()
    restored, downloaded = root / "restored", root / "downloaded"
    restore: list[str | Path] = [TIERD, "restore", "log-dir", "--config", tier.config_file, "--into", restored / "data"]
    restore += ["--mode", "last-copy", "--hold-retention"]

    def tierd(how: str = "--yes") -> Cost:
        shutil.rmtree(restored, ignore_errors=True)
        (restored / "data").mkdir(parents=True)
        return run([*restore, how])

    def bare(*names: str) -> Cost:
        shutil.rmtree(downloaded, ignore_errors=True)
        program = [sys.executable, "-m", "tests.bench.bare_downloads"]
        return run([*program, service.endpoint_url, bucket, downloaded, *(names or keys)])

    start = median_cost([tierd("--dry-run") for _ in range(3)])
    bare_start = median_cost([bare("smallest") for _ in range(3)])
    costs = interleaved(root, [tierd, bare], rounds=rounds, size_bytes=size_bytes, cleared=[restored, downloaded])
    tierd()
    for log in sorted((log_dir / "synthetic-0").glob("*.log"))[:-1]:
        assert filecmp.cmp(log, restored / "data" / "synthetic-0" / log.name, shallow=False)
    ours, reference = map(median_cost, costs)
    net_s, bare_s = ours.wall_s - start.wall_s, reference.wall_s - bare_start.wall_s
    gigabytes, label = size_bytes / GB, f"restore log dir, batches of {name}"
    return [
        Figure(f"{label}: data", gigabytes, "GB"),
        Figure(f"{label}: tierd, every batch and index checked", 1e3 * gigabytes / net_s, "MB/s"),
        Figure(f"{label}: loop of ranged GETs", 1e3 * gigabytes / bare_s, "MB/s"),
        Figure(f"{label}: relative to the loop", bare_s / net_s, "ratio", ">= 0.8"),
        Figure(f"{label}: the same, process start counted", reference.wall_s / ours.wall_s, "ratio"),
        Figure(f"{label}: CPU", (ours.cpu_s - start.cpu_s) / gigabytes, "s/GB"),
        Figure(f"{label}: CPU of the loop", (reference.cpu_s - bare_start.cpu_s) / gigabytes, "s/GB"),
        Figure(f"{label}: peak memory", ours.peak_rss_bytes / 1e6, "MB"),
    ]
