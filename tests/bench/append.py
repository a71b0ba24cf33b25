"""Appends as a follower, through LogWriter and its group commit, against plain ``write`` of the same bytes.

Many tasks append at once, as the sessions of a follower do, each waiting for its answer before its next set. Neither
side syncs: the speed of the disk is not measured. The plain side writes one batch a call, as the broker does, to files
that are rolled at the same size.
"""

import asyncio
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import uvloop

from tests.bench.report import Figure
from tierd.clock import SystemClock
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.log_writer import LogWriter
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.batch_builder import encode_batch
from tierd.log.records.batch_restamp import set_last_offset, set_leader_epoch
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import NewRecord
from tierd.model import TopicPartition

KIB = 1 << 10
MIB = 1 << 20
_TASKS = 64
_RECORD_BYTES = 1000
_NOW_MS = 1_700_000_000_000
_GOALS = {MIB: 0.6, 16 * KIB: 0.4}


class _NoLock:
    """Lock of a directory that only the benchmark uses."""

    def release(self) -> None:
        """Do nothing: no lock is held."""


def bench_append(root: Path, *, data_bytes: int, rounds: int) -> list[Figure]:
    """Append ``data_bytes`` in batches of 1 MiB and of 16 KiB; the two sides take turns, medians count."""
    figures: list[Figure] = []
    for batch_bytes, goal in _GOALS.items():
        batches = make_batches(batch_bytes=batch_bytes, data_bytes=data_bytes)
        size_bytes = sum(map(len, batches))
        ours, plain = [], []
        for turn in range(rounds + 1):
            plain.append(size_bytes / _plain(root / f"plain-{turn}", batches))
            ours.append(size_bytes / _append(root / f"log-{turn}", batches))
        case = f"append: batches of {batch_bytes // KIB} KiB"
        fast, base = median(ours[1:]), median(plain[1:])  # the first turn warms up
        figures += [
            Figure(f"{case}, tierd", fast / MIB, "MiB/s"),
            Figure(f"{case}, plain write", base / MIB, "MiB/s"),
            Figure(f"{case}, relative", fast / base, "ratio", f">= {goal:g}"),
        ]
    return figures


def make_batches(*, batch_bytes: int, data_bytes: int) -> list[bytes]:
    """Return the batches of a leader, one after the other."""
    count = batch_bytes // (_RECORD_BYTES + 12)
    value = bytes(range(256)) * 4
    template = encode_batch(
        [NewRecord(b"key", value[:_RECORD_BYTES], _NOW_MS + number) for number in range(count)], base_offset=0
    )
    batches = []
    for number in range(data_bytes // len(template)):
        batch = bytearray(template)
        set_last_offset(batch, (number + 1) * count - 1)
        set_leader_epoch(batch, 1)
        batches.append(bytes(batch))
    return batches


def _plain(directory: Path, batches: list[bytes]) -> float:
    """Return the seconds of plain ``write`` calls."""
    directory.mkdir()
    fd = os.open(directory / "file", os.O_WRONLY | os.O_CREAT, 0o644)
    began_s = time.perf_counter()
    for batch in batches:
        os.write(fd, batch)
    took_s = time.perf_counter() - began_s
    os.close(fd)
    shutil.rmtree(directory)
    return took_s


def _append(log_dir: Path, batches: list[bytes]) -> float:
    """Return the seconds of the log."""
    config = LogConfig(segment_bytes=1 << 30, max_message_bytes=2 * MIB)
    manager = LogManager([log_dir], LogManagerSettings(config_for=lambda _: config), acquire_lock=lambda _: _NoLock())
    manager.start()
    log = manager.get_or_create(TopicPartition("bench", 0))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the event loop of the daemon
        took_s = runner.run(_append_all(log, batches))
    assert log.log_end_offset > 0
    log.close_handles()  # an orderly stop would sync
    shutil.rmtree(log_dir)
    return took_s


async def _append_all(log: UnifiedLog, batches: list[bytes]) -> float:
    with ThreadPoolExecutor(1) as threads:
        writer = LogWriter(log, name="bench", writers=threads, readers=threads, clock=SystemClock())
        left = iter(batches)  # the next free task takes the next batch, so that batches arrive in order

        async def session() -> None:
            for batch in left:
                await writer.append_as_follower(batch)

        began_s = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(_TASKS):
                group.create_task(session())
        took_s = time.perf_counter() - began_s
        await writer.close()
    return took_s
