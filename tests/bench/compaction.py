"""Compaction by the job on ``local[2]`` and by the cleaner of a real broker, on the same segments in the same run."""

import asyncio
import json
import os
import re
import shutil
import struct
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median

import numpy as np
from confluent_kafka import Producer
from crc32c import crc32c

from tests.bench.jvm import FAST_JVM, environment
from tests.bench.report import Figure
from tests.fakes.log_dirs import LogDirWriter
from tests.pipeline.spark.job_lab import JobLab
from tests.services.kafka_cluster import KafkaBroker
from tests.services.waiting import wait_until
from tierd.log import CLEANER_OFFSET_CHECKPOINT, NewRecord, encode_batch, read_offset_checkpoint
from tierd.model import RemoteLogSegmentState, TopicPartition
from tierd.pipeline.committing import RunStatistics
from tierd.pipeline.planning import CleaningPolicy

MIB = 1 << 20
_TOPIC = "compacted"
_CLEANED = re.compile(r"cleaned log compacted-0 .*?([\d,.]+) MB of log processed in ([\d,.]+) seconds", re.DOTALL)
_SAMPLE_INTERVAL_S = 0.05
_RATIO = "min.cleanable.dirty.ratio"
_BATCH_RECORDS = 60
_KEY_BYTES = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """Content of the topic.

    Attributes:
        records: of the whole log when it is compacted.
        dirty_ratio: share of the records that are new since the cleaner was there. Without a clean part, a key occurs
            four times on average; a clean part has one record of every key, and the new records have keys of these.
        goal: of the ratio of the job's speed to the cleaner's.
    """

    name: str
    value_bytes: int
    codec: str
    records: int
    segment_bytes: int
    dirty_ratio: float
    goal: str

    @property
    def dirty_records(self) -> int:
        """Return the number of new records."""
        return round(self.records * self.dirty_ratio)


@dataclass(frozen=True, slots=True)
class JobCost:
    """Cost of one run of the job.

    Attributes:
        start_s: from the process to the session.
        work_s: from the session to the last commit.
        driver_bytes: of the JVM, which is driver and executor.
        worker_bytes: of the largest Python worker.
        fetched_bytes: that tasks fetched from the store.
    """

    start_s: float
    work_s: float
    driver_bytes: int
    worker_bytes: int
    fetched_bytes: int


@dataclass(frozen=True, slots=True)
class InputBytes:
    """Bytes of the logs that the job gets: of all, and of those that are not compacted yet."""

    total: int
    dirty: int


@dataclass(frozen=True, slots=True)
class Contest:
    """One run of both sides over the same segments.

    Attributes:
        cleaner: MB/s of the log cleaner.
        job: its cost.
        inputs: bytes that the job got.
    """

    cleaner: float
    job: JobCost
    inputs: InputBytes

    @property
    def rate(self) -> float:
        """Return the MB/s of the job."""
        return self.inputs.total / 1e6 / self.job.work_s


def bench_compaction(root: Path, *, size_bytes: int, keys: int, rounds: int) -> list[Figure]:
    """Compact topics of several shapes by both, then so many different keys by the job alone.

    Args:
        root: an empty directory.
        size_bytes: of the records of the topics of 1 KB; those of the other are a quarter of it, uncompressed.
        keys: different ones.
        rounds: runs of each shape, each with a topic of its own; figures are medians.
    """
    large, small = size_bytes // 1000, size_bytes // 4 // 100
    shapes = (
        Shape("1 KB", 1000, "none", large, size_bytes // 32, 1.0, ">= 1.5"),
        Shape("1 KB, half dirty", 1000, "none", large, size_bytes // 32, 0.5, ">= 2"),
        Shape("1 KB, a tenth dirty", 1000, "none", large, size_bytes // 32, 0.1, ">= 3"),
        Shape("100 B lz4", 100, "lz4", small, size_bytes // 128, 1.0, ">= 1"),
    )
    figures: list[Figure] = []
    for shape in shapes:
        figures += contest_figures(shape, [_against_the_cleaner(root / "shape", shape) for _ in range(rounds)])
    return figures + asyncio.run(_many_keys(root / "keys", keys))


def contest_figures(shape: Shape, contests: Sequence[Contest]) -> list[Figure]:
    """Return the medians of the runs of one shape. The ratio is the median of the runs' ratios, not that of medians."""
    inputs = contests[0].inputs
    fetched = median(run.job.fetched_bytes for run in contests)
    ratio = median(run.rate / run.cleaner for run in contests)
    return [
        Figure(f"compaction, {shape.name}: input", inputs.total / 1e6, "MB"),
        Figure(f"compaction, {shape.name}: dirty part of it", inputs.dirty / 1e6, "MB"),
        Figure(f"compaction, {shape.name}: log cleaner", median(run.cleaner for run in contests), "MB/s"),
        Figure(f"compaction, {shape.name}: job", median(run.rate for run in contests), "MB/s"),
        Figure(f"compaction, {shape.name}: job / log cleaner", ratio, "", shape.goal),
        Figure(f"compaction, {shape.name}: fetched", fetched / 1e6, "MB"),
        Figure(
            f"compaction, {shape.name}: fetched / (dirty + all)", fetched / (inputs.dirty + inputs.total), "", "<= 1.1"
        ),
        Figure(f"compaction, {shape.name}: start of the session", median(run.job.start_s for run in contests), "s"),
    ]


def _against_the_cleaner(root: Path, shape: Shape) -> Contest:
    root.mkdir()
    cleaner = _cleaner_rate(root / "lab", root / "logdir", shape)
    job, inputs, _ = asyncio.run(_job(root / "tier", root / "logdir", segment_bytes=shape.segment_bytes))
    shutil.rmtree(root)
    return Contest(cleaner, job, inputs)


def _cleaner_rate(lab_dir: Path, log_dir: Path, shape: Shape) -> float:
    """Fill a topic, with a part that the cleaner has cleaned if the shape has one, and keep a copy of its files.

    The cleaner gets a reason to run by a small ratio, and none by a ratio of 1. Returns the MB/s that it logs of the
    last run, which began with the files of the copy.
    """
    properties = {"log.cleaner.dedupe.buffer.size": str(128 * MIB), "log.cleaner.backoff.ms": "200"}
    with environment(FAST_JVM):
        broker = KafkaBroker(lab_dir, properties=properties)
    with broker:
        held = {"cleanup.policy": "compact", _RATIO: "1.0"}
        broker.create_topic(_TOPIC, configs=held, segment_bytes=shape.segment_bytes)
        server_log = lab_dir / "node1" / "server.log"
        clean_records = shape.records - shape.dirty_records
        if clean_records:
            _produce(broker.bootstrap, shape, range(clean_records))
            _clean(broker, server_log, runs=1)
            broker.alter_topic(_TOPIC, {_RATIO: "1.0"})
        keys = clean_records or max(shape.records // 4, 1)
        _produce(broker.bootstrap, shape, np.random.default_rng(2).integers(0, keys, shape.dirty_records).tolist())
        source = broker.partition_dir(_TOPIC, 0)
        assert source is not None
        log_dir.mkdir()
        shutil.copytree(source, log_dir / source.name, ignore=shutil.ignore_patterns("*.deleted"))
        end = broker.end_offset(_TOPIC, 0)
        (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\n{_TOPIC} 0 {end}\n")
        if clean_records:
            shutil.copy(source.parent / CLEANER_OFFSET_CHECKPOINT, log_dir)
        megabytes, seconds = _clean(broker, server_log, runs=1 + bool(clean_records))
    return float(megabytes.replace(",", "")) * MIB / 1e6 / float(seconds.replace(",", ""))


def _clean(broker: KafkaBroker, server_log: Path, *, runs: int) -> tuple[str, str]:
    """Give the cleaner a reason to run; return MB and seconds of the run with which it has made so many runs.

    Raises:
        RuntimeError: it has made another number of runs, so that the files of the copy are not those of this run.
    """

    def found() -> list[tuple[str, str]]:
        return _CLEANED.findall(server_log.read_text())

    before = len(found())
    broker.alter_topic(_TOPIC, {_RATIO: "0.0001"})
    wait_until(lambda: len(found()) > before, what="the cleaner", deadline_s=180)
    if (before, len(found())) != (runs - 1, runs):
        raise RuntimeError(f"the cleaner has made {len(found())} runs, {before} of them too early; not {runs} in all")
    return found()[-1]


def _produce(bootstrap: str, shape: Shape, keys: Sequence[int]) -> None:
    """Produce a record of each of ``keys``, in this order."""
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
    for start in range(0, len(keys), 50_000):
        some = keys[start : start + 50_000]
        chosen = random.integers(0, len(words), (len(some), shape.value_bytes // 24 + 1))
        for key, row in zip(some, chosen, strict=True):
            value = b"".join([words[n] for n in row.tolist()])[: shape.value_bytes]
            producer.produce(_TOPIC, key=b"user-%010d" % key, value=value, partition=0)
        assert producer.flush(120) == 0


async def _many_keys(root: Path, keys: int) -> list[Figure]:
    root.mkdir()
    await asyncio.to_thread(_write_keys, root / "logdir", keys)
    job, inputs, found = await _job(root / "tier", root / "logdir", segment_bytes=64 * MIB)
    assert found.failed == found.refused == 0, found.problems
    return [
        Figure("compaction: different keys", keys / 1e6, "million"),
        Figure("compaction, those keys: job", inputs.total / 1e6 / job.work_s, "MB/s"),
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


async def _job(root: Path, log_dir: Path, *, segment_bytes: int) -> tuple[JobCost, InputBytes, RunStatistics]:
    """Copy a partition to a tier and compact it there; return the cost, the bytes of the inputs and the outcome.

    An earlier run of the job has compacted what the broker's cleaner has cleaned. That run joins segments, so that it
    rewrites them all, as a run over new records does.
    """
    root.mkdir()
    name = f"{_TOPIC}-0"
    cleaned = read_offset_checkpoint(log_dir / CLEANER_OFFSET_CHECKPOINT)
    first_dirty = cleaned.get(TopicPartition(_TOPIC, 0), 0)
    policy = CleaningPolicy(
        compacts=True,
        min_cleanable_dirty_ratio=0.0,
        segment_bytes=2 * segment_bytes if first_dirty else segment_bytes,
    )
    costs: list[JobCost] = []
    async with JobLab.opened(root, log_dir) as lab:
        if first_dirty:
            with _hidden(log_dir / name, root / "dirty", behind=first_dirty):
                await lab.copy()
                command = lab.command(master="local[2]")
                before = await lab.lead({name: policy}, lambda: costs.append(_run(command)))
                assert before.committed, before.problems
        await lab.copy()
        rows = [row for row in lab.rows(name) if row.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
        inputs = InputBytes(
            total=sum(row.size_bytes for row in rows),
            dirty=sum(row.size_bytes for row in rows if row.end_offset >= first_dirty),
        )
        command = lab.command(master="local[2]")
        found = await lab.lead({name: policy}, lambda: costs.append(_run(command)))
    assert found.committed or found.unchanged, found.problems
    return costs[-1], inputs, found


@contextmanager
def _hidden(directory: Path, aside: Path, *, behind: int) -> Iterator[None]:
    """Have the log end with the segment that begins at offset ``behind``, which is the active one meanwhile."""
    aside.mkdir()
    checkpoint = directory.parent / "replication-offset-checkpoint"
    whole = checkpoint.read_text()
    checkpoint.write_text(f"0\n1\n{_TOPIC} 0 {behind}\n")
    moved = [path for path in directory.glob("[0-9]*.*") if int(path.stem) > behind]
    for path in moved:
        path.rename(aside / path.name)
    yield
    for path in moved:
        (aside / path.name).rename(path)
    checkpoint.write_text(whole)


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
        fetched_bytes=next(event["fetched_bytes"] for event in events if event["event"] == "run_ends"),
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
