"""Readers of small batches that unpack to much: bounded memory, and an error at a batch that cannot be opened."""

import tracemalloc
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter
from tests.fakes.opening_limit import opening_at_most
from tests.tiering.setups import Tier, delete_segment
from tierd.errors import BatchTooLargeError
from tierd.log import Compression, NewRecord, RecordBatch, encode_batch
from tierd.model import IsolationLevel
from tierd.tiering import FetchTask

VALUE_BYTES = 4 << 20
BATCHES = 40


async def remote_reader(tmp_path: Path) -> FetchTask:
    """Return a reader of a segment in the tier: batches of one record, some hundred bytes that unpack to 4 MiB."""
    log_dir = LogDirWriter(tmp_path / "kafka")
    writer = log_dir.add_partition("orders")
    for _ in range(BATCHES):
        batch = encode_batch([NewRecord(b"k", bytes(VALUE_BYTES), 5)], compression=Compression.ZSTD)
        writer.append_batch(batch, 1)
    writer.roll()
    log_dir.write_checkpoints()
    session = Tier(tmp_path, [log_dir.path]).session()
    assert [outcome.error for outcome in (await session.copy_once()).values()] == [None]
    delete_segment(writer.path, 0)
    return session.reader(writer.path)


async def test_read_of_many_batches_that_unpack_to_much_keeps_few_in_memory(tmp_path: Path) -> None:
    reader = await remote_reader(tmp_path)
    tracemalloc.start()
    try:
        offsets = [record.offset async for record in reader.records(None, None, IsolationLevel.READ_UNCOMMITTED)]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert offsets == list(range(BATCHES))
    assert peak_bytes < 10 * VALUE_BYTES


async def test_batch_that_cannot_be_opened_ends_the_read_after_all_earlier_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = await remote_reader(tmp_path)
    opened = RecordBatch.payload

    def payload(batch: RecordBatch, *, max_bytes: int = 0) -> bytes | memoryview:
        del max_bytes
        return opened(batch, max_bytes=VALUE_BYTES // 2 if batch.base_offset == 3 else 2 * VALUE_BYTES)

    monkeypatch.setattr(RecordBatch, "payload", payload)
    seen: list[int] = []

    async def read_all() -> None:
        async for record in reader.records(None, None, IsolationLevel.READ_UNCOMMITTED):
            seen.append(record.offset)  # noqa: PERF401 - records before the error count

    with pytest.raises(BatchTooLargeError, match="the batch of offsets 3 to 3 has more than") as refused:
        await read_all()
    assert seen == [0, 1, 2]
    assert "read around its offsets" in refused.value.remedy
    behind = [record.offset async for record in reader.records(4, None, IsolationLevel.READ_UNCOMMITTED)]
    assert behind == list(range(4, BATCHES))


async def test_timestamp_search_fails_with_an_error_at_a_batch_that_cannot_be_opened(tmp_path: Path) -> None:
    reader = await remote_reader(tmp_path)
    with opening_at_most(VALUE_BYTES // 2), pytest.raises(BatchTooLargeError, match="the batch of offsets 0 to 0"):
        await reader.list_offset(5)
