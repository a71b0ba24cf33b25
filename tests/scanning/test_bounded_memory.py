"""Memory of a read: bounded by the batches and the bytes read ahead, whatever the size of the partition."""

import tracemalloc
from collections.abc import Iterator

import pyarrow as pa
import pytest

import tierd
from tests.pipeline.source.small_tier import SmallTier
from tierd.kernels import compile_kernels
from tierd.log import Compression, NewRecord, encode_batch
from tierd.scanning.arrow_reader import Scan

MIB = 1 << 20
VALUE = bytes(1_000)
RECORDS = 1_000  # of a batch, which has a megabyte of values and a few kilobytes compressed
BATCHES = 160
BATCH_BYTES = 2 * MIB
LIMIT_BYTES = 24 * MIB


@pytest.fixture(scope="module")
def scan(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scan]:
    """Return a read of 160 MB of values, in a tier that is read 4 MiB ahead."""
    small = SmallTier(tmp_path_factory.mktemp("memory"))
    small.installation.configure({"fetch": {"prefetch": "4MiB"}})
    batch = encode_batch([NewRecord(b"key", VALUE, n) for n in range(RECORDS)], compression=Compression.ZSTD)
    for _ in range(BATCHES):
        small.partition().append_batch(batch, RECORDS)
    small.roll()
    small.copy()
    compile_kernels()
    with tierd.reader(small.installation.config_file) as tier:
        yield tier.scan("orders", batch_bytes=BATCH_BYTES)


def test_read_of_a_large_partition_has_a_few_batches_in_memory(scan: Scan) -> None:
    next(iter(scan))  # what is made once for a process is there
    arrow_bytes = pa.total_allocated_bytes()
    largest_arrow_bytes = rows = 0
    tracemalloc.start()
    try:
        begun_bytes, _ = tracemalloc.get_traced_memory()
        for batch in scan:
            rows += batch.num_rows
            largest_arrow_bytes = max(largest_arrow_bytes, pa.total_allocated_bytes() - arrow_bytes)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == RECORDS * BATCHES
    assert peak_bytes - begun_bytes < LIMIT_BYTES
    assert largest_arrow_bytes < 4 * BATCH_BYTES
