"""A cold sequential read through a store that is far away, against a plain loop of ranged GETs on the same store."""

import asyncio
import shutil
from contextlib import aclosing
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple

from tests.bench.report import Figure
from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Tier
from tierd.log import identify_directory
from tierd.model import ByteRange
from tierd.remote import SegmentStorage
from tierd.remote.backends.memory import MemoryObjectStore
from tierd.tiering import FetchTask, Isolation, SilentRecorder, TieredLog

_MIB = 1 << 20
_PIECE_BYTES = 4 * _MIB
_PREFETCH_BYTES = 16 * _MIB
_SEGMENTS = 4
_BYTES_PER_SECOND = 1e9
_LATENCIES_S = (0.01, 0.05, 0.2)


class Cost(NamedTuple):
    """What one read took."""

    first_s: float
    total_s: float


class FarStore(MemoryObjectStore):
    """Every GET takes a latency, and its bytes a while after it."""

    latency_s = 0.0

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        content = await super().get(key, byte_range)
        await asyncio.sleep(self.latency_s + len(content) / _BYTES_PER_SECOND)
        return content


def bench_cold_reading(root: Path, *, size_bytes: int, rounds: int) -> list[Figure]:
    """Both read the same objects, in turns; ours also checks every batch, and begins with the segment's manifest."""
    return asyncio.run(_bench(root, size_bytes, rounds))


async def _bench(root: Path, size_bytes: int, rounds: int) -> list[Figure]:
    store = FarStore()
    shape = SegmentShape(batches=size_bytes // _SEGMENTS // 16_700, records_per_batch=16, value_bytes=1000)
    log_dir = write_log_dir(root / "kafka", partitions=1, rolled_segments=_SEGMENTS, shape=shape).path
    session = Tier(root, [log_dir], store=store).session()
    await session.copy_once()
    path = log_dir / "synthetic-0"
    partition = identify_directory(path)
    assert partition is not None
    rows = session.rows(partition.partition)
    total_bytes = sum(row.size_bytes for row in rows)
    keys = [info.key for info in await store.list_objects("") if info.key.endswith(".log")]
    view = session.metadata.view(partition.partition)
    shutil.rmtree(log_dir)
    figures: list[Figure] = []
    for store.latency_s in _LATENCIES_S:
        ours, plain = list[Cost](), list[Cost]()
        for _ in range(rounds):
            plain.append(await _plain_loop(store, keys, total_bytes // len(keys)))
            ours.append(await _through_both_tiers(store, TieredLog(partition.partition, view, None, None)))
        figures += _figures(f"cold read, {store.latency_s * 1000:.0f} ms away", total_bytes, ours, plain)
    return figures


def _figures(name: str, total_bytes: int, ours: list[Cost], plain: list[Cost]) -> list[Figure]:
    our_s, plain_s = median(cost.total_s for cost in ours), median(cost.total_s for cost in plain)
    first_s, plain_first_s = median(cost.first_s for cost in ours), median(cost.first_s for cost in plain)
    return [
        Figure(f"{name}: first batches", first_s * 1000, "ms"),
        Figure(f"{name}: first batches, relative to the loop", first_s / plain_first_s, "ratio"),
        Figure(f"{name}: sequential", total_bytes / our_s / 1e6, "MB/s"),
        Figure(f"{name}: relative to the loop", plain_s / our_s, "ratio", ">= 2"),
    ]


async def _plain_loop(store: FarStore, keys: list[str], size_bytes: int) -> Cost:
    start, first_s = perf_counter(), 0.0
    for key in keys:
        for position in range(0, size_bytes, _PIECE_BYTES):
            await store.get(key, ByteRange.of_size(position, min(_PIECE_BYTES, size_bytes - position)))
            first_s = first_s or perf_counter() - start
    return Cost(first_s, perf_counter() - start)


async def _through_both_tiers(store: FarStore, log: TieredLog) -> Cost:
    async def snapshot() -> TieredLog:
        return log

    storage = SegmentStorage(store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)  # anew: it knows no manifest yet
    task = FetchTask(
        snapshot, remote=storage, recorder=SilentRecorder(), prefetch_bytes=_PREFETCH_BYTES, piece_bytes=_PIECE_BYTES
    )
    start, first_s = perf_counter(), 0.0
    async with aclosing(task.batches(None, None, Isolation.READ_UNCOMMITTED)) as groups:
        async for _ in groups:
            first_s = first_s or perf_counter() - start
    return Cost(first_s, perf_counter() - start)
