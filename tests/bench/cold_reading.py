"""Cold sequential read of a distant store, against a plain loop of ranged GETs of the same client.

There are two stores: one in memory with a delay, where the network costs no CPU, and a real S3 server behind a proxy
that delays every answer, read through obstore. Both readers are in one process with the settings of the daemon.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

from tests.bench.report import Figure
from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.scenarios.stores import s3_section
from tests.services.faulty_path import FaultyPath
from tests.services.s3 import S3Admin, S3Service
from tests.services.services import Services
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Tier
from tierd.app import Deployment, run_in_loop, tune_memory
from tierd.clock import SystemClock
from tierd.config import FetchSettings, TierdConfig
from tierd.log import identify_directory
from tierd.metadata import PartitionView
from tierd.model import ByteRange, IsolationLevel
from tierd.remote import ObjectStore, SegmentStorage
from tierd.tiering import FetchTask, SilentRecorder, TieredLog

_PIECE_BYTES = 4 << 20
_PREFETCH_BYTES = FetchSettings().prefetch_bytes
_SEGMENTS = 4
_BYTES_PER_SECOND = 1e9
_LATENCIES_MS = (10, 50, 200)


class Cost(NamedTuple):
    """Cost of one read."""

    first_s: float
    total_s: float
    cpu_s: float


@dataclass(frozen=True)
class Cold:
    """Partition that is in the tier alone."""

    view: PartitionView
    keys: Sequence[str]
    total_bytes: int


class FarStore(MemoryObjectStore):
    """Store whose every GET takes a latency, and its bytes a while after it."""

    latency_s = 0.0

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        content = await super().get(key, byte_range)
        await asyncio.sleep(self.latency_s + len(content) / _BYTES_PER_SECOND)
        return content


def bench_cold_reading(root: Path, *, size_bytes: int, rounds: int) -> list[Figure]:
    """Read the same objects by both in turns; tierd also checks every batch, and begins with the manifest."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_figures, root, size_bytes, rounds).result()


def _figures(root: Path, size_bytes: int, rounds: int) -> list[Figure]:
    tune_memory()
    return [
        *run_in_loop(_bench_memory(root / "memory", size_bytes, rounds)),
        *run_in_loop(_bench_s3(root / "s3", size_bytes // 2, rounds)),
    ]


async def _bench_memory(root: Path, size_bytes: int, rounds: int) -> list[Figure]:
    store = FarStore()
    cold = await _copied(root, store, size_bytes)
    figures: list[Figure] = []
    for latency_ms in _LATENCIES_MS:
        store.latency_s = latency_ms / 1000
        figures += await _contest(f"cold read, memory {latency_ms} ms away", store, cold, rounds)
    return figures


async def _bench_s3(root: Path, size_bytes: int, rounds: int) -> list[Figure]:
    (root / "services").mkdir(parents=True)
    figures: list[Figure] = []
    with Services(root / "services") as services:
        service = S3Service.of(services.start("s3"), services)
        path = FaultyPath(services.start("toxiproxy")["TIERD_TEST_TOXIPROXY_URL"], service.endpoint_url)
        admin = S3Admin(service)
        async with _opened(root, service, admin.create_bucket(), path) as store:
            admin.close()
            cold = await _copied(root, store, size_bytes)
            figures += await _contest("cold read, S3 at hand", store, cold, rounds, speed_goal="")
            for latency_ms in _LATENCIES_MS:
                path.add("latency", latency=latency_ms)
                figures += await _contest(f"cold read, S3 {latency_ms} ms away", store, cold, rounds)
                path.remove("latency")
    return figures


@asynccontextmanager
async def _opened(root: Path, service: S3Service, bucket: str, path: FaultyPath) -> AsyncIterator[ObjectStore]:
    """Open the stack of stores through which a daemon reads."""
    config = TierdConfig.model_validate(
        {
            "state_dir": str(root / "state"),
            "log_dirs": [{"path": str(root / "kafka")}],
            "remote": s3_section(service, bucket, endpoint_url=path.endpoint_url),
        }
    )
    async with Deployment(config, root / "tierd.yaml").object_store(clock=SystemClock()) as store:
        yield store


async def _copied(root: Path, store: ObjectStore, size_bytes: int) -> Cold:
    shape = SegmentShape(batches=size_bytes // _SEGMENTS // 16_700, records_per_batch=16, value_bytes=1000)
    log_dir = write_log_dir(root / "kafka", partitions=1, rolled_segments=_SEGMENTS, shape=shape).path
    session = Tier(root, [log_dir], store=store).session()
    await session.copy_once()
    partition = identify_directory(log_dir / "synthetic-0")
    assert partition is not None
    total_bytes = sum(row.size_bytes for row in session.rows(partition.partition))
    keys = [info.key for info in await store.list_objects("") if info.key.endswith(".log")]
    assert len(keys) == _SEGMENTS
    shutil.rmtree(log_dir)
    return Cold(session.metadata.view(partition.partition), keys, total_bytes)


async def _contest(name: str, store: ObjectStore, cold: Cold, rounds: int, *, speed_goal: str = ">= 2") -> list[Figure]:
    ours, plain = list[Cost](), list[Cost]()
    for _ in range(rounds):
        plain.append(await _plain_loop(store, cold))
        ours.append(await _through_both_tiers(store, cold))
    first_s, plain_first_s = median(cost.first_s for cost in ours), median(cost.first_s for cost in plain)
    our_s, plain_s = median(cost.total_s for cost in ours), median(cost.total_s for cost in plain)
    our_cpu_s, plain_cpu_s = median(cost.cpu_s for cost in ours), median(cost.cpu_s for cost in plain)
    gigabytes = cold.total_bytes / 1e9
    return [
        Figure(f"{name}: first batches", first_s * 1000, "ms"),
        Figure(f"{name}: first batches, relative to the loop", first_s / plain_first_s, "ratio", "<= 2"),
        Figure(f"{name}: sequential", cold.total_bytes / our_s / 1e6, "MB/s"),
        Figure(f"{name}: relative to the loop", plain_s / our_s, "ratio", speed_goal),
        Figure(f"{name}: CPU", our_cpu_s / gigabytes, "s/GB"),
        Figure(f"{name}: CPU of the loop", plain_cpu_s / gigabytes, "s/GB"),
        Figure(f"{name}: CPU, relative to the loop", our_cpu_s / plain_cpu_s, "ratio", "<= 1.2"),
    ]


async def _plain_loop(store: ObjectStore, cold: Cold) -> Cost:
    size_bytes = cold.total_bytes // len(cold.keys)
    begun_s, begun_cpu_s, first_s = perf_counter(), process_time(), 0.0
    for key in cold.keys:
        for position in range(0, size_bytes, _PIECE_BYTES):
            await store.get(key, ByteRange.of_size(position, min(_PIECE_BYTES, size_bytes - position)))
            first_s = first_s or perf_counter() - begun_s
    return Cost(first_s, perf_counter() - begun_s, process_time() - begun_cpu_s)


async def _through_both_tiers(store: ObjectStore, cold: Cold) -> Cost:
    log = TieredLog(cold.view.partition, cold.view, None, None)

    async def snapshot() -> TieredLog:
        return log

    storage = SegmentStorage(store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)  # a new reader: it has no manifest yet
    task = FetchTask(
        snapshot, remote=storage, recorder=SilentRecorder(), prefetch_bytes=_PREFETCH_BYTES, piece_bytes=_PIECE_BYTES
    )
    begun_s, begun_cpu_s, first_s, size_bytes = perf_counter(), process_time(), 0.0, 0
    async with aclosing(task.batches(None, None, IsolationLevel.READ_UNCOMMITTED)) as groups:
        async for group in groups:
            first_s = first_s or perf_counter() - begun_s
            size_bytes += sum(batch.size_bytes for batch in group.batches)
    assert size_bytes == cold.total_bytes
    return Cost(first_s, perf_counter() - begun_s, process_time() - begun_cpu_s)
