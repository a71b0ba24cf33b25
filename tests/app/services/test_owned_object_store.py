import asyncio

import pytest
from structlog.testing import capture_logs

from tests.fakes.clock import FakeClock
from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.app.services.owned_object_store import OwnedObjectStore, own_until_done
from tierd.backoff import Backoff
from tierd.errors import (
    BackendUnavailableError,
    ForeignTierError,
    OutcomeUnknownError,
    RetriableRemoteStorageError,
    TierError,
)
from tierd.remote import UnfinishedUpload


class Claim:
    """Claim that fails with the given errors, and then succeeds."""

    def __init__(self, *failures: Exception) -> None:
        self.calls = 0
        self._failures = list(failures)

    async def __call__(self) -> None:
        self.calls += 1
        await asyncio.sleep(0)
        if self._failures:
            raise self._failures.pop(0)


def unreachable() -> RetriableRemoteStorageError:
    return RetriableRemoteStorageError("connection refused", remedy="start it")


async def test_store_refuses_changes_before_the_prefix_is_claimed() -> None:
    inner = MemoryObjectStore()
    await inner.put("theirs", b"x")
    store = OwnedObjectStore(inner, Claim(*[ForeignTierError("not ours") for _ in range(3)]))
    with pytest.raises(ForeignTierError):
        await store.put("k", b"v")
    with pytest.raises(ForeignTierError):
        await store.delete("theirs")
    with pytest.raises(ForeignTierError):
        await store.abort_upload(UnfinishedUpload("k", "1", 0))
    assert [info.key for info in await store.list_objects("")] == ["theirs"]
    assert await store.get("theirs") == b"x"
    assert store.problem == "not ours"


async def test_one_claim_serves_all_waiting_writes() -> None:
    claim = Claim()
    store = OwnedObjectStore(MemoryObjectStore(), claim)
    await asyncio.gather(*(store.put(f"k{n}", b"v") for n in range(8)))
    await store.put("later", b"v")
    assert claim.calls == 1
    assert store.problem == ""


async def test_a_failed_claim_is_tried_again_by_the_next_write() -> None:
    store = OwnedObjectStore(MemoryObjectStore(), Claim(unreachable()))
    with pytest.raises(RetriableRemoteStorageError):
        await store.put("k", b"v")
    assert "connection refused" in store.problem
    await store.put("k", b"v")
    assert store.problem == ""


async def test_claim_waits_for_an_unreachable_store_with_backoff_and_logs_it_once() -> None:
    clock = FakeClock()
    store = OwnedObjectStore(MemoryObjectStore(), Claim(*[unreachable() for _ in range(4)]))
    with capture_logs() as logs:
        await own_until_done(store, clock=clock, random=lambda: 0.5, backoff=Backoff(base_s=1, cap_s=3))
    assert clock.sleeps_s == [1, 2, 3, 3]
    assert [entry["event"] for entry in logs] == ["tier_not_reachable"]


@pytest.mark.parametrize("failure", [BackendUnavailableError("disk full"), OutcomeUnknownError("no answer")])
async def test_claim_waits_for_an_unreachable_metadata_store(failure: TierError) -> None:
    clock = FakeClock()
    store = OwnedObjectStore(MemoryObjectStore(), Claim(unreachable(), failure))
    await own_until_done(store, clock=clock, random=lambda: 0.5, backoff=Backoff(base_s=1, cap_s=3))
    assert clock.sleeps_s == [1, 2]
    assert store.problem == ""


async def test_claim_of_a_foreign_tier_fails_without_waiting() -> None:
    clock = FakeClock()
    store = OwnedObjectStore(MemoryObjectStore(), Claim(ForeignTierError("tierd.json says otherwise")))
    with pytest.raises(ForeignTierError):
        await own_until_done(store, clock=clock, random=lambda: 0.5, backoff=Backoff())
    assert clock.sleeps_s == []
