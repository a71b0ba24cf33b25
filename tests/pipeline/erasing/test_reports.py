"""Reports of requests in the bucket: equal to their rows, without keys, and enough to file the requests again."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import PARTITION
from tests.fakes.transforms import ring
from tests.pipeline.erasing.lab import KEPT, SECRET, ErasureLab
from tests.tiering.setups import CLUSTER_ID
from tierd.errors import (
    RemoteAccessError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteUnauthenticatedError,
    RetriableRemoteStorageError,
)
from tierd.metadata import MetadataKeyFactory
from tierd.metadata.kv.in_memory import MemoryKeyValueStore
from tierd.model import ByteRange
from tierd.pipeline import EraseRequest, EraseRequests, ErasureReports, restore_requests
from tierd.pipeline.erasing.erase_request import CachesNote, ErasePhase, LeftSegment, SearchNote, VersionsNote
from tierd.pipeline.erasing.reports import decode_report, encode_report, recovered
from tierd.remote import ERASURE_REPORT, ObjectKeyFactory
from tierd.testing import cancel_at

KEYS = ObjectKeyFactory("pre/fix", CLUSTER_ID)
NAME = "orders-0"

times_ms = st.integers(0, 2**53)
counts = st.integers(0, 2**40)
requests = st.builds(
    EraseRequest,
    id=st.uuids(),
    partition=st.just(PARTITION),
    keys=st.just(frozenset()),
    key_digests=st.lists(st.sampled_from(["00" * 32, "ff" * 32]), unique=True).map(tuple),
    requested_at_ms=times_ms,
    requested_by=st.text(max_size=20),
    reason=st.text(max_size=20),
    tier_end_offset=counts,
    end_offset=counts,
    at_once=st.booleans(),
    phase=st.sampled_from(ErasePhase),
    searched=st.just(frozenset()),
    left=st.lists(
        st.builds(
            LeftSegment,
            id=st.uuids(),
            start_offset=counts,
            end_offset=counts,
            size_bytes=counts,
            custom_metadata=st.none() | st.binary(max_size=9),
            gone_at_ms=st.none() | times_ms,
        ),
        max_size=3,
    ).map(tuple),
    runs=st.lists(
        st.builds(
            SearchNote,
            run_id=st.text(max_size=9),
            ended_at_ms=times_ms,
            searched=counts,
            rewritten=counts,
            records_erased=counts,
            problems=st.lists(st.text(max_size=9), max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    versions=st.none() | st.builds(VersionsNote, at_ms=times_ms, statement=st.text(max_size=9)),
    caches=st.none() | st.builds(CachesNote, at_ms=times_ms, host=st.text(max_size=9), segments=counts),
    problem=st.text(max_size=20),
    history=st.lists(st.tuples(times_ms, st.sampled_from(ErasePhase)), max_size=3).map(tuple),
)


@pytest.fixture
async def lab(tmp_path: Path) -> ErasureLab:
    lab = ErasureLab(tmp_path, {NAME: KEPT})
    lab.fill(NAME)
    await lab.copy()
    return lab


async def report_of(lab: ErasureLab, request: EraseRequest) -> EraseRequest:
    key = ObjectKeyFactory("", CLUSTER_ID).erasure_report(request.id)
    return decode_report(key, await lab.tier.store.get(key))


async def restored_from(store: MemoryObjectStore, *, dry_run: bool = False) -> tuple[EraseRequests, list[str]]:
    fresh, damaged = EraseRequests(MemoryKeyValueStore(), MetadataKeyFactory(CLUSTER_ID)), list[str]()
    await restore_requests(
        store, KEYS, fresh, now_ms=9, dry_run=dry_run, report_damage=lambda key, problem: damaged.append(str(problem))
    )
    return fresh, damaged


@given(requests)
def test_report_is_decoded_to_the_request_without_its_keys(request: EraseRequest) -> None:
    searching = replace(request, keys=frozenset([SECRET]), searched=frozenset([UUID(int=1)]))
    content = encode_report(searching)
    assert decode_report("key", content) == request
    assert SECRET not in content
    assert json.loads(content)["format_version"] == 1


@given(st.binary(max_size=40) | requests.map(encode_report).map(lambda content: content[: len(content) // 2]))
def test_damaged_report_is_refused_and_named(content: bytes) -> None:
    with pytest.raises(RemoteIntegrityError, match="the key"):
        decode_report("the key", content)


def test_report_of_a_later_version_is_refused() -> None:
    with pytest.raises(RemoteIntegrityError, match="no report of format_version 1"):
        decode_report("key", b'{"format_version": 2}')


@given(requests)
def test_recovered_request_is_not_open(request: EraseRequest) -> None:
    found = recovered(request, now_ms=9)
    assert not found.is_open
    if request.is_open:
        assert (found.phase, found.history[-1]) == (ErasePhase.CANCELLED, (9, ErasePhase.CANCELLED))
        assert "file the request again" in found.problem
    else:
        assert found == request


async def test_report_equals_the_row_of_its_request_in_each_phase(lab: ErasureLab) -> None:
    request = await lab.file(NAME)
    await lab.keeper.step_all()
    for phase in (ErasePhase.SEARCHING, ErasePhase.LEAVING, ErasePhase.DONE):
        row = await lab.requests.get(request.id)
        assert row.phase is phase
        assert await report_of(lab, request) == replace(row, keys=frozenset(), searched=frozenset())
        if phase is ErasePhase.SEARCHING:
            await lab.run()
        else:
            await lab.end_of_grace()
        await lab.keeper.step_all()


async def test_no_object_of_the_bucket_has_an_erased_key_at_the_end(lab: ErasureLab) -> None:
    await lab.file(NAME, at_once=True)
    await lab.run()
    (done,) = await lab.keeper.step_all()
    assert done.phase is ErasePhase.DONE
    stored = await lab.stored()
    assert any("/erasures/" in key for key in stored)
    assert not [key for key, content in stored.items() if SECRET in content]


async def test_report_that_was_missing_at_the_end_of_a_request_is_stored_by_the_next_process(lab: ErasureLab) -> None:
    request = await lab.file(NAME)
    await lab.keeper.cancel(request.id)
    await lab.come_back()
    await lab.keeper.step_all()
    assert (await report_of(lab, request)).phase is ErasePhase.CANCELLED


async def test_unchanged_report_is_not_written_again(lab: ErasureLab, monkeypatch: pytest.MonkeyPatch) -> None:
    await lab.file(NAME)
    await lab.keeper.publish()

    async def refused(*_: object, **__: object) -> None:
        raise AssertionError("the store was asked")

    for call in ("put", "get", "replace"):
        monkeypatch.setattr(lab.tier.store, call, refused)
    await lab.keeper.publish()


async def test_report_that_cannot_be_stored_is_tried_again_and_delays_no_other(
    lab: ErasureLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await lab.file(NAME), await lab.file(NAME, b"key")
    put = lab.tier.store.put

    async def fails_once(key: str, body: bytes) -> None:
        monkeypatch.setattr(lab.tier.store, "put", put)
        raise RetriableRemoteStorageError("the store is busy")

    monkeypatch.setattr(lab.tier.store, "put", fails_once)
    for _ in range(2):
        await lab.keeper.publish()
    for request in (first, second):
        assert (await report_of(lab, request)).id == request.id


async def test_report_does_not_return_to_an_earlier_state_of_its_row(lab: ErasureLab) -> None:
    request = await lab.file(NAME)
    keys = ObjectKeyFactory("", CLUSTER_ID)

    class Late(EraseRequests):
        """EraseRequests that list the state before the request was cancelled."""

        async def list(self, *_: object, **__: object) -> list[EraseRequest]:
            return [request]

    late = ErasureReports(lab.tier.store, keys, Late(lab.tier.rows, MetadataKeyFactory(CLUSTER_ID)))
    await lab.keeper.cancel(request.id)
    await lab.keeper.publish()
    await late.publish_all()
    assert (await report_of(lab, request)).phase is ErasePhase.CANCELLED


async def test_concurrent_publishers_leave_the_latest_state(lab: ErasureLab) -> None:
    request = await lab.file(NAME)
    keys = ObjectKeyFactory("", CLUSTER_ID)
    await asyncio.gather(*(ErasureReports(lab.tier.store, keys, lab.requests).publish_all() for _ in range(3)))
    assert (await report_of(lab, request)).phase is ErasePhase.SEARCHING


async def test_publishing_that_is_cancelled_at_any_await_is_completed_by_the_next_call(lab: ErasureLab) -> None:
    for number in range(1, 100):
        request = await lab.file(NAME, b"key %d" % number)
        await lab.keeper.publish()
        await lab.keeper.cancel(request.id)
        was_cancelled = await cancel_at(number, lab.keeper.publish)
        await lab.keeper.publish()
        assert (await report_of(lab, request)).phase is ErasePhase.CANCELLED
        if not was_cancelled:
            break
    assert number > 1


@given(st.lists(requests, max_size=4, unique_by=lambda request: request.id))
async def test_requests_are_filed_again_from_their_reports(found: list[EraseRequest]) -> None:
    store = MemoryObjectStore()
    for request in found:
        await store.put(KEYS.erasure_report(request.id), encode_report(request))
    fresh, damaged = await restored_from(store)
    expected = {request.id: recovered(request, now_ms=9) for request in found}
    assert {request.id: request for request in await fresh.list()} == expected
    assert not damaged


async def test_damaged_report_is_reported_and_the_others_are_restored(lab: ErasureLab) -> None:
    request, store = await lab.file(NAME), MemoryObjectStore()
    await store.put(KEYS.erasure_report(request.id), encode_report(request))
    await store.put(KEYS.erasure_report(UUID(int=1)), b"{}")
    await store.put(KEYS.erasure_report(UUID(int=2)), encode_report(request))
    await store.put(KEYS.erasure_report(UUID(int=3)), b" " * (ERASURE_REPORT.max_bytes + 1))
    await store.put(KEYS.erasure_report(UUID(int=4)), b'{"a":' * 3_000)
    fresh, damaged = await restored_from(store)
    assert [each.id for each in await fresh.list()] == [request.id]
    assert len(damaged) == 4


async def test_dry_run_files_no_request(lab: ErasureLab) -> None:
    request, store = await lab.file(NAME), MemoryObjectStore()
    await store.put(KEYS.erasure_report(request.id), encode_report(request))
    fresh, _ = await restored_from(store, dry_run=True)
    assert await fresh.list() == []


async def test_request_that_the_metadata_has_is_not_changed_by_a_restore(lab: ErasureLab) -> None:
    request, store = await lab.file(NAME), MemoryObjectStore()
    await store.put(KEYS.erasure_report(request.id), encode_report(request))
    found = await restore_requests(
        store, KEYS, lab.requests, now_ms=9, dry_run=False, report_damage=lambda key, problem: None
    )
    assert found == ()
    assert await lab.requests.get(request.id) == request


async def test_report_without_a_tag_of_the_ring_is_refused(lab: ErasureLab) -> None:
    request, forged = await lab.file(NAME), MemoryObjectStore()
    await forged.put(KEYS.erasure_report(request.id), encode_report(request))
    refused: list[RemoteStorageError] = []
    for accepts, restored in ((False, 0), (True, 1)):
        fresh = EraseRequests(MemoryKeyValueStore(), MetadataKeyFactory(CLUSTER_ID))
        await restore_requests(
            *(forged, KEYS, fresh),
            now_ms=9,
            dry_run=False,
            report_damage=lambda key, problem: refused.append(problem),
            ring=ring(),
            accepts_unauthenticated=accepts,
        )
        assert len(await fresh.list()) == restored
    assert [type(each) for each in refused] == [RemoteUnauthenticatedError]


async def test_report_of_an_earlier_version_gets_a_tag_and_is_then_accepted(lab: ErasureLab) -> None:
    request = await lab.file(NAME)
    await lab.tier.store.put(KEYS.erasure_report(request.id), encode_report(request))
    await ErasureReports(lab.tier.store, KEYS, lab.requests, ring()).publish_all()
    fresh = EraseRequests(MemoryKeyValueStore(), MetadataKeyFactory(CLUSTER_ID))
    refused: list[RemoteStorageError] = []
    await restore_requests(
        *(lab.tier.store, KEYS, fresh),
        now_ms=9,
        dry_run=False,
        report_damage=lambda key, problem: refused.append(problem),
        ring=ring("new"),
    )
    assert refused == []
    assert [each.id for each in await fresh.list()] == [request.id]


class RefusingStore(MemoryObjectStore):
    """Store that refuses to read one object, and has lost another since its listing."""

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        if key == KEYS.erasure_report(UUID(int=1)):
            raise RemoteAccessError(f"get {key}: 403 InvalidObjectState")
        if key == KEYS.erasure_report(UUID(int=2)):
            raise RemoteResourceNotFoundError(key)
        return await super().get(key, byte_range)


async def test_report_that_the_store_refuses_to_read_does_not_stop_the_restore_of_others(lab: ErasureLab) -> None:
    request, store = await lab.file(NAME), RefusingStore()
    for number in (1, 2):
        await store.put(KEYS.erasure_report(UUID(int=number)), b"")
    await store.put(KEYS.erasure_report(request.id), encode_report(request))
    fresh, damaged = await restored_from(store)
    assert [each.id for each in await fresh.list()] == [request.id]
    (problem,) = damaged
    assert "403 InvalidObjectState" in problem


@pytest.mark.parametrize("name", ["reason", "requested_by", "problem"])
async def test_report_with_a_lone_surrogate_is_damaged_and_the_others_are_restored(lab: ErasureLab, name: str) -> None:
    request, store = await lab.file(NAME), MemoryObjectStore()
    fields = json.loads(encode_report(replace(request, id=UUID(int=1)))) | {name: "\ud800"}
    await store.put(KEYS.erasure_report(UUID(int=1)), json.dumps(fields).encode())
    await store.put(KEYS.erasure_report(request.id), encode_report(request))
    fresh, damaged = await restored_from(store)
    assert [each.id for each in await fresh.list()] == [request.id]
    assert len(damaged) == 1
