"""Which segments a run audits."""

from collections.abc import Iterable
from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import PARTITION
from tests.pipeline.planning.tiers import candidate, other_partition, remote, tier
from tierd.model import RemoteLogSegmentMetadata
from tierd.pipeline.planning import Candidate, PartitionWork, WorkKind, audit_works
from tierd.pipeline.planning.work_order import Group

MIB = 1 << 20
OTHER = other_partition(1)


def works(
    candidates: Iterable[Candidate], max_bytes: int, *, but: Iterable[UUID] = (), seed: int = 1, first_index: int = 0
) -> list[PartitionWork]:
    return audit_works(
        candidates, max_bytes=max_bytes, but=frozenset(but), random=Random(seed).random, first_index=first_index
    )


def starts(found: Iterable[PartitionWork]) -> list[int]:
    return [row.start_offset for work in found for row in work.inputs]


def other_tier(*sizes: int) -> list[RemoteLogSegmentMetadata]:
    return [remote(place * 10, place * 10 + 9, size=size, partition=OTHER) for place, size in enumerate(sizes)]


def test_without_bytes_nothing_is_audited() -> None:
    assert works([candidate(tier(MIB, MIB))], 0) == []


def test_where_nothing_is_readable_nothing_is_audited() -> None:
    assert works([candidate([])], MIB) == []


def test_with_room_for_all_every_segment_is_a_group_of_its_own_partition() -> None:
    found = works([candidate(tier(MIB, 2 * MIB)), candidate(other_tier(MIB), partition=OTHER)], 1 << 40, first_index=3)
    assert [(work.index, work.partition, work.kind) for work in found] == [
        (3, PARTITION, WorkKind.AUDIT),
        (4, OTHER, WorkKind.AUDIT),
    ]
    assert [work.groups for work in found] == [(Group(0, 0), Group(1, 1)), (Group(0, 0),)]
    assert found[0].size_bytes == 3 * MIB
    assert (found[0].first_dirty_offset, found[0].round_end_offset) == (0, 20)
    assert not found[0].compacts
    assert not found[0].is_ordered


def test_what_the_run_rewrites_is_left_out() -> None:
    segments = tier(MIB, MIB, MIB)
    assert starts(works([candidate(segments)], 1 << 40, but=[segments[1].segment.id])) == [0, 20]


def test_a_segment_larger_than_the_limit_has_its_turn_and_is_alone() -> None:
    found = works([candidate(tier(512 * MIB, 512 * MIB, 512 * MIB))], MIB)
    assert len(starts(found)) == 1


def test_each_run_chooses_others() -> None:
    tiers = [candidate(tier(*[MIB] * 20))]
    assert len({tuple(starts(works(tiers, 3 * MIB, seed=seed))) for seed in range(20)}) > 15


def test_a_segment_is_chosen_as_often_as_it_is_large() -> None:
    tiers = [candidate(tier(3 * MIB, MIB)), candidate(other_tier(4 * MIB), partition=OTHER)]
    first = [works(tiers, 1, seed=seed)[0] for seed in range(4000)]
    of_other = sum(work.partition == OTHER for work in first)
    of_largest = sum(work.partition == PARTITION and work.inputs[0].start_offset == 0 for work in first)
    assert 1850 < of_other < 2150
    assert 1350 < of_largest < 1650


def test_small_segments_are_no_flood_of_requests() -> None:
    assert len(starts(works([candidate(tier(*[0, 1] * 50))], 1 * MIB))) == 16


def test_what_readers_take_a_part_of_is_audited_too() -> None:
    """The second one goes on with a branch that was given up."""
    segments = [remote(0, 9), remote(10, 29, epochs={0: 10, 1: 20})]
    found = works([candidate(segments, lineage=[(0, 0), (2, 15)])], 1 << 40)
    assert starts(found) == [0, 10]


@given(st.lists(st.integers(0, 8 * MIB), min_size=1, max_size=30), st.integers(1, 40 * MIB), st.integers(0, 1 << 32))
def test_never_more_than_the_limit_but_for_a_single_segment(sizes: list[int], max_bytes: int, seed: int) -> None:
    found = works([candidate(tier(*sizes))], max_bytes, seed=seed)
    chosen = starts(found)
    assert chosen
    assert len(set(chosen)) == len(chosen)
    assert len(chosen) == 1 or sum(work.size_bytes for work in found) <= max_bytes
