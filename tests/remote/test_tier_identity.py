import asyncio
from uuid import UUID

import pytest

from tests.fakes.memory_object_store import MemoryObjectStore
from tierd.errors import ForeignTierError, RemoteIntegrityError, RetriableRemoteStorageError
from tierd.remote import claim_tier

OURS, THEIRS = UUID(int=1), UUID(int=2)
KEY = "p/c/tierd.json"


async def claim(store: MemoryObjectStore, store_id: UUID) -> None:
    await claim_tier(store, key_prefix="p", cluster_id="c", store_id=store_id)


async def test_the_first_claim_is_written_and_may_be_repeated() -> None:
    store = MemoryObjectStore()
    await claim(store, OURS)
    await claim(store, OURS)
    assert [info.key for info in await store.list_objects("")] == [KEY]


async def test_another_metadata_store_is_refused_with_the_next_step() -> None:
    store = MemoryObjectStore()
    await claim(store, THEIRS)
    with pytest.raises(ForeignTierError, match=str(THEIRS)) as refused:
        await claim(store, OURS)
    assert "key_prefix" in refused.value.remedy


async def test_of_two_claims_at_once_one_wins() -> None:
    class SlowStore(MemoryObjectStore):
        async def put(self, key: str, body: object) -> None:
            await asyncio.sleep(0)  # both have seen that nothing is there
            assert isinstance(body, bytes)
            await super().put(key, body)

    store = SlowStore()
    outcomes = await asyncio.gather(claim(store, OURS), claim(store, THEIRS), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ForeignTierError", "NoneType"]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"store_id": 7}', b"[]", b'{"store_id": "x"}'])
async def test_an_identity_that_cannot_be_read_is_no_permission(content: bytes) -> None:
    store = MemoryObjectStore()
    await store.put(KEY, content)
    with pytest.raises(RemoteIntegrityError, match=KEY):
        await claim(store, OURS)


async def test_a_tier_that_was_filled_before_and_is_gone_is_not_begun_anew() -> None:
    store = MemoryObjectStore()
    with pytest.raises(RetriableRemoteStorageError, match=KEY) as missing:
        await claim_tier(store, key_prefix="p", cluster_id="c", store_id=OURS, known=True)
    assert "mount" in missing.value.remedy
    assert await store.list_objects("") == []
