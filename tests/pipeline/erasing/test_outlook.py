"""Keys that a run searches for, for many requests over many segments."""

from dataclasses import replace
from uuid import UUID

import pytest

from tests.fakes.remote_segments import PARTITION
from tests.pipeline.planning.tiers import candidate, tier
from tierd.model import OffsetRange
from tierd.pipeline import EraseRequest, new_request, search_work
from tierd.pipeline.erasing.outlook import obstacle_of, outlook_of
from tierd.pipeline.planning import Candidate, Chain

SEGMENTS = tier(100, 100, 100)  # ten offsets each
IDS = [metadata.segment.id for metadata in SEGMENTS]


def request(
    number: int, *, searched: frozenset[UUID] = frozenset(), end_offset: int = 30, removes_unread: bool = False
) -> EraseRequest:
    filed = new_request(
        UUID(int=number),
        PARTITION,
        [b"key %d" % number],
        now_ms=0,
        requested_by="someone",
        reason="",
        tier_end_offset=end_offset,
        log_end_offset=None,
        at_once=False,
        removes_unread=removes_unread,
    )
    return replace(filed, searched=searched)


def test_unread_batches_are_removed_if_one_request_demands_it() -> None:
    waiting = [request(1), request(2)]
    assert not search_work(waiting, candidate(SEGMENTS)).removes_unread
    assert search_work([*waiting, request(3, removes_unread=True)], candidate(SEGMENTS)).removes_unread


def test_run_searches_for_the_keys_of_all_open_requests_in_each_segment_that_one_of_them_needs() -> None:
    asked = [request(1, searched=frozenset(IDS[:2])), request(2, searched=frozenset(IDS)), request(3, end_offset=10)]
    found = search_work(asked, candidate(SEGMENTS))
    assert found.keys == {b"key 1", b"key 3"}
    assert found.searched == {IDS[1]}


def test_run_has_no_keys_to_search_for_when_all_requests_are_searched() -> None:
    found = search_work([request(1, searched=frozenset(IDS)), request(2, end_offset=0)], candidate(SEGMENTS))
    assert (found.keys, found.searched) == (frozenset(), frozenset())


def test_search_of_many_requests_surveys_the_segments_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Candidate] = []
    chain = Candidate.chain

    def looked(self: Candidate) -> Chain:
        looks.append(self)
        return chain(self)

    monkeypatch.setattr(Candidate, "chain", looked)
    found = search_work([request(number) for number in range(50)], candidate(SEGMENTS))
    assert len(found.keys) == 50
    assert len(looks) == 1


@pytest.mark.parametrize(("is_copied", "missing"), [(True, OffsetRange(10, 14)), (False, None)])
def test_request_waits_for_offsets_that_the_tier_lost_and_the_leader_copies_again(
    is_copied: bool, missing: OffsetRange | None
) -> None:
    """A request that was done before that would leave the key readable in what is copied then."""
    lost = replace(candidate([SEGMENTS[0], SEGMENTS[2]], lineage=[(0, 0)]), is_copied=is_copied)
    found = outlook_of(request(1, searched=frozenset(IDS), end_offset=15), lost)
    assert found.missing == missing
    assert found.is_searched == (missing is None)
    assert (obstacle_of(request(1), found, now_ms=0) == "") == (missing is None)
    assert outlook_of(request(1, searched=frozenset(IDS), end_offset=10), lost).is_searched


def test_request_waits_for_offsets_behind_the_tier() -> None:
    found = outlook_of(request(1, searched=frozenset(IDS), end_offset=33), candidate(SEGMENTS, lineage=[(0, 0)]))
    assert found.missing == OffsetRange(30, 32)
