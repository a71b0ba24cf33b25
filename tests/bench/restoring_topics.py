"""Restore of a topic into a live cluster, against Kafka's own producer-perf tool with records of the same size.

Both send uncompressed records to the same broker, with acknowledgements of all replicas, in turns. The tool makes its
records itself. tierd reads them from a tier on the same disk, and checks the CRC of every batch and of every chunk.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final
from uuid import uuid4

from tests.bench.child_process import median_cost, run
from tests.bench.jvm import FAST_JVM, environment
from tests.bench.report import Figure
from tests.fakes.log_dirs import SegmentShape, write_log_dir
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tests.services.kafka_cluster import KafkaBroker, require_kafka
from tests.services.kafka_node import KAFKA_SCRIPT, kafka_environment

_PARTITIONS: Final = 8
_SEGMENTS: Final = 4
_SENT: Final = re.compile(r"(\d+) records sent, ([\d.]+) records/sec")
_COPY_DEADLINE_S: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Batches of a topic: ``batch_bytes`` is ``batch.size`` of the tool, by which its batches become as large."""

    name: str
    records_per_batch: int
    record_bytes: int
    batch_bytes: int
    goal: str


_SHAPES: Final = (Shape("16 KiB", 16, 1000, 16 << 10, ">= 1.5"), Shape("1 KiB", 4, 230, 1 << 10, ""))


def bench_restoring_topics(root: Path, *, size_bytes: int, rounds: int) -> list[Figure]:
    """Send ``size_bytes`` of records by both, in batches of 16 KiB, and an eighth of them in batches of 1 KiB."""
    require_kafka("3.9.2")
    figures: list[Figure] = []
    with environment(FAST_JVM):
        broker = KafkaBroker(root / "lab")
        with broker:
            for shape in _SHAPES:
                wanted = size_bytes if shape.goal else size_bytes // 8
                lab = root / shape.name.replace(" ", "-")
                figures += _contest(lab, broker, shape, size_bytes=wanted, rounds=rounds)
                shutil.rmtree(lab)
    return figures


def _contest(root: Path, broker: KafkaBroker, shape: Shape, *, size_bytes: int, rounds: int) -> list[Figure]:
    batches = max(1, size_bytes // (_PARTITIONS * _SEGMENTS * shape.records_per_batch * shape.record_bytes))
    records = _PARTITIONS * _SEGMENTS * batches * shape.records_per_batch
    tier = _tier(root, shape, batches)
    restore: list[str | Path] = [TIERD, "restore", "topic", "synthetic", "--config", tier.config_file]
    restore += ["--to", broker.bootstrap, "--partitions", str(_PARTITIONS), "--hold-retention"]
    start = median_cost([run([*restore, "--journal", root / "start", "--dry-run"]) for _ in range(3)])
    ours, tool, cpu = list[float](), list[float](), list[float]()
    for round_number in range(rounds + 1):
        topic = f"restored-{uuid4().hex[:8]}"
        cost = run([*restore, "--journal", root / topic, "--rename", f"synthetic={topic}"])
        assert sum(broker.end_offset(topic, partition) for partition in range(_PARTITIONS)) == records
        broker.delete_topic(topic)
        rate = _producer_perf(broker, shape, records)
        if round_number:  # the first round only warms the broker and the page cache
            ours.append(records / (cost.wall_s - start.wall_s))
            tool.append(rate)
            cpu.append((cost.cpu_s - start.cpu_s) / (records * shape.record_bytes / 1e9))
    label, megabytes = f"restore topic, batches of {shape.name}", shape.record_bytes / 1e6
    return [
        Figure(f"{label}: data", records * megabytes / 1e3, "GB"),
        Figure(f"{label}: tierd", median(ours) * megabytes, "MB/s"),
        Figure(f"{label}: producer-perf", median(tool) * megabytes, "MB/s"),
        Figure(f"{label}: relative to producer-perf", median(ours) / median(tool), "ratio", shape.goal),
        Figure(f"{label}: CPU", median(cpu), "s/GB"),
        Figure(f"{label}: start of the process, not counted above", start.wall_s, "s"),
    ]


def _tier(root: Path, shape: Shape, batches: int) -> Installation:
    log_dir = root / "logdir"
    content = SegmentShape(batches=batches, records_per_batch=shape.records_per_batch, value_bytes=shape.record_bytes)
    write_log_dir(log_dir, partitions=_PARTITIONS, rolled_segments=_SEGMENTS, shape=content)
    tier = Installation(root / "installation", [log_dir])
    copied = tier.tierd("copy", "--once", deadline_s=_COPY_DEADLINE_S)
    assert copied.exit_code == 0, copied.output
    return tier


def _producer_perf(broker: KafkaBroker, shape: Shape, records: int) -> float:
    """Send records with the tool to a new topic; return the records a second that it reports."""
    topic = f"sent-{uuid4().hex[:8]}"
    broker.create_topic(topic, partitions=_PARTITIONS)
    command = [str(KAFKA_SCRIPT), "tool", "ProducerPerformance", "--topic", topic, "--throughput", "-1"]
    command += ["--num-records", str(records), "--record-size", str(shape.record_bytes), "--producer-props"]
    command += [f"bootstrap.servers={broker.bootstrap}", "acks=all", f"batch.size={shape.batch_bytes}", "linger.ms=5"]
    settings = kafka_environment({"KAFKA_VERSION": broker.version})
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-1000:]
    broker.delete_topic(topic)
    *_, last = _SENT.finditer(done.stdout)
    assert int(last[1]) == records
    return float(last[2])
