"""Secret of the hashes of keys: made once, the same for every process, and never shown."""

import asyncio
import base64

import pytest

from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tierd.errors import BackendUnavailableError, MetadataDecodeError, OutcomeUnknownError
from tierd.metadata import (
    Batch,
    KeyValueStore,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    Put,
    encode_value,
    export_lines,
    key_secret,
)

KEYS = MetadataKeyFactory("cluster")


async def test_secret_is_made_once_and_stays(any_store: KeyValueStore) -> None:
    secret = await key_secret(any_store, KEYS)
    assert len(secret) == 16
    assert await key_secret(any_store, KEYS) == secret
    assert await key_secret(any_store, MetadataKeyFactory("other")) != secret


async def test_processes_that_need_the_secret_at_once_get_the_same(any_store: KeyValueStore) -> None:
    assert len(set(await asyncio.gather(*(key_secret(any_store, KEYS) for _ in range(10))))) == 1


async def test_secret_of_an_unknown_outcome_is_the_one_that_is_stored() -> None:
    store = FaultyKeyValueStore(MemoryKeyValueStore())
    store.apply_faults.append(Fault.LOSE_ANSWER)
    with pytest.raises(OutcomeUnknownError):
        await key_secret(store, KEYS, new_secret=lambda: b"first secret 16b")
    assert await key_secret(store, KEYS, new_secret=lambda: b"other secret 16b") == b"first secret 16b"


async def test_store_that_does_not_answer_gives_no_secret() -> None:
    store = FaultyKeyValueStore(MemoryKeyValueStore())
    store.apply_faults.append(Fault.FAIL)
    with pytest.raises(BackendUnavailableError):
        await key_secret(store, KEYS)
    assert await store.get(KEYS.key_secret_key) is None


@pytest.mark.parametrize("text", ["c2hvcnQ=", "not base64 but hidden", base64.b64encode(bytes(17)).decode()])
async def test_secret_that_cannot_be_understood_is_refused_and_not_shown(text: str) -> None:
    store = MemoryKeyValueStore()
    await store.apply(Batch([Put(KEYS.key_secret_key, encode_value({"secret": text}))]))
    with pytest.raises(MetadataDecodeError, match="key-secret") as caught:
        await key_secret(store, KEYS)
    assert text not in str(caught.value)


async def test_export_does_not_have_the_secret() -> None:
    store = MemoryKeyValueStore()
    secret = await key_secret(store, KEYS)
    lines = [str(line) async for line in export_lines(store, KEYS, exported_ms=0)]
    assert not any(base64.b64encode(secret).decode() in line or "key-secret" in line for line in lines)
