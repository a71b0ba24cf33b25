"""Start on ten thousand partitions that were stopped cleanly: its time and its memory."""

import shutil
from pathlib import Path
from statistics import median

from tests.bench.recovery import start_in_child
from tests.bench.report import Figure
from tierd.log import NewRecord, encode_batch
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.records.log_config import LogConfig
from tierd.model import TopicPartition

_CHECKPOINT = "recovery-point-offset-checkpoint"
_MODEL = TopicPartition("model", 0)


def bench_loading(root: Path, *, partitions: int, rounds: int) -> list[Figure]:
    """Start on ``partitions`` directories of two segments each."""
    log_dir = root / "logdir"
    log_dir.mkdir(parents=True)
    log_end_offset = _write_model(log_dir)
    names = [f"topic-{n}-0" for n in range(partitions)]
    for name in names:
        shutil.copytree(log_dir / str(_MODEL), log_dir / name)
    shutil.rmtree(log_dir / str(_MODEL))
    lines = "".join(f"{name.rpartition('-')[0]} 0 {log_end_offset}\n" for name in names)
    starts = []
    for _ in range(rounds):
        (log_dir / _CHECKPOINT).write_text(f"0\n{partitions}\n{lines}")
        (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
        starts.append(start_in_child(log_dir))
        assert starts[-1]["logs"] == partitions
    memory = median(start["peak_bytes"] - start["bytes_before"] for start in starts)
    return [
        Figure("loading: clean partitions", partitions, ""),
        Figure("loading: start", median(start["seconds"] for start in starts), "s"),
        Figure("loading: memory", memory / 1e6, "MB"),
        Figure("loading: memory of a partition", memory / partitions / 1e3, "kB"),
    ]


def _write_model(log_dir: Path) -> int:
    with LogManager([log_dir], LogManagerSettings(config_for=lambda _: LogConfig(segment_index_bytes=4096))) as manager:
        log = manager.get_or_create(_MODEL)
        for _ in range(2):
            log.append_as_leader(encode_batch([NewRecord(None, b"v", 1)] * 10), leader_epoch=0, now_ms=1)
            log.roll(now_ms=1)
        log.append_as_leader(encode_batch([NewRecord(None, b"v", 1)] * 10), leader_epoch=0, now_ms=1)
        return log.log_end_offset
