"""Sequential reading of a local log, with the checksum of every batch, against ``read`` of the same bytes."""

import os
from pathlib import Path
from statistics import median
from time import perf_counter

from tests.bench.report import Figure
from tests.log.batches import plain
from tests.log.segmented_logs import NOW_MS, append, new_log
from tierd.log import LocalLog, LogConfig, identify_directory, scan_partition, walk_checked
from tierd.log.segments.segmented_log import SegmentedLog

_MIB = 1 << 20
_READ_BYTES = 256 << 10  # of a consumer that catches up; more would leave the cache before its checksums are checked


def bench_reading(root: Path, *, size_bytes: int, rounds: int) -> list[Figure]:
    """Read the same files by both in turns, from the page cache, with the same amount at a time."""
    figures: list[Figure] = []
    for name, batch_bytes in (("1 MiB", _MIB), ("16 KiB", 16 << 10), ("1 KiB", 1 << 10)):
        folder = root / name.replace(" ", "-")
        folder.mkdir()
        log = _filled(folder, size_bytes=size_bytes, batch_bytes=batch_bytes)
        _read_plainly(log), _read_through_the_log(log)  # the first round of each is slower
        ours, plainly = list[float](), list[float]()
        for _ in range(rounds):
            plainly.append(_read_plainly(log))
            ours.append(_read_through_the_log(log))
        goal = "" if batch_bytes == 1 << 10 else ">= 0.5"
        figures += [
            Figure(f"reading: batches of {name}, CRC checked", size_bytes / median(ours) / 1e6, "MB/s"),
            Figure(f"reading: batches of {name}, relative to read", median(plainly) / median(ours), "ratio", goal),
        ]
    return figures


def _filled(folder: Path, *, size_bytes: int, batch_bytes: int) -> SegmentedLog:
    log = new_log(folder, LogConfig())
    value_bytes = batch_bytes - len(plain(0, size=0)) - 4
    while log.segments.size_bytes < size_bytes:
        if log.active.size_bytes >= size_bytes // 4:
            log.roll(now_ms=NOW_MS)
        append(log, plain(log.next_offset, size=value_bytes))
    return log


def _read_plainly(log: SegmentedLog) -> float:
    start = perf_counter()
    for segment in log.segments:
        fd = os.open(segment.path, os.O_RDONLY)
        try:
            while os.read(fd, _READ_BYTES):
                pass
        finally:
            os.close(fd)
    return perf_counter() - start


def _read_through_the_log(log: SegmentedLog) -> float:
    directory, end = identify_directory(log.directory), log.log_end.offset
    assert directory is not None
    scan = scan_partition(directory)
    start = perf_counter()
    local, at, total = LocalLog(scan, high_watermark=end, last_stable_offset=end), 0, 0
    while at < end:  # keeps no data, as ``read`` above
        batches = walk_checked(local.read(at, max_bytes=_READ_BYTES), name=log.directory.name)
        total += batches.size_bytes
        at = batches.last_offsets[-1] + 1
    taken = perf_counter() - start
    assert total == log.segments.size_bytes
    return taken
