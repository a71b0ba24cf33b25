"""Compaction by the job on ``local[2]`` and by the cleaner of a real broker, on the same segments in the same run."""

import asyncio
import json
import os
import re
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from confluent_kafka import Producer
from crc32c import crc32c

from tests.bench.jvm import FAST_JVM, environment
from tests.bench.report import Figure
from tests.fakes.log_dirs import LogDirWriter
from tests.pipeline.spark.job_lab import JobLab
from tests.services.kafka_cluster import KafkaBroker
from tests.services.waiting import wait_until
from tierd.log import NewRecord, encode_batch
from tierd.pipeline.committing import RunStatistics
from tierd.pipeline.planning import CleaningPolicy

MIB = 1 << 20
_TOPIC = "compacted"
_CLEANED = re.compile(r"cleaned log compacted-0 .*?([\d,.]+) MB of log processed in ([\d,.]+) seconds", re.DOTALL)
_SAMPLE_INTERVAL_S = 0.05
_BATCH_RECORDS = 60
_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """Content of the topic; a key occurs four times on average."""

    name: str
    value_bytes: int
    codec: str
    records: int
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class JobCost:
    """Cost of one run of the job.

    Attributes:
        start_s: from the process to the session.
        work_s: from the session to the last commit.
        driver_bytes: of the JVM, which is driver and executor.
        worker_bytes: of the largest Python worker.
    """

    start_s: float
    work_s: float
    driver_bytes: int
    worker_bytes: int


def bench_compaction(root: Path, *, size_bytes: int, keys: int) -> list[Figure]:
    """Compact two shapes of topics by both, then so many different keys by the job alone.

    Args:
        root: an empty directory.
        size_bytes: of the records of the first topic; those of the second are a quarter of it, uncompressed.
        keys: different ones.
    """
    shapes = (
        Shape("1 KB", 1000, "none", size_bytes // 1000, size_bytes // 32),
        Shape("100 B lz4", 100, "lz4", size_bytes // 4 // 100, size_bytes // 128),
    )
    figures: list[Figure] = []
    for shape, goal in zip(shapes, (1.5, 1.0), strict=True):
        figures += asyncio.run(_against_the_cleaner(root / shape.name.replace(" ", "-"), shape, goal))
    return figures + asyncio.run(_many_keys(root / "keys", keys))


async def _against_the_cleaner(root: Path, shape: Shape, goal: float) -> list[Figure]:
    root.mkdir()
    log_dir = root / "logdir"
    cleaner = await asyncio.to_thread(_cleaner_rate, root / "lab", log_dir, shape)
    job, size_bytes, _ = await _job(root / "tier", log_dir, segment_bytes=shape.segment_bytes)
    rate = size_bytes / 1e6 / job.work_s
    return [
        Figure(f"compaction, {shape.name}: input", size_bytes / 1e6, "MB"),
        Figure(f"compaction, {shape.name}: log cleaner", cleaner, "MB/s"),
        Figure(f"compaction, {shape.name}: job", rate, "MB/s"),
        Figure(f"compaction, {shape.name}: job / log cleaner", rate / cleaner, "", f">= {goal:g}"),
        Figure(f"compaction, {shape.name}: start of the session", job.start_s, "s"),
    ]


def _cleaner_rate(lab_dir: Path, log_dir: Path, shape: Shape) -> float:
    """Fill a topic while the cleaner has no reason to run, then give it one; return the MB/s that the cleaner logs."""
    properties = {"log.cleaner.dedupe.buffer.size": str(128 * MIB), "log.cleaner.backoff.ms": "200"}
    with environment(FAST_JVM):
        broker = KafkaBroker(lab_dir, properties=properties)
    with broker:
        held = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}
        broker.create_topic(_TOPIC, configs=held, segment_bytes=shape.segment_bytes)
        _produce(broker.bootstrap, shape)
        source = broker.partition_dir(_TOPIC, 0)
        assert source is not None
        log_dir.mkdir()
        shutil.copytree(source, log_dir / source.name)
        end = broker.end_offset(_TOPIC, 0)
        (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{_TOPIC} 0 {end}\n")
        broker.alter_topic(_TOPIC, {"min.cleanable.dirty.ratio": "0.0001"})
        server_log = lab_dir / "node1" / "server.log"
        wait_until(lambda: _CLEANED.search(server_log.read_text()) is not None, what="the cleaner", deadline_s=180)
        megabytes, seconds = _CLEANED.search(server_log.read_text()).groups()  # type: ignore[union-attr]
    return float(megabytes.replace(",", "")) * MIB / 1e6 / float(seconds.replace(",", ""))


def _produce(bootstrap: str, shape: Shape) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": shape.codec,
            "linger.ms": 50,
            "batch.size": 16384,  # the default of the producer of Kafka
            "queue.buffering.max.messages": 200_000,
            "log_level": 2,
        }
    )
    random = np.random.default_rng(1)
    words = [random.bytes(12).hex().encode() for _ in range(200)]
    for start in range(0, shape.records, 50_000):
        count = min(50_000, shape.records - start)
        keys = random.integers(0, max(shape.records // 4, 1), count).tolist()
        chosen = random.integers(0, len(words), (count, shape.value_bytes // 24 + 1))
        for key, row in zip(keys, chosen, strict=True):
            value = b"".join([words[n] for n in row.tolist()])[: shape.value_bytes]
            producer.produce(_TOPIC, key=b"user-%010d" % key, value=value, partition=0)
        assert producer.flush(120) == 0


async def _many_keys(root: Path, keys: int) -> list[Figure]:
    root.mkdir()
    await asyncio.to_thread(_write_keys, root / "logdir", keys)
    job, size_bytes, found = await _job(root / "tier", root / "logdir", segment_bytes=64 * MIB)
    assert found.failed == found.refused == 0, found.problems
    return [
        Figure("compaction: different keys", keys / 1e6, "million"),
        Figure("compaction, those keys: job", size_bytes / 1e6 / job.work_s, "MB/s"),
        Figure("compaction, those keys: records", keys / 1e6 / job.work_s, "million/s"),
        Figure("compaction, those keys: driver and executor", job.driver_bytes / 1e6, "MB"),
        Figure("compaction, those keys: largest worker", job.worker_bytes / 1e6, "MB"),
    ]


def _write_keys(path: Path, keys: int, *, segments: int = 8) -> None:
    """Write a partition whose records all have different keys, with one batch as the template of all others."""
    log_dir = LogDirWriter(path)
    writer = log_dir.add_partition(_TOPIC)
    marks = [b"%0*d" % (_KEY_BYTES, n) for n in range(_BATCH_RECORDS)]
    template = encode_batch([NewRecord(mark, b"v" * 20, 1_700_000_000_000) for mark in marks])
    places = np.array([template.index(mark) for mark in marks])[:, None] + np.arange(_KEY_BYTES)
    batches = -(-keys // _BATCH_RECORDS)
    for number in range(batches):
        batch = np.frombuffer(template, dtype=np.uint8).copy()
        first = number * _BATCH_RECORDS
        names = b"".join(b"%0*d" % (_KEY_BYTES, n) for n in range(first, first + _BATCH_RECORDS))
        batch[places] = np.frombuffer(names, dtype=np.uint8).reshape(_BATCH_RECORDS, _KEY_BYTES)
        data = bytearray(batch.tobytes())
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
        writer.append_batch(bytes(data), _BATCH_RECORDS)
        if (number + 1) % -(-batches // segments) == 0:
            writer.roll()
    writer.roll()
    log_dir.write_checkpoints()


async def _job(root: Path, log_dir: Path, *, segment_bytes: int) -> tuple[JobCost, int, RunStatistics]:
    """Copy a partition to a tier and compact it there; return the cost, the bytes of the inputs and the outcome."""
    root.mkdir()
    name = f"{_TOPIC}-0"
    policy = CleaningPolicy(compacts=True, min_cleanable_dirty_ratio=0.0, segment_bytes=segment_bytes)
    async with JobLab.opened(root, log_dir) as lab:
        await lab.copy()
        size_bytes = sum(row.size_bytes for row in lab.rows(name))
        costs: list[JobCost] = []
        command = lab.command(master="local[2]")
        found = await lab.lead({name: policy}, lambda: costs.append(_run(command)))
    assert found.committed or found.unchanged, found.problems
    return costs[0], size_bytes, found


def _run(command: list[str]) -> JobCost:
    """Run the process of the job and watch its memory; times are those of its log."""
    peaks: dict[str, int] = {}
    ended = threading.Event()
    begun = datetime.now().astimezone()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    watch = threading.Thread(target=_watch_memory, args=(process.pid, peaks, ended))
    watch.start()
    _, output = process.communicate()
    ended.set()
    watch.join()
    if process.returncode:
        raise RuntimeError(f"the job ended with {process.returncode}: {output[-2000:]}")
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    times = {event["event"]: datetime.fromisoformat(event["timestamp"]) for event in events}
    return JobCost(
        start_s=(times["session_begins"] - begun).total_seconds(),
        work_s=(times["run_ends"] - times["session_begins"]).total_seconds(),
        driver_bytes=peaks.get("java", 0),
        worker_bytes=peaks.get("worker", 0),
    )


def _watch_memory(pid: int, peaks: dict[str, int], ended: threading.Event) -> None:
    while not ended.wait(_SAMPLE_INTERVAL_S):
        for kind, size_bytes in _memory_below(pid):
            peaks[kind] = max(peaks.get(kind, 0), size_bytes)


def _memory_below(pid: int) -> Iterator[tuple[str, int]]:
    """Return the resident memory of the descendants of a process, each with its kind: java or worker."""
    for child in _children(pid):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes()
            pages = int(Path(f"/proc/{child}/statm").read_text().split()[1])
        except (OSError, IndexError):
            continue  # the process has ended
        yield "java" if b"java" in words.split(b"\0")[0] else "worker", pages * os.sysconf("SC_PAGE_SIZE")
        yield from _memory_below(child)


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []
