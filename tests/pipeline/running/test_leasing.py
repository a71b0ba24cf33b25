"""Leases of partitions: one of two daemons works on a partition."""

import asyncio
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.left_tasks import nothing_left
from tests.fakes.manual_clock import ManualClock
from tierd.errors import BackendUnavailableError
from tierd.metadata import Batch, MemoryKeyValueStore, MetadataKeyFactory
from tierd.model import TopicIdPartition
from tierd.pipeline.running.leasing import LEASE_S, PartitionLeases
from tierd.testing import cancel_at

ORDERS = TopicIdPartition(UUID(int=1), "orders", 0)
PAYMENTS = TopicIdPartition(UUID(int=2), "payments", 3)
KEYS = MetadataKeyFactory("cluster")


class DistantStore(MemoryKeyValueStore):
    """Store whose every answer takes a second, for any number of concurrent calls."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self.is_far = True

    async def get(self, key: str) -> bytes | None:
        await self._travel()
        return await super().get(key)

    async def apply(self, batch: Batch) -> None:
        await self._travel()
        await super().apply(batch)

    async def _travel(self) -> None:
        if self.is_far:
            await self._clock.sleep(1)


class Lab:
    def __init__(self) -> None:
        self.store = MemoryKeyValueStore()
        self.clock = ManualClock()

    def leases(self, holder: str) -> PartitionLeases:
        return PartitionLeases(self.store, KEYS, holder=holder, clock=self.clock)

    async def until_renewal(self) -> None:
        await eventually(lambda: self.clock.sleeping == 1, what="the wait for the next renewal")
        self.clock.advance(LEASE_S / 4)


@pytest.fixture
def lab() -> Lab:
    return Lab()


async def test_second_daemon_is_refused_a_leased_partition_with_the_name_of_the_holder(lab: Lab) -> None:
    async with lab.leases("one").held([ORDERS]) as (ours, refused):
        assert (ours, refused) == ([ORDERS], {})
        async with lab.leases("two").held([ORDERS, PAYMENTS]) as (theirs, left):
            assert theirs == [PAYMENTS]
            assert "one" in left[ORDERS]
    async with lab.leases("two").held([ORDERS]) as (theirs, _):
        assert theirs == [ORDERS]


async def test_long_run_keeps_its_leases(lab: Lab) -> None:
    async with lab.leases("one").held([ORDERS]):
        for _ in range(10):
            await lab.until_renewal()
        await eventually(lambda: lab.clock.sleeping == 1, what="the last renewal")
        async with lab.leases("two").held([ORDERS]) as (theirs, _):
            assert theirs == []


async def test_first_of_many_leases_does_not_expire_before_the_last_is_acquired(lab: Lab) -> None:
    lab.store = store = DistantStore(lab.clock)
    partitions = [TopicIdPartition(UUID(int=number), "orders", number) for number in range(320)]

    async def pass_time() -> None:
        while True:
            await asyncio.sleep(0)
            lab.clock.advance(0.1)

    passing = asyncio.create_task(pass_time())
    async with lab.leases("one").held(partitions) as (ours, _):
        assert ours == partitions
        for moment_s in (LEASE_S, 5 * LEASE_S):
            await eventually(lambda: lab.clock.monotonic_s() > moment_s, what="time to pass")  # noqa: B023
            store.is_far = False
            async with lab.leases("two").held(partitions) as (theirs, _):
                assert theirs == []
            store.is_far = True
    passing.cancel()
    assert await store.scan("") == []


async def test_lease_of_a_dead_process_expires(lab: Lab) -> None:
    async with lab.leases("dead").held([ORDERS]):  # the clock stands still: the lease is not renewed
        later = ManualClock(now_ms=lab.clock.now_ms() + round(LEASE_S * 1000))
        async with PartitionLeases(lab.store, KEYS, holder="two", clock=later).held([ORDERS]) as (ours, _):
            assert ours == [ORDERS]


async def test_leases_are_released_when_the_run_fails(lab: Lab) -> None:
    with pytest.raises(ZeroDivisionError):
        async with lab.leases("one").held([ORDERS]):
            raise ZeroDivisionError
    async with lab.leases("two").held([ORDERS]) as (ours, _):
        assert ours == [ORDERS]


async def test_run_survives_an_outage_of_the_metadata_store(lab: Lab) -> None:
    store = _Sometimes(lab.store)
    async with PartitionLeases(store, KEYS, holder="one", clock=lab.clock).held([ORDERS]):
        await eventually(lambda: lab.clock.sleeping == 1, what="the first wait")
        store.is_gone = True
        await lab.until_renewal()
        await eventually(lambda: store.refused > 0, what="a renewal that fails")
        await eventually(lambda: lab.clock.sleeping == 1, what="the next wait")
        store.is_gone = False
    async with lab.leases("two").held([ORDERS]) as (ours, _):
        assert ours == [ORDERS]


class _Sometimes(MemoryKeyValueStore):
    def __init__(self, store: MemoryKeyValueStore) -> None:
        super().__init__()
        self._below = store
        self.is_gone = False
        self.refused = 0

    async def get(self, key: str) -> bytes | None:
        if self.is_gone:
            self.refused += 1
            raise BackendUnavailableError("gone")
        return await self._below.get(key)

    async def apply(self, batch: Batch) -> None:
        await self._below.apply(batch)


async def test_leases_are_released_however_often_the_end_of_the_block_is_cancelled() -> None:
    lab = Lab()

    async def hold() -> None:
        lab.store = MemoryKeyValueStore()
        async with lab.leases("one").held([ORDERS, PAYMENTS]):
            for _ in range(3):
                await asyncio.sleep(0)

    suspension = 1
    with nothing_left():
        while await cancel_at(suspension, hold, times=2):
            async with lab.leases("two").held([ORDERS, PAYMENTS]) as (ours, refused):
                assert (len(ours), refused) == (2, {}), f"cancelled at {suspension}"
            suspension += 1
    assert suspension > 4
