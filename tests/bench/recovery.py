"""Recovery of a log dir after an unclean stop, by a real broker and by tierd.

Both walk all of the same bytes, in page cache, with one thread a log dir. The time of the broker is that of its log
line ("Completed load of ... in N ms"), without the start of its JVM; ours is that of ``LogManager.start`` in a process
of its own, without its imports.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

from tests.bench.report import Figure
from tests.services.kafka_cluster import KafkaBroker, require_kafka
from tierd.log import NewRecord, encode_batch
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.partition.append_info import AppendRequest
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.batch_restamp import set_last_offset
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition

MIB = 1 << 20
CLEAN_MARKER = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_COMPLETED = r"Completed load of Log\(dir=\S*{topic}-0,.* in (\d+)\s?ms"
_GROUP = 64

_START = """
import json, sys, time
from pathlib import Path
from tierd.log import LogManager, LogManagerSettings
from tierd.log.records.log_config import LogConfig

def peak_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

import structlog
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
manager = LogManager([Path(sys.argv[1])], LogManagerSettings(config_for=lambda topic: LogConfig(retention_ms=-1)))
before = peak_bytes()
begun = time.perf_counter()
manager.start()
taken = time.perf_counter() - begun
print(json.dumps({"seconds": taken, "peak_bytes": peak_bytes(), "bytes_before": before, "logs": len(manager.logs())}))
"""


def bench_recovery(root: Path, *, data_bytes: int, rounds: int) -> list[Figure]:
    """Recover ``data_bytes`` in batches of 16 KiB and of 1 KiB, the broker and tierd in turns."""
    require_kafka("3.9.2")
    figures = []
    for batch_bytes in (16 << 10, 1 << 10):
        name = f"recovery: {batch_bytes >> 10} KiB batches"
        broker_s, tierd_s = _measure(root / f"lab-{batch_bytes}", data_bytes, batch_bytes, rounds)
        figures += [
            Figure(f"{name}, broker", data_bytes / median(broker_s) / 1e6, "MB/s"),
            Figure(f"{name}, tierd", data_bytes / median(tierd_s) / 1e6, "MB/s"),
            Figure(f"{name}, tierd / broker", median(broker_s) / median(tierd_s), "", ">= 3"),
        ]
    return figures


def start_in_child(log_dir: Path) -> dict[str, float]:
    """Start a log manager on ``log_dir`` in a process that ends without stopping it; return the cost."""
    done = subprocess.run([sys.executable, "-c", _START, str(log_dir)], capture_output=True, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _measure(lab: Path, data_bytes: int, batch_bytes: int, rounds: int) -> tuple[list[float], list[float]]:
    topic = f"recovered-{batch_bytes}"
    broker = KafkaBroker(lab, properties={"log.flush.offset.checkpoint.interval.ms": "3600000"})
    with broker:
        broker.create_topic(topic)
        broker.stop()
        log_dir = broker.log_dirs[0]
        _fill(log_dir, topic, data_bytes, batch_bytes)
        broker_s, tierd_s = [], []
        for _ in range(rounds):
            _make_unclean(log_dir)
            broker.start()
            broker.kill()
            broker_s.append(_seconds_of_broker(lab, topic))
            _make_unclean(log_dir)
            tierd_s.append(start_in_child(log_dir)["seconds"])
    return broker_s, tierd_s


def _fill(log_dir: Path, topic: str, data_bytes: int, batch_bytes: int) -> None:
    value = b"x" * (batch_bytes // 16 - 20) if batch_bytes > 4096 else b"x" * (batch_bytes // 4 - 25)
    batch = encode_batch([NewRecord(None, value, 1)] * (16 if batch_bytes > 4096 else 4))
    count = batch[60]
    with LogManager([log_dir], LogManagerSettings(config_for=lambda _: LogConfig(retention_ms=-1))) as manager:
        log = manager.get(TopicPartition(topic, 0))
        assert log is not None
        for first in range(0, data_bytes // len(batch), _GROUP):
            group = []
            for index in range(first, first + _GROUP):
                copy = bytearray(batch)
                set_last_offset(copy, (index + 1) * count - 1)
                copy[12:16] = bytes(4)
                group.append(AppendRequest(copy, AppendOrigin.REPLICATION))
            log.append_many(group, now_ms=1)


def _make_unclean(log_dir: Path) -> None:
    """Change the log dir to its state after a power cut before any flush."""
    (log_dir / CLEAN_MARKER).unlink(missing_ok=True)
    (log_dir / RECOVERY_POINTS).write_text("0\n0\n")


def _seconds_of_broker(lab: Path, topic: str) -> float:
    text = (lab / "node1" / "server.log").read_text(errors="replace")
    found = re.search(_COMPLETED.format(topic=re.escape(topic)), text)
    if found is None:
        raise RuntimeError(f"the broker does not say how long it took to load {topic}: {text[-3000:]}")
    return int(found[1]) / 1000
