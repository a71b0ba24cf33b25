"""Tail mode: CPU and memory of idle partitions, CPU of growth, and the time from an append to the listener."""

import asyncio
import os
import time
from pathlib import Path
from statistics import quantiles

from tests.bench.child_process import resident_bytes
from tests.bench.report import Figure
from tests.fakes.eventually import eventually
from tests.log.batches import TOPIC_ID, plain
from tests.replication.tail.tail_listening import RecordingListener
from tierd.clock import SystemClock
from tierd.log import encode_topic_id, file_name
from tierd.model import TopicIdPartition
from tierd.replication.tail.tail_follower import TailFollower
from tierd.replication.tail.tail_values import TailSettings
from tierd.replication.tail.tailed_log import TailedLog

GIB = 1 << 30
AT_ONCE = 500  # of the calls that begin to follow
SETTLE_S = 2.0
APPENDS = 200


def bench_tail_mode(root: Path, *, partitions: int, idle_s: float, grown_bytes: int) -> list[Figure]:
    """Follow ``partitions`` small logs of one log dir that no broker writes, then let one of them grow."""
    return asyncio.run(_bench(root, partitions=partitions, idle_s=idle_s, grown_bytes=grown_bytes))


async def _bench(root: Path, *, partitions: int, idle_s: float, grown_bytes: int) -> list[Figure]:
    _write_logs(root, partitions)
    follower = TailFollower([root], TailSettings(), clock=SystemClock())
    running = asyncio.create_task(follower.run())
    before, begun_s = _resident_bytes(), time.process_time()
    logs: list[TailedLog] = []
    for first in range(0, partitions, AT_ONCE):
        wanted = range(first, min(first + AT_ONCE, partitions))
        logs += await asyncio.gather(*(follower.follow(TopicIdPartition(TOPIC_ID, "orders", each)) for each in wanted))
    start_s = time.process_time() - begun_s
    figures = [
        Figure("tail: partitions", partitions, ""),
        Figure("tail: start", 1e3 * start_s / partitions, "ms CPU each"),
        Figure("tail: memory", (_resident_bytes() - before) / partitions / 1024, "KiB each"),
        Figure("tail: idle partitions", await _idle_percent(follower, idle_s), "% of a core", "< 1"),
    ]
    for size_bytes in (1 << 20, 16 << 10):
        cpu_s = await _growth_cpu_s(follower, logs[0], _log_of(root, 0), size_bytes, grown_bytes)
        figures.append(Figure(f"tail: batches of {size_bytes >> 10} KiB", cpu_s * GIB / grown_bytes, "s CPU per GiB"))
    delays_ms = quantiles([1e3 * each for each in await _delays_s(logs[-1], _log_of(root, partitions - 1))], n=100)
    figures += [Figure(f"tail: append to listener, p{each}", delays_ms[each - 1], "ms") for each in (50, 99)]
    running.cancel()
    await asyncio.wait([running])
    return figures


async def _idle_percent(follower: TailFollower, idle_s: float) -> float:
    """Return the CPU of the process while nothing grows, with the checks of all partitions at their usual rate."""
    seen = [-1]

    def is_settled() -> bool:
        seen.append(follower.statistics().polls)
        return seen[-1] == seen[-2]

    await eventually(is_settled, what="the first polls", deadline_s=600, interval_s=SETTLE_S)
    begun_s, cpu_s = time.monotonic(), time.process_time()
    await asyncio.sleep(idle_s)
    return 100 * (time.process_time() - cpu_s) / (time.monotonic() - begun_s)


async def _growth_cpu_s(follower: TailFollower, log: TailedLog, path: Path, size_bytes: int, grown_bytes: int) -> float:
    begun_s, offset, batch = follower.statistics().cpu_s, log.log_end_offset, bytearray(plain(0, 1, size=size_bytes))
    with path.open("ab", buffering=0) as file:
        for _ in range(grown_bytes // len(batch)):
            batch[0:8] = offset.to_bytes(8, "big")
            file.write(batch)
            offset += 1
            await asyncio.sleep(0)
    await eventually(lambda: log.log_end_offset == offset, what="the last batch", deadline_s=600)
    return follower.statistics().cpu_s - begun_s


async def _delays_s(log: TailedLog, path: Path) -> list[float]:
    delays_s, listener = [], RecordingListener(log.log_end_offset)
    log.listen(listener)
    with path.open("ab", buffering=0) as file:
        for _ in range(APPENDS):
            offset = log.log_end_offset
            file.write(plain(offset, 1))
            begun_s = time.perf_counter()
            await listener.has_append.wait()
            delays_s.append(time.perf_counter() - begun_s)
            listener.has_append.clear()
            await asyncio.sleep(SETTLE_S / 100)
    return delays_s


def _write_logs(root: Path, partitions: int) -> None:
    batch = plain(0, 3)
    for number in range(partitions):
        path = _log_of(root, number)
        path.parent.mkdir()
        path.write_bytes(batch)
        (path.parent / "partition.metadata").write_bytes(encode_topic_id(TOPIC_ID))
        (path.parent / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def _log_of(root: Path, number: int) -> Path:
    return root / f"orders-{number}" / file_name(0, ".log")


def _resident_bytes() -> int:
    resident, _ = resident_bytes(os.getpid())
    return resident
