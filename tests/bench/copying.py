"""Copy speed, as ratios within one run: tierd and its reference take turns, and medians are compared."""

import base64
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.child_process import Cost, median_cost, run
from tests.bench.report import Figure
from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.stores import s3_section
from tests.services.s3 import S3Admin, S3Service
from tests.services.services import Services

GB = 1_000_000_000
MIB = 1 << 20

_BATCH_VALUES = SegmentShape(records_per_batch=16, value_bytes=1000)  # about 16 KiB a batch


def segment_shape(segment_bytes: int) -> SegmentShape:
    """Return a shape of segments of about ``segment_bytes`` in batches of 16 KiB, the default of a producer."""
    return SegmentShape(
        batches=max(1, segment_bytes // len(_BATCH_VALUES.batch())), records_per_batch=16, value_bytes=1000
    )


def bench_filesystem(root: Path, *, partitions: int, segment_bytes: int, rounds: int) -> list[Figure]:
    """Compare ``tierd copy --once`` to the filesystem store with ``cp -r`` of the same files."""
    log_dir, size_bytes = _log_dir(root, partitions=partitions, segments=1, segment_bytes=segment_bytes)
    start = process_start(root)
    target = root / "copied"

    def tierd() -> Cost:
        return tierd_copy(Installation(root / "tierd", [log_dir]))

    def cp() -> Cost:
        return run(["cp", "-r", log_dir, target])

    def cp_synced() -> Cost:
        return run(["sh", "-c", f"cp -r '{log_dir}' '{target}' && find '{target}' -type f -exec sync {{}} +"])

    costs = interleaved(
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
    """Compare ``tierd copy --once`` to S3 with the bare client library streaming the same files."""
    with _s3_contest(root, segments=segments, segment_bytes=segment_bytes, rounds=rounds) as contest:
        (ours,), reference = contest.run([{}])
    net_s, bare_s = ours.wall_s - contest.start.wall_s, reference.wall_s - contest.bare_start.wall_s
    our_cpu_s, bare_cpu_s = contest.cpu_s_per_gb(ours), contest.bare_cpu_s_per_gb(reference)
    return [
        Figure("s3: data", contest.gigabytes, "GB"),
        Figure("s3: segment size", segment_bytes / MIB, "MiB"),
        Figure("s3: tierd, CRC of every batch", 1e3 * contest.gigabytes / net_s, "MB/s"),
        Figure("s3: bare client", 1e3 * contest.gigabytes / bare_s, "MB/s"),
        Figure("s3: speed relative to the bare client", bare_s / net_s, "ratio", ">= 0.95"),
        Figure("s3: the same, process start counted", reference.wall_s / ours.wall_s, "ratio"),
        Figure("s3: client CPU per GB", our_cpu_s, "s/GB", "<= 0.8"),
        Figure("s3: bare client CPU per GB", bare_cpu_s, "s/GB"),
        Figure("s3: client CPU relative to the bare client", our_cpu_s / bare_cpu_s, "ratio", "<= 1.43"),
        Figure("s3: peak memory", ours.peak_rss_bytes / 1e6, "MB", "<= 150"),
        Figure("s3: bare client peak memory", reference.peak_rss_bytes / 1e6, "MB"),
    ]


def bench_s3_transformed(root: Path, *, segments: int, segment_bytes: int, rounds: int) -> list[Figure]:
    """Compare compressed, encrypted and plain copies: original bytes per CPU second, against the bare client."""
    names = ("off", "zstd", "aes", "zstd + aes")
    with _s3_contest(root, segments=segments, segment_bytes=segment_bytes, rounds=rounds) as contest:
        ours, reference = contest.run([_transformation(name) for name in names])
    bare_cpu_s = contest.bare_cpu_s_per_gb(reference)
    bare_s = reference.wall_s - contest.bare_start.wall_s
    figures = [Figure("s3: bare client, per CPU second", 1e3 / bare_cpu_s, "MB")]
    for name, cost in zip(names, ours, strict=True):
        cpu_s = contest.cpu_s_per_gb(cost)
        figures += [
            Figure(f"s3, {name}: per CPU second", 1e3 / cpu_s, "MB"),
            Figure(f"s3, {name}: per CPU second, relative to the bare client", bare_cpu_s / cpu_s, "ratio"),
            Figure(f"s3, {name}: speed, relative to it", bare_s / (cost.wall_s - contest.start.wall_s), "ratio"),
        ]
    off, zstd, aes, both = map(contest.cpu_s_per_gb, ours)
    return [
        *figures,
        Figure("s3, aes: per CPU second, relative to off", off / aes, "ratio", ">= 0.65"),
        Figure("s3, zstd + aes: per CPU second, relative to zstd", zstd / both, "ratio", ">= 0.9"),
    ]


def _transformation(name: str) -> Settings:
    """Return settings of ``remote`` beside those of the store."""
    settings: Settings = {}
    if "zstd" in name:
        settings["compression"] = {"type": "zstd"}
    if "aes" in name:
        key = base64.b64encode(bytes(range(32))).decode()
        settings["encryption"] = {"enabled": True, "active_key": "bench", "keys": [{"id": "bench", "key": key}]}
    return settings


@dataclass(frozen=True)
class _Contest:
    """Log dir, a real S3 server, and the cost of the starts of both processes."""

    root: Path
    log_dir: Path
    size_bytes: int
    rounds: int
    service: S3Service
    admin: S3Admin
    start: Cost
    bare_start: Cost

    @property
    def gigabytes(self) -> float:
        return self.size_bytes / GB

    def cpu_s_per_gb(self, ours: Cost) -> float:
        return (ours.cpu_s - self.start.cpu_s) / self.gigabytes

    def bare_cpu_s_per_gb(self, reference: Cost) -> float:
        return (reference.cpu_s - self.bare_start.cpu_s) / self.gigabytes

    def run(self, kinds: Sequence[Settings]) -> tuple[list[Cost], Cost]:
        """Return the medians of tierd with each kind of ``remote`` settings, and of the bare client."""
        rolled = sorted((self.log_dir / "synthetic-0").glob("*.log"))[:-1]

        def tierd(settings: Settings) -> Cost:
            remote = remote_section(self.service, self.admin.create_bucket()) | settings
            return tierd_copy(Installation(self.root / "tierd", [self.log_dir], remote=remote))

        def bare() -> Cost:
            return run(_bare(self.service.endpoint_url, self.admin.create_bucket(), rolled))

        costs = interleaved(
            self.root,
            [*(partial(tierd, settings) for settings in kinds), bare],
            rounds=self.rounds,
            size_bytes=self.size_bytes,
            cleared=[self.root / "tierd"],
            emptied=[self.root / "services" / "s3" / "buckets"],
        )
        *ours, reference = map(median_cost, costs)
        return ours, reference


@contextmanager
def _s3_contest(root: Path, *, segments: int, segment_bytes: int, rounds: int) -> Iterator[_Contest]:
    log_dir, size_bytes = _log_dir(root, partitions=1, segments=segments, segment_bytes=segment_bytes)
    (root / "services").mkdir()
    smallest = root / "smallest"
    smallest.write_bytes(b"x")
    with Services(root / "services") as services:
        service = S3Service.of(services.start("s3"), services)
        admin = S3Admin(service)
        # Both starts make their clients, which costs 0.2 to 0.4 s of CPU each: the bare one makes one for each file.
        start = process_start(root, remote=remote_section(service, admin.create_bucket()))
        smallest_files = [smallest] * segments
        bare_start = median_cost(
            [run(_bare(service.endpoint_url, admin.create_bucket(), smallest_files)) for _ in range(3)]
        )
        yield _Contest(root, log_dir, size_bytes, rounds, service, admin, start, bare_start)
        admin.close()


def _log_dir(root: Path, *, partitions: int, segments: int, segment_bytes: int) -> tuple[Path, int]:
    """Make a log dir with ``segments`` rolled segments in each partition; return it with the bytes of the logs."""
    log_dir = root / "logdir"
    shutil.rmtree(log_dir, ignore_errors=True)
    shape = segment_shape(segment_bytes)
    write_log_dir(log_dir, partitions=partitions, rolled_segments=segments, shape=shape)
    return log_dir, partitions * segments * shape.batches * len(shape.batch())


def remote_section(service: S3Service, bucket: str) -> Settings:
    """Return the section of a bucket, with the limits of users."""
    remote = s3_section(service, bucket)
    del remote["retry"], remote["s3"]["read_timeout"]
    return remote


def process_start(root: Path, remote: Settings | None = None) -> Cost:
    """Return the cost of ``copy --once`` without segments to copy: the median of three."""
    empty = root / "empty"
    shutil.rmtree(empty, ignore_errors=True)
    write_log_dir(empty, partitions=1, rolled_segments=0)
    return median_cost([tierd_copy(Installation(root / "start", [empty], remote=remote)) for _ in range(3)])


def tierd_copy(installation: Installation) -> Cost:
    """Return the cost of ``copy --once``."""
    return run([TIERD, "copy", "--config", installation.config_file, "--once"])


def _bare(endpoint_url: str, bucket: str, files: Sequence[Path]) -> list[str | Path]:
    return [sys.executable, "-m", "tests.bench.bare_uploads", endpoint_url, bucket, *files]


def interleaved(
    root: Path,
    contenders: Sequence[Callable[[], Cost]],
    *,
    rounds: int,
    size_bytes: int,
    cleared: Sequence[Path],
    emptied: Sequence[Path] = (),
) -> list[list[Cost]]:
    """Run every contender once a round; remove its output, and let the disk come to rest, before the next."""
    costs: list[list[Cost]] = [[] for _ in contenders]
    for round_number in range(rounds + 1):
        for contender, found in zip(contenders, costs, strict=True):
            for path in [*cleared, *(child for parent in emptied for child in parent.iterdir())]:
                shutil.rmtree(path, ignore_errors=True)
            (root / "tierd").mkdir(exist_ok=True)
            os.sync()
            touch_free_memory(root, size_bytes)
            cost = contender()
            if round_number:  # the first round only warms the page cache
                found.append(cost)
    return costs


def touch_free_memory(root: Path, size_bytes: int) -> None:
    """Make the machine provide memory for ``size_bytes`` of page cache before the measurement.

    A virtual machine whose host reclaims free pages pays more for the first touch of a page than for the copy into it,
    and the contender that pays is random: the same loop of read and write cost 0.22 or 2.7 CPU seconds per GB. Pages of
    a file that is gone are taken first for the next file; those of a program are not.
    """
    piece = bytes(MIB)
    with tempfile.TemporaryFile(dir=root, buffering=0) as file:
        for _ in range((size_bytes + size_bytes // 4) // MIB):
            file.write(piece)
