"""Small segments to S3: requests a second, against the bare client that puts as many small objects."""

import sys
from pathlib import Path
from typing import Final

from tests.bench.child_process import Cost, median_cost, run
from tests.bench.copying import interleaved, process_start, remote_section, tierd_copy
from tests.bench.report import Figure
from tests.fakes.log_dirs import write_log_dir
from tests.scenarios.installation import Installation
from tests.services.s3 import S3Admin, S3Service
from tests.services.services import Services

OBJECTS: Final = 3  # of a segment: log, indexes, manifest


def bench_small_segments(root: Path, *, partitions: int, rolled_segments: int, rounds: int) -> list[Figure]:
    """Copy ``partitions`` × ``rolled_segments`` segments of two small batches; each ends with two metadata commits."""
    log_dir = root / "logdir"
    write_log_dir(log_dir, partitions=partitions, rolled_segments=rolled_segments)
    segments = partitions * rolled_segments
    (root / "services").mkdir()
    with Services(root / "services") as services:
        service = S3Service.of(services.start("s3"), services)
        admin = S3Admin(service)

        def tierd() -> Cost:
            remote = remote_section(service, admin.create_bucket())
            return tierd_copy(Installation(root / "tierd", [log_dir], remote=remote))

        def bare(objects: int = OBJECTS * segments) -> Cost:
            bucket = admin.create_bucket()
            program = [sys.executable, "-m", "tests.bench.bare_puts"]
            return run([*program, service.endpoint_url, bucket, str(objects)])

        start = process_start(root, remote=remote_section(service, admin.create_bucket()))
        bare_start = median_cost([bare(1) for _ in range(3)])
        costs = interleaved(
            root,
            [tierd, bare],
            rounds=rounds,
            size_bytes=0,
            cleared=[root / "tierd"],
            emptied=[root / "services" / "s3" / "buckets"],
        )
        admin.close()
    ours, reference = map(median_cost, costs)
    our_rate = OBJECTS * segments / (ours.wall_s - start.wall_s)
    bare_rate = OBJECTS * segments / (reference.wall_s - bare_start.wall_s)
    return [
        Figure("small segments, S3: segments", segments, ""),
        Figure("small segments, S3: copied", our_rate / OBJECTS, "1/s"),
        Figure("small segments, S3: requests of tierd", our_rate, "1/s"),
        Figure("small segments, S3: requests of the bare client", bare_rate, "1/s"),
        Figure("small segments, S3: against the bare client", our_rate / bare_rate, "ratio", ">= 1"),
        Figure("small segments, S3: CPU of a segment", 1000 * (ours.cpu_s - start.cpu_s) / segments, "ms"),
        Figure(
            "small segments, S3: CPU of the bare client for three requests",
            1000 * (reference.cpu_s - bare_start.cpu_s) / segments,
            "ms",
        ),
    ]
