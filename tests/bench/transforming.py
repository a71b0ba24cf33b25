"""Cost of compression and encryption of a copy: CPU seconds per GB over a store that only takes bytes and their CRC."""

import asyncio
import random
import struct
import time
from pathlib import Path
from statistics import median

from tests.bench.report import Figure
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import segment
from tests.fakes.transforms import TRANSFORM_NAMES, transform_named
from tierd.kernels import crc32c
from tierd.log import Compression, NewRecord, encode_batch
from tierd.model import CHECKSUM_BLOCK_BYTES, BlockChecksums, LogSegmentData
from tierd.remote import Body, FileBody, SegmentStorage
from tierd.remote.chunks import iterated

_INDEX_INTERVAL_BYTES = 4096
_KINDS = ("json", "random", "zstd batches")


class TakingStore(MemoryObjectStore):
    """Store that takes bodies a step and its CRC at a time, and forgets them."""

    def __init__(self) -> None:
        super().__init__()
        self.log_size_bytes = 0

    async def put(self, key: str, body: Body) -> None:
        """Take the bytes."""
        del key
        size_bytes = 0
        if isinstance(body, FileBody):
            size_bytes = await asyncio.to_thread(_read_through, body.path)
        elif not isinstance(body, bytes):
            crc = 0
            async with iterated(body.chunks) as chunks:
                async for chunk in chunks:
                    size_bytes, crc = size_bytes + len(chunk), crc32c(chunk, crc)
        self.log_size_bytes += size_bytes


def bench_transforming(root: Path, *, size_bytes: int, rounds: int) -> list[Figure]:
    """Copy one segment of each kind of data in each way."""
    figures: list[Figure] = []
    for kind in _KINDS:
        data = _write_segment(root / "segment.log", kind, size_bytes)
        gigabytes = data.log_checksums.size_bytes / 1e9
        costs: dict[str, float] = {}
        for name in TRANSFORM_NAMES:
            runs = [asyncio.run(_copy(data, name)) for _ in range(rounds)]
            costs[name] = median(cpu_s for cpu_s, _ in runs) / gigabytes
            goal = f"<= {costs['plain'] + 0.25:.3f}" if name == "aes" else ""
            figures.append(Figure(f"copy, {kind}, {name}", costs[name], "CPU s/GB", goal))
        figures.append(Figure(f"copy, {kind}, stored by zstd", runs[0][1] / data.log_checksums.size_bytes, "of 1"))
    return figures


async def _copy(data: LogSegmentData, name: str) -> tuple[float, int]:
    store, transform = TakingStore(), transform_named(name)
    storage = SegmentStorage(store, cluster_id="bench", broker_id=1, transform=transform)
    begun_s = time.process_time()
    await storage.copy_log_segment_data(segment(0, 9, size_bytes=data.log_checksums.size_bytes), data)
    cpu_s = time.process_time() - begun_s
    transform.close()
    return cpu_s, store.log_size_bytes


def _write_segment(path: Path, kind: str, size_bytes: int) -> LogSegmentData:
    batches = _batches(kind)
    index, indexed_at, checksums = bytearray(), 0, []
    with path.open("w+b") as file:
        while file.tell() < size_bytes:
            for batch in batches:
                if file.tell() - indexed_at > _INDEX_INTERVAL_BYTES:
                    indexed_at = file.tell()
                    index += struct.pack(">ii", indexed_at // 100, indexed_at)
                file.write(batch)
        total = file.seek(0, 2)
        file.seek(0)
        while block := file.read(CHECKSUM_BLOCK_BYTES):
            checksums.append(crc32c(block))
    return LogSegmentData(
        log=path,
        log_checksums=BlockChecksums(total, tuple(checksums)),
        batch_count=1,
        record_count=10,
        offset_index=bytes(index),
        time_index=b"",
        transaction_index=None,
        producer_snapshot=b"",
        leader_epoch_index=b"",
    )


def _batches(kind: str) -> list[bytes]:
    source = random.Random(1)
    words = [source.randbytes(6).hex() for _ in range(2000)]

    def value() -> bytes:
        if kind == "random":
            return source.randbytes(1000)
        return b'{"user":"%s","text":"%s"}' % (
            source.choice(words).encode(),
            " ".join(source.choices(words, k=70)).encode(),
        )

    codec = Compression.ZSTD if kind == "zstd batches" else Compression.NONE
    records = [[NewRecord(key=b"%d" % n, value=value(), timestamp_ms=1) for n in range(100)] for _ in range(64)]
    return [encode_batch(batch, base_offset=100 * n, compression=codec) for n, batch in enumerate(records)]


def _read_through(path: Path) -> int:
    size_bytes, crc = 0, 0
    with path.open("rb") as file:
        while step := file.read(CHECKSUM_BLOCK_BYTES):
            size_bytes, crc = size_bytes + len(step), crc32c(step, crc)
    return size_bytes
