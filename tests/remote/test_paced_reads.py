"""PacedReads: downloads wait for their bytes; other calls, and the inner store at the end, are left alone."""

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.model import ByteRange
from tierd.remote import PacedReads


async def test_downloads_keep_to_the_rate() -> None:
    clock, inner = FakeClock(), MemoryObjectStore()
    store = PacedReads(inner, bytes_per_second=100, clock=clock)
    await store.put("key", bytes(1000))
    assert await store.get("key", ByteRange(0, 99)) == bytes(100)
    assert clock.monotonic_s() == 0  # one second's worth at once
    assert await store.get("key") == bytes(1000)
    assert clock.monotonic_s() == 10


async def test_uploads_and_listings_do_not_wait() -> None:
    clock, inner = FakeClock(), MemoryObjectStore()
    store = PacedReads(inner, bytes_per_second=1, clock=clock)
    await store.put("key", bytes(1000))
    assert (await store.head("key")).size_bytes == 1000
    assert [each.key for each in await store.list_objects("")] == ["key"]
    assert clock.monotonic_s() == 0


async def test_inner_store_stays_open() -> None:
    inner = MemoryObjectStore()
    await PacedReads(inner, bytes_per_second=1, clock=FakeClock()).close()
    await inner.put("key", b"x")
