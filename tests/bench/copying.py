"""Copy speed, as ratios within one run: tierd and its reference take turns, and medians are compared."""

import mmap
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.child_process import Cost, median_cost, run
from tests.bench.report import Figure
from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tests.scenarios.stores import s3_section
from tests.services.s3 import S3Admin, S3Service
from tests.services.services import Services

GB = 1_000_000_000
MIB = 1 << 20

_BATCH_VALUES = SegmentShape(records_per_batch=16, value_bytes=1000)  # about 16 KiB a batch


def segment_shape(segment_bytes: int) -> SegmentShape:
    """Segments of about ``segment_bytes`` in batches of 16 KiB, a producer's default."""
    return SegmentShape(
        batches=max(1, segment_bytes // len(_BATCH_VALUES.batch())), records_per_batch=16, value_bytes=1000
    )


def bench_filesystem(root: Path, *, partitions: int, segment_bytes: int, rounds: int) -> list[Figure]:
    """``tierd copy --once`` to the filesystem store against ``cp -r`` of the same files."""
    log_dir, size_bytes = _log_dir(root, partitions=partitions, segments=1, segment_bytes=segment_bytes)
    start = _process_start(root)
    target = root / "copied"

    def tierd() -> Cost:
        return _tierd_copy(Installation(root / "tierd", [log_dir]))

    def cp() -> Cost:
        return run(["cp", "-r", log_dir, target])

    def cp_synced() -> Cost:
        return run(["sh", "-c", f"cp -r '{log_dir}' '{target}' && find '{target}' -type f -exec sync {{}} +"])

    costs = _interleaved(
        root, [tierd, cp, cp_synced], rounds=rounds, size_bytes=size_bytes, cleared=[root / "tierd", target]
    )
    ours, plain, synced = (median_cost(cost) for cost in costs)
    net_s = ours.wall_s - start.wall_s
    return [
        Figure("filesystem: data", size_bytes / GB, "GB"),
        Figure("filesystem: process start", start.wall_s, "s"),
        Figure("filesystem: tierd, CRC of every batch, fsync", size_bytes / net_s / 1e6, "MB/s"),
        Figure("filesystem: cp -r", size_bytes / plain.wall_s / 1e6, "MB/s"),
        Figure("filesystem: cp -r, then sync of the files", size_bytes / synced.wall_s / 1e6, "MB/s"),
        Figure("filesystem: speed relative to cp -r with sync", synced.wall_s / net_s, "ratio", ">= 0.8"),
        Figure("filesystem: the same, process start counted", synced.wall_s / ours.wall_s, "ratio"),
        Figure("filesystem: speed relative to cp -r without sync", plain.wall_s / net_s, "ratio", ">= 0.8"),
        Figure("filesystem: CPU per GB", (ours.cpu_s - start.cpu_s) / (size_bytes / GB), "s/GB"),
        Figure("filesystem: peak memory", ours.peak_rss_bytes / 1e6, "MB", "<= 150"),
    ]


def bench_s3(root: Path, *, segments: int, segment_bytes: int, rounds: int) -> list[Figure]:
    """``tierd copy --once`` to S3 against the bare client library streaming the same files."""
    log_dir, size_bytes = _log_dir(root, partitions=1, segments=segments, segment_bytes=segment_bytes)
    start = _process_start(root)
    rolled = sorted((log_dir / "synthetic-0").glob("*.log"))[:-1]
    (root / "services").mkdir()
    with Services(root / "services") as services:
        settings = services.start("s3")
        service = S3Service(
            endpoint_url=settings["TIERD_TEST_S3_ENDPOINT"],
            region=settings["TIERD_TEST_S3_REGION"],
            access_key_id=settings["TIERD_TEST_S3_ACCESS_KEY"],
            secret_access_key=settings["TIERD_TEST_S3_SECRET_KEY"],
            services=services,
        )
        admin = S3Admin(service)

        def tierd() -> Cost:
            remote = s3_section(service, admin.create_bucket())
            del remote["retry"], remote["s3"]["read_timeout"]
            return _tierd_copy(Installation(root / "tierd", [log_dir], remote=remote))

        def bare() -> Cost:
            return run(_bare(service.endpoint_url, admin.create_bucket(), rolled))

        bare_start = run(_bare(service.endpoint_url, admin.create_bucket(), []))
        buckets = root / "services" / "s3" / "buckets"
        costs = _interleaved(
            root, [tierd, bare], rounds=rounds, size_bytes=size_bytes, cleared=[root / "tierd"], emptied=[buckets]
        )
        admin.close()
    ours, reference = (median_cost(cost) for cost in costs)
    net_s, bare_s = ours.wall_s - start.wall_s, reference.wall_s - bare_start.wall_s
    gigabytes = size_bytes / GB
    return [
        Figure("s3: data", gigabytes, "GB"),
        Figure("s3: segment size", segment_bytes / MIB, "MiB"),
        Figure("s3: tierd, CRC of every batch", size_bytes / net_s / 1e6, "MB/s"),
        Figure("s3: bare client", size_bytes / bare_s / 1e6, "MB/s"),
        Figure("s3: speed relative to the bare client", bare_s / net_s, "ratio", ">= 0.95"),
        Figure("s3: the same, process start counted", reference.wall_s / ours.wall_s, "ratio"),
        Figure("s3: client CPU per GB", (ours.cpu_s - start.cpu_s) / gigabytes, "s/GB", "<= 0.8"),
        Figure("s3: bare client CPU per GB", (reference.cpu_s - bare_start.cpu_s) / gigabytes, "s/GB"),
        Figure(
            "s3: client CPU relative to the bare client",
            (ours.cpu_s - start.cpu_s) / (reference.cpu_s - bare_start.cpu_s),
            "ratio",
            "<= 1.43",
        ),
        Figure("s3: peak memory", ours.peak_rss_bytes / 1e6, "MB", "<= 150"),
        Figure("s3: bare client peak memory", reference.peak_rss_bytes / 1e6, "MB"),
    ]


def _log_dir(root: Path, *, partitions: int, segments: int, segment_bytes: int) -> tuple[Path, int]:
    """A log dir with ``segments`` rolled segments in each partition, and the bytes of their logs."""
    log_dir = root / "logdir"
    shutil.rmtree(log_dir, ignore_errors=True)
    shape = segment_shape(segment_bytes)
    write_log_dir(log_dir, partitions=partitions, rolled_segments=segments, shape=shape)
    return log_dir, partitions * segments * shape.batches * len(shape.batch())


def _process_start(root: Path) -> Cost:
    """What ``copy --once`` costs when there is nothing to copy: the median of three."""
    empty = root / "empty"
    shutil.rmtree(empty, ignore_errors=True)
    write_log_dir(empty, partitions=1, rolled_segments=0)
    return median_cost([_tierd_copy(Installation(root / "start", [empty])) for _ in range(3)])


def _tierd_copy(installation: Installation) -> Cost:
    return run([TIERD, "copy", "--config", installation.config_file, "--once"])


def _bare(endpoint_url: str, bucket: str, files: Sequence[Path]) -> list[str | Path]:
    return [sys.executable, "-m", "tests.bench.bare_uploads", endpoint_url, bucket, *files]


def _interleaved(
    root: Path,
    contenders: Sequence[Callable[[], Cost]],
    *,
    rounds: int,
    size_bytes: int,
    cleared: Sequence[Path],
    emptied: Sequence[Path] = (),
) -> list[list[Cost]]:
    """Let every contender run once a round; what each leaves is removed, and the disk is quiet, before the next."""
    costs: list[list[Cost]] = [[] for _ in contenders]
    for round_number in range(rounds + 1):
        for contender, found in zip(contenders, costs, strict=True):
            for path in [*cleared, *(child for parent in emptied for child in parent.iterdir())]:
                shutil.rmtree(path, ignore_errors=True)
            (root / "tierd").mkdir(exist_ok=True)
            os.sync()
            _touch_free_memory(size_bytes)
            cost = contender()
            if round_number:  # the first round only warms the page cache
                found.append(cost)
    return costs


def _touch_free_memory(size_bytes: int) -> None:
    """Have the machine give memory for ``size_bytes`` of page cache before the clock runs.

    A virtual machine whose host takes free pages back pays more for the first touch of a page than for the copy into
    it, and who pays in a round is chance: the same loop of read and write cost 0.22 or 2.7 CPU seconds per GB.
    """
    with mmap.mmap(-1, size_bytes + size_bytes // 4) as memory:
        for page in range(0, len(memory), mmap.PAGESIZE):
            memory[page] = 1
