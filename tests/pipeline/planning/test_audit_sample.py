"""Choice of the segments that a run audits."""

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


def test_limit_of_zero_bytes_audits_no_segment() -> None:
    assert works([candidate(tier(MIB, MIB))], 0) == []


def test_partition_without_readable_segments_is_not_audited() -> None:
    assert works([candidate([])], MIB) == []


def test_large_limit_audits_each_segment_as_a_group_of_its_partition() -> None:
    found = works([candidate(tier(MIB, 2 * MIB)), candidate(other_tier(MIB), partition=OTHER)], 1 << 40, first_index=3)
    assert [(work.index, work.partition, work.kind) for work in found] == [
        (3, PARTITION, WorkKind.AUDIT),
        (4, OTHER, WorkKind.AUDIT),
    ]
    assert [work.groups for work in found] == [(Group(0, 0), Group(1, 1)), (Group(0, 0),)]
    assert sum(row.size_bytes for row in found[0].inputs) == 3 * MIB
    assert (found[0].first_dirty_offset, found[0].round_end_offset) == (0, 20)
    assert not found[0].compacts
    assert not found[0].is_ordered


def test_segments_that_the_run_rewrites_are_not_audited() -> None:
    segments = tier(MIB, MIB, MIB)
    assert starts(works([candidate(segments)], 1 << 40, but=[segments[1].segment.id])) == [0, 20]


def test_segment_larger_than_the_limit_is_audited_alone() -> None:
    found = works([candidate(tier(512 * MIB, 512 * MIB, 512 * MIB))], MIB)
    assert len(starts(found)) == 1


def test_runs_with_different_seeds_choose_different_segments() -> None:
    tiers = [candidate(tier(*[MIB] * 20))]
    assert len({tuple(starts(works(tiers, 3 * MIB, seed=seed))) for seed in range(20)}) > 15


def test_segment_is_chosen_in_proportion_to_its_size() -> None:
    tiers = [candidate(tier(3 * MIB, MIB)), candidate(other_tier(4 * MIB), partition=OTHER)]
    first = [works(tiers, 1, seed=seed)[0] for seed in range(4000)]
    of_other = sum(work.partition == OTHER for work in first)
    of_largest = sum(work.partition == PARTITION and work.inputs[0].start_offset == 0 for work in first)
    assert 1850 < of_other < 2150
    assert 1350 < of_largest < 1650


def test_number_of_small_segments_in_an_audit_is_bounded() -> None:
    assert len(starts(works([candidate(tier(*[0, 1] * 50))], 1 * MIB))) == 16


def test_segment_with_a_readable_part_is_audited() -> None:
    """The second segment continues an abandoned branch."""
    segments = [remote(0, 9), remote(10, 29, epochs={0: 10, 1: 20})]
    found = works([candidate(segments, lineage=[(0, 0), (2, 15)])], 1 << 40)
    assert starts(found) == [0, 10]


@given(st.lists(st.integers(0, 8 * MIB), min_size=1, max_size=30), st.integers(1, 40 * MIB), st.integers(0, 1 << 32))
def test_audit_stays_within_the_limit_except_for_a_single_segment(sizes: list[int], max_bytes: int, seed: int) -> None:
    found = works([candidate(tier(*sizes))], max_bytes, seed=seed)
    chosen = starts(found)
    assert chosen
    assert len(set(chosen)) == len(chosen)
    assert len(chosen) == 1 or sum(row.size_bytes for work in found for row in work.inputs) <= max_bytes
