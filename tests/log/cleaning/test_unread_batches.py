"""The cleaner of tierd's own logs around batches that unpack to more than tierd opens (rewriting/unread.py)."""

from collections.abc import Iterator

import pytest

from tests.fakes.opening_limit import opening_at_most
from tests.log.cleaning.test_log_cleaner import TOPIC, ServiceSetup, append, batches, compacted, fill
from tierd.log import Compression, NewRecord, encode_batch
from tierd.log.log_service import PartitionWriter

LIMIT_BYTES = 64 << 10


@pytest.fixture(autouse=True)
def _small_limit() -> Iterator[None]:
    with opening_at_most(LIMIT_BYTES):
        yield


async def append_large(writer: PartitionWriter, setup: ServiceSetup, key: bytes, value: bytes | None) -> bytes:
    """Append a batch that is not opened; return its records as they lie in the log."""
    now_ms = setup.clock.now_ms()
    records = [NewRecord(key, value, now_ms), NewRecord(b"large", bytes(LIMIT_BYTES), now_ms)]
    data = bytes(encode_batch(records, compression=Compression.ZSTD))
    appended = await writer.append_as_leader(data, leader_epoch=1)
    writer.log.update_high_watermark(appended.last_offset + 1)
    return data[61:]


async def tombstones(writer: PartitionWriter) -> list[bytes | None]:
    plain = [batch for batch in await batches(writer) if batch.compression is Compression.NONE]
    return [record.key for batch in plain for record in batch.records() if record.value is None]


@pytest.mark.parametrize("cleans_before", [False, True])
async def test_tombstones_behind_an_unread_batch_are_kept_in_each_round(*, cleans_before: bool) -> None:
    """A later round maps the keys of dirty batches alone, and finds the batch while it rewrites the clean part."""
    setup = ServiceSetup(compacted(min_cleanable_dirty_ratio=0.0, delete_retention_ms=60_000))
    async with setup.service() as service:
        writer = await service.get_or_create(TOPIC)
        await append(writer, setup, b"before", None)
        large = await append_large(writer, setup, b"gone", b"old")
        if cleans_before:
            await fill(writer, setup, 20)
            await setup.pass_time(16)
            assert (setup.cleaned_to() or 0) > 3
        await append(writer, setup, b"gone", None)
        for _ in range(3):
            await fill(writer, setup, 20)
            await setup.pass_time(16)
            await setup.pass_time(70)
        assert await tombstones(writer) == [b"gone"]
        assert (setup.cleaned_to() or 0) > 40
        assert sum(bytes(batch.data[61:]) == large for batch in await batches(writer)) == 1
        kept = [batch for batch in await batches(writer) if batch.compression is Compression.NONE]
        assert len(kept) < 40, "the other batches are cleaned"
