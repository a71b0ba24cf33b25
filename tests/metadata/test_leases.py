import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tierd.errors import (
    BackendUnavailableError,
    InvalidMetadataError,
    LeaseHeldError,
    LeaseLostError,
    MetadataDecodeError,
    OutcomeUnknownError,
)
from tierd.metadata import (
    Batch,
    Delete,
    KeyValueStore,
    Lease,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    Put,
    acquire_lease,
    release_lease,
    renew_lease,
)
from tierd.metadata.leases import decode_lease, encode_lease
from tierd.testing import cancel_at

KEYS = MetadataKeyFactory("cluster")
NAME = "pipeline"
KEY = KEYS.lease(NAME)
NOW_MS = 1_700_000_000_000


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


async def taken(store: KeyValueStore, holder: str = "one", now_ms: int = NOW_MS) -> Lease:
    return await acquire_lease(store, KEYS, NAME, holder, ttl_s=60.0, now_ms=now_ms)


async def test_lease_belongs_to_one_holder_until_it_expires(any_store: KeyValueStore) -> None:
    lease = await taken(any_store)
    assert lease == Lease(NAME, "one", NOW_MS + 60_000)
    with pytest.raises(
        LeaseHeldError, match=r"pipeline is held by one until 2023-11-14T22:14:20\.000\+00:00"
    ) as caught:
        await taken(any_store, "two", NOW_MS + 59_999)
    assert (caught.value.holder, caught.value.expires_at_ms) == ("one", lease.expires_at_ms)
    assert (await taken(any_store, "two", NOW_MS + 60_000)).holder == "two"
    with pytest.raises(LeaseLostError, match="held by two now"):
        await renew_lease(any_store, KEYS, lease, ttl_s=60.0, now_ms=NOW_MS + 60_000)
    await release_lease(any_store, KEYS, lease)
    with pytest.raises(LeaseHeldError, match="held by two"):
        await taken(any_store, "three", NOW_MS + 60_000)


async def test_renewed_lease_lasts_from_its_renewal_on(any_store: KeyValueStore) -> None:
    lease = await renew_lease(any_store, KEYS, await taken(any_store), ttl_s=60.0, now_ms=NOW_MS + 30_000)
    assert lease.expires_at_ms == NOW_MS + 90_000
    with pytest.raises(LeaseHeldError):
        await taken(any_store, "two", NOW_MS + 89_999)
    late = await renew_lease(any_store, KEYS, lease, ttl_s=60.0, now_ms=NOW_MS + 500_000)
    assert late.expires_at_ms == NOW_MS + 560_000


async def test_released_lease_may_be_acquired_by_another_holder(any_store: KeyValueStore) -> None:
    lease = await taken(any_store)
    await release_lease(any_store, KEYS, lease)
    await release_lease(any_store, KEYS, lease)
    with pytest.raises(LeaseLostError, match="it is free now"):
        await renew_lease(any_store, KEYS, lease, ttl_s=60.0, now_ms=NOW_MS)
    assert (await taken(any_store, "two")).holder == "two"


async def test_one_of_many_concurrent_requests_acquires_the_lease(any_store: KeyValueStore) -> None:
    outcomes = await asyncio.gather(*(taken(any_store, f"number {n}") for n in range(20)), return_exceptions=True)
    (winner,) = (outcome for outcome in outcomes if isinstance(outcome, Lease))
    assert all(o.holder == winner.holder for o in outcomes if isinstance(o, LeaseHeldError))
    assert sum(isinstance(outcome, LeaseHeldError) for outcome in outcomes) == 19


async def test_holder_may_repeat_a_request_of_unknown_outcome(store: FaultyKeyValueStore) -> None:
    store.apply_faults.append(Fault.LOSE_ANSWER)
    with pytest.raises(OutcomeUnknownError):
        await taken(store)
    assert await taken(store, now_ms=NOW_MS + 10) == Lease(NAME, "one", NOW_MS + 60_010)


@pytest.mark.parametrize("change", [Put(KEY, encode_lease(Lease(NAME, "two", NOW_MS + 5))), Delete(KEY)])
async def test_renewal_of_a_lease_that_another_holder_takes_meanwhile_is_lost(
    store: FaultyKeyValueStore, change: Put | Delete
) -> None:
    lease = await taken(store)

    async def slip_in() -> None:
        await store.inner.apply(Batch([change]))

    store.before_apply = slip_in
    with pytest.raises(LeaseLostError):
        await renew_lease(store, KEYS, lease, ttl_s=60.0, now_ms=NOW_MS)
    store.before_apply = None
    await release_lease(store, KEYS, lease)
    assert await store.get(KEY) == (change.value if isinstance(change, Put) else None)


async def test_renewal_of_a_lease_whose_row_changes_all_the_time_fails(store: FaultyKeyValueStore) -> None:
    turns = iter(range(1000))

    async def slip_in() -> None:
        await store.inner.apply(Batch([Put(KEY, encode_lease(Lease(NAME, "one", NOW_MS - next(turns))))]))

    lease = await taken(store)
    store.before_apply = slip_in
    with pytest.raises(BackendUnavailableError, match="changed 5 times"):
        await taken(store)
    with pytest.raises(BackendUnavailableError, match="changed 5 times"):
        await release_lease(store, KEYS, lease)


async def test_repeated_lease_calls_succeed_after_a_cancellation_at_any_await() -> None:
    for suspension in range(1, 20):
        store = MemoryKeyValueStore()

        async def run(store: KeyValueStore = store) -> None:
            lease = await renew_lease(store, KEYS, await taken(store), ttl_s=60.0, now_ms=NOW_MS)
            await release_lease(store, KEYS, lease)

        cancelled = await cancel_at(suspension, run)
        await run()
        assert await store.get(KEY) is None
        if not cancelled:
            assert suspension > 5
            return
    pytest.fail("it never ended")


@pytest.mark.parametrize(("name", "holder"), [("", "one"), ("a/b", "one"), ("ä", "one"), ("x" * 97, "one"), (NAME, "")])
async def test_a_name_that_cannot_be_part_of_a_key_is_refused(
    store: FaultyKeyValueStore, name: str, holder: str
) -> None:
    with pytest.raises(InvalidMetadataError, match="no lease can have"):
        await acquire_lease(store, KEYS, name, holder, ttl_s=60.0, now_ms=NOW_MS)
    assert store.batches == []


@given(st.builds(Lease, st.just(NAME), st.text(min_size=1), st.integers(0, 2**62)))
def test_a_lease_is_decoded_to_what_was_encoded(lease: Lease) -> None:
    assert decode_lease(KEY, encode_lease(lease), NAME) == lease


@given(
    st.binary(max_size=40)
    | st.builds(
        lambda body: b"\x01" + json.dumps(body).encode(),
        st.dictionaries(st.sampled_from(["holder", "expires_ms"]), st.none() | st.integers() | st.text()),
    )
)
def test_value_that_is_no_lease_is_an_error_that_names_the_key(value: bytes) -> None:
    try:
        decode_lease(KEY, value, NAME)
    except MetadataDecodeError as error:
        assert KEY in str(error)  # noqa: PT017  most values are none
