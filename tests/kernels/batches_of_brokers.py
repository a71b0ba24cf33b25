"""Batches of real brokers, as payloads for kernels."""

from collections.abc import Iterator
from pathlib import Path

from tierd.log.records.record_batch import RecordBatch, iter_batches


def golden_payloads(golden: Path) -> Iterator[tuple[RecordBatch, bytes]]:
    """Yield every batch of magic 2 in undamaged golden logs, and its records decompressed."""
    logs = sorted(
        path for path in golden.rglob("*.log") if "crash" not in path.parts and "old-format" not in path.parts
    )
    assert logs
    for path in logs:
        for batch in iter_batches(path.read_bytes(), name=str(path)):
            yield batch, bytes(batch.payload())
