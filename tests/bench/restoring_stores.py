"""Restore of a large state store of Kafka Streams, against the restore of Kafka Streams itself from the same changelog.

tierd reads a tier on the disk; its time is that of the command without a start of the process. Kafka Streams reads a
broker on the same host; its time is that between the two calls of its restore listener, without the start of Java. Both
build the directory of a timestamped key-value store of RocksDB, and at the end Kafka Streams starts on that of tierd.
"""

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from crc32c import crc32c

from tests.bench.child_process import Cost, median_cost, run
from tests.bench.copying import touch_free_memory
from tests.bench.jvm import FAST_JVM, environment
from tests.bench.report import Figure
from tests.scenarios.command import TIERD
from tests.scenarios.installation import Installation
from tests.services.kafka_cluster import KafkaBroker, require_kafka
from tests.services.kafka_streams import require_kafka_streams, restore_with_streams
from tests.services.waiting import wait_until
from tierd.log import NewRecord, encode_batch
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.partition.append_info import AppendRequest
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_restamp import set_last_offset
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition

_VERSION: Final = "3.9.2"
_APPLICATION: Final = "bench"
_INPUT: Final = "bench-input"
_CHANGELOG: Final = "bench-store-changelog"
_TOPOLOGY: Final = f"""application_id: {_APPLICATION}
stores:
  - name: store
    changelog: {_CHANGELOG}
    subtopology: 0
    type: timestamped-key-value
"""
_BATCH_RECORDS: Final = 125  # 16 KiB
_KEY_BYTES: Final = 16
_VALUE: Final = bytes(range(100))
_SEGMENT_BYTES: Final = 256 << 20
_GROUP: Final = 64
_ODD: Final = 0x9E3779B97F4A7C15  # times a number, modulo 2 ** 64: another order, and no key twice
_COPY_DEADLINE_S: Final = 1800.0


def bench_restoring_stores(root: Path, *, keys: int, rounds: int) -> list[Figure]:
    """Restore ``keys`` different keys in no order, of 16 bytes with values of 100 bytes, by both in turns."""
    require_kafka(_VERSION)
    require_kafka_streams(_VERSION)
    keys = keys // _BATCH_RECORDS * _BATCH_RECORDS
    with environment({**FAST_JVM, "KAFKA_HEAP": "1g"}), KafkaBroker(root / "lab", version=_VERSION) as broker:
        size_bytes = _fill(broker, keys)
        tier = _tier(root, broker, keys)
        restore = _command(root, tier)
        start = median_cost([run([*restore, "--dry-run"]) for _ in range(3)])
        ours, theirs = list[Cost](), list[float]()
        for _ in range(rounds):
            for state in (root / "ours", root / "theirs"):
                shutil.rmtree(state, ignore_errors=True)
            (root / "ours").mkdir()
            touch_free_memory(root, 2 * size_bytes)
            ours.append(run(restore))
            touch_free_memory(root, 2 * size_bytes)
            timed = restore_with_streams(broker.bootstrap, _APPLICATION, _INPUT, root / "theirs", version=_VERSION)
            assert timed.restored.record_count == keys
            theirs.append(timed.seconds)
        opened = restore_with_streams(broker.bootstrap, _APPLICATION, _INPUT, root / "ours", version=_VERSION)
    assert (opened.restored.start_offset, opened.restored.record_count) == (keys, 0)
    cost = median_cost(ours)
    seconds, streams_s = cost.wall_s - start.wall_s, median(theirs)
    return [
        Figure("restore store: keys", keys / 1e6, "million"),
        Figure("restore store: changelog", size_bytes / 1e9, "GB"),
        Figure("restore store: tierd", keys / seconds / 1e3, "1000/s"),
        Figure("restore store: Kafka Streams", keys / streams_s / 1e3, "1000/s"),
        Figure("restore store: relative to Kafka Streams", streams_s / seconds, "ratio", ">= 3"),
        Figure("restore store: the same, process start counted", streams_s / cost.wall_s, "ratio"),
        Figure("restore store: CPU", (cost.cpu_s - start.cpu_s) / (keys / 1e6), "s/million"),
        Figure("restore store: peak memory", cost.peak_rss_bytes / 1e6, "MB"),
    ]


def _fill(broker: KafkaBroker, keys: int) -> int:
    """Write the changelog into the log dir of the stopped broker; return the size of its batches."""
    for topic in (_INPUT, _CHANGELOG):
        broker.create_topic(topic)
    broker.stop()
    config = LogConfig(retention_ms=-1, segment_bytes=_SEGMENT_BYTES)
    size_bytes = 0
    with LogManager([broker.log_dirs[0]], LogManagerSettings(config_for=lambda _: config)) as manager:
        log = manager.get(TopicPartition(_CHANGELOG, 0))
        assert log is not None
        group: list[AppendRequest] = []
        for batch in _batches(keys):
            size_bytes += len(batch)
            group.append(AppendRequest(batch, AppendOrigin.REPLICATION))
            if len(group) == _GROUP:
                log.append_many(group, now_ms=1)
                group = []
        if group:
            log.append_many(group, now_ms=1)
        log.roll(now_ms=1)
    broker.start()
    return size_bytes


def _batches(keys: int) -> Iterator[bytearray]:
    """Yield batches of records with different keys, with one batch as the template of all others."""
    marks = [b"%0*d" % (_KEY_BYTES, number) for number in range(_BATCH_RECORDS)]
    template = encode_batch([NewRecord(mark, _VALUE, 1_700_000_000_000) for mark in marks])
    places = np.array([template.index(mark) for mark in marks])[:, None] + np.arange(_KEY_BYTES)
    for first in range(0, keys, _BATCH_RECORDS):
        batch = np.frombuffer(template, dtype=np.uint8).copy()
        numbers = range(first, first + _BATCH_RECORDS)
        names = b"".join(b"%016x" % (number * _ODD & 0xFFFF_FFFF_FFFF_FFFF) for number in numbers)
        batch[places] = np.frombuffer(names, dtype=np.uint8).reshape(_BATCH_RECORDS, _KEY_BYTES)
        data = bytearray(batch.tobytes())
        struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
        set_last_offset(data, first + _BATCH_RECORDS - 1)
        data[12:16] = bytes(4)
        yield data


def _tier(root: Path, broker: KafkaBroker, keys: int) -> Installation:
    tier = Installation(root / "installation", broker.log_dirs)

    def is_copied() -> bool:
        copied = tier.tierd("copy", "--once", deadline_s=_COPY_DEADLINE_S)
        assert copied.exit_code == 0, copied.output
        return tier.frontier(f"{_CHANGELOG}-0") == keys - 1

    wait_until(is_copied, what="the copy of the changelog", deadline_s=_COPY_DEADLINE_S)
    return tier


def _command(root: Path, tier: Installation) -> list[str | Path]:
    topology = root / "topology.yaml"
    topology.write_text(_TOPOLOGY)
    command: list[str | Path] = [TIERD, "restore", "store", f"{_CHANGELOG}-0", "--config", tier.config_file]
    return [*command, "--into", root / "ours", "--streams", topology]
