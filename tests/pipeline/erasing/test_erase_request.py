from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coded import coded
from tests.fakes.remote_segments import PARTITION
from tierd.errors import MetadataDecodeError, RefusedError, TierError, TierErrorCode
from tierd.metadata import Batch, MemoryKeyValueStore, MetadataKeyFactory, Put
from tierd.pipeline import EraseRequest, EraseRequests, LeftSegment, new_request
from tierd.pipeline.erasing.erase_request import (
    MAX_KEY_BYTES,
    MAX_KEYS,
    CachesNote,
    ErasePhase,
    SearchNote,
    VersionsNote,
)
from tierd.pipeline.erasing.erase_requests import decode_request, encode_request
from tierd.pipeline.erasing.outlook import next_phase

OPEN = [phase for phase in ErasePhase if not phase.is_end]
VERSIONS = VersionsNote(at_ms=1)
CACHES = CachesNote(at_ms=1, host="host", segments=0)
LEFT = LeftSegment(id=UUID(int=3), start_offset=0, end_offset=9, size_bytes=1, custom_metadata=None)
conditions = st.fixed_dictionaries(
    {name: st.booleans() for name in ("is_searched", "has_left", "versions_clear", "caches_clear")}
)


def request(*keys: bytes, log_end_offset: int | None = None) -> EraseRequest:
    return new_request(
        UUID(int=1),
        PARTITION,
        keys or (b"key",),
        now_ms=0,
        requested_by="someone",
        reason="",
        tier_end_offset=10,
        log_end_offset=log_end_offset,
        at_once=False,
    )


left_segments = st.builds(
    LeftSegment,
    id=st.uuids(),
    start_offset=st.integers(0, 9),
    end_offset=st.integers(10, 19),
    size_bytes=st.integers(0, 2**40),
    custom_metadata=st.none() | st.binary(max_size=5),
    gone_at_ms=st.none() | st.integers(0, 2**40),
)
notes = st.builds(
    SearchNote,
    run_id=st.text(max_size=5),
    ended_at_ms=st.integers(0, 2**40),
    searched=st.integers(0, 9),
    rewritten=st.integers(0, 9),
    records_erased=st.integers(0, 9),
    problems=st.lists(st.text(max_size=5), max_size=2).map(tuple),
)


@st.composite
def requests(draw: st.DrawFn) -> EraseRequest:
    made = request(*draw(st.sets(st.binary(max_size=20), min_size=1, max_size=4)))
    return replace(
        made,
        phase=draw(st.sampled_from(ErasePhase)),
        searched=draw(st.frozensets(st.uuids(), max_size=3)),
        left=tuple(draw(st.lists(left_segments, max_size=3))),
        runs=tuple(draw(st.lists(notes, max_size=3))),
        versions=draw(st.none() | st.just(VERSIONS)),
        caches=draw(st.none() | st.just(CACHES)),
        problem=draw(st.text(max_size=10)),
    )


@given(requests())
def test_request_is_decoded_from_its_row_to_itself(made: EraseRequest) -> None:
    assert decode_request("key", encode_request(made)) == made


@pytest.mark.parametrize("row", [b"", b"\x02{}", b"\x01{", b"\x01{}"])
def test_malformed_row_is_refused_with_its_key(row: bytes) -> None:
    with pytest.raises(MetadataDecodeError, match="erasure/x"):
        decode_request("erasure/x", row)


@given(st.lists(conditions, min_size=1, max_size=12))
def test_request_is_done_only_when_all_conditions_hold_at_once(seen: list[dict[str, bool]]) -> None:
    made = request()
    for number, each in enumerate(seen):
        before = made
        made = made.moved(next_phase(made.phase, **each), now_ms=number)
        if before.phase.is_end:
            assert made == before
        elif made.phase is ErasePhase.DONE:
            assert all(each.values())
            assert not made.keys
        else:
            assert made.keys == before.keys
    moments = [at_ms for at_ms, _ in made.history]
    assert moments == sorted(moments)
    assert made.history[-1][1] is made.phase


@given(st.sampled_from(OPEN), st.sampled_from([ErasePhase.SEARCHING, ErasePhase.LEAVING]))
def test_evidence_is_dropped_when_a_request_returns_to_an_earlier_phase(phase: ErasePhase, target: ErasePhase) -> None:
    made = replace(request(), phase=phase, versions=VERSIONS, caches=CACHES)
    moved = made.moved(target, now_ms=1)
    assert phase is target or (moved.versions, moved.caches) == (None, None)


@given(requests())
def test_ended_request_does_not_change(made: EraseRequest) -> None:
    ended = made.moved(ErasePhase.CANCELLED, now_ms=1) if made.is_open else made
    note = SearchNote(run_id="run", ended_at_ms=1, searched=1, rewritten=1, records_erased=1)
    for changed in (
        ended.moved(ErasePhase.SEARCHING, now_ms=2),
        ended.blocked("why"),
        ended.cleared(VERSIONS, CACHES),
        ended.after_search(note, searched=[UUID(int=7)], replaced=()),
        ended.inherited([UUID(int=7)], ()),
        ended.seen([]),
    ):
        assert changed == ended


@given(st.lists(left_segments, max_size=4), st.lists(left_segments, max_size=4))
def test_segment_that_was_found_removed_stays_removed(first: list[LeftSegment], second: list[LeftSegment]) -> None:
    known = request().seen(first)
    later = request().seen(first).seen(second)
    for each in known.left:
        (now,) = [other for other in later.left if other.id == each.id]
        assert each.gone_at_ms is None or now.gone_at_ms == each.gone_at_ms
    assert {each.id for each in later.left} == {each.id for each in [*first, *second]}


def test_request_covers_the_offsets_of_the_log_at_its_filing() -> None:
    assert request().end_offset == 10
    assert request(log_end_offset=25).end_offset == 25
    assert request(log_end_offset=5).end_offset == 10


def test_request_with_no_keys_or_too_many_is_refused() -> None:
    for keys in ([], [b"%d" % n for n in range(MAX_KEYS + 1)], [bytes(MAX_KEY_BYTES + 1)]):
        with pytest.raises(RefusedError):
            new_request(
                UUID(int=1),
                PARTITION,
                keys,
                now_ms=0,
                requested_by="",
                reason="",
                tier_end_offset=0,
                log_end_offset=None,
                at_once=False,
            )


def test_repr_of_a_request_has_neither_keys_nor_digests() -> None:
    assert "key" not in repr(request(b"key")).replace("1 keys", "")


async def test_concurrent_changes_of_a_request_are_all_kept() -> None:
    rows = MemoryKeyValueStore()
    store = EraseRequests(rows, MetadataKeyFactory("cluster"))
    await store.file(request())
    interfered = False

    async def interfere() -> None:
        await store.update(UUID(int=1), lambda r: r.seen([LEFT]))

    class Interfering(MemoryKeyValueStore):
        async def get(self, key: str) -> bytes | None:
            nonlocal interfered
            value = await rows.get(key)
            if not interfered:
                interfered = True
                await interfere()
            return value

        apply = rows.apply

    await EraseRequests(Interfering(), MetadataKeyFactory("cluster")).update(UUID(int=1), lambda r: r.blocked("why"))
    found = await store.get(UUID(int=1))
    assert (found.problem, len(found.left)) == ("why", 1)


async def test_requests_are_listed_in_order_without_a_damaged_one() -> None:
    rows = MemoryKeyValueStore()
    store = EraseRequests(rows, MetadataKeyFactory("cluster"))
    for number in (3, 1, 2):
        await store.file(replace(request(), id=UUID(int=number), requested_at_ms=number))
    await store.update(UUID(int=2), lambda r: r.moved(ErasePhase.CANCELLED, now_ms=9))
    assert [each.id.int for each in await store.list()] == [1, 2, 3]
    await damage(rows, MetadataKeyFactory("cluster").erasure(UUID(int=1)))
    assert [each.id.int for each in await store.list(PARTITION, only_open=True)] == [3]
    with pytest.raises(TierError, check=coded(TierErrorCode.UNKNOWN_ERASURE)):
        await store.get(UUID(int=4))


async def damage(rows: MemoryKeyValueStore, key: str) -> None:
    await rows.apply(Batch([Put(key, b"\x01not json")]))
