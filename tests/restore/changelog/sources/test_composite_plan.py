"""Plans of composite changelogs: offsets by place, and the legality of mixtures (changelog-restore 3.4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.restore.changelog.sources.composite_plan import Extent, Place, PlannedPart, plan_composite

L, R = Place.LOCAL, Place.REMOTE
OFFSETS = st.integers(0, 60)
EXTENTS = st.tuples(OFFSETS, OFFSETS).map(lambda pair: Extent(min(pair), max(pair)))


def parts(
    remote: tuple[int, int],
    local: tuple[int, int],
    *,
    log_start: int = 0,
    first_dirty: int = 0,
    is_compacted: bool = False,
) -> list[tuple[Place, int, int]]:
    plan = plan_composite(
        remote=Extent(*remote),
        local=Extent(*local),
        log_start_offset=log_start,
        first_dirty_offset=first_dirty,
        is_compacted=is_compacted,
    )
    return [(part.place, part.start_offset, part.end_offset) for part in plan.parts]


@pytest.mark.spec("changelog-restore 46")
def test_local_part_is_preferred_where_both_have_the_offset() -> None:
    assert parts((0, 100), (80, 200)) == [(R, 0, 80), (L, 80, 200)]


def test_log_that_the_tier_has_beyond_a_stale_replica_goes_on_in_the_tier() -> None:
    assert parts((0, 300), (80, 200)) == [(R, 0, 80), (L, 80, 200), (R, 200, 300)]


def test_nothing_below_the_log_start_is_read() -> None:
    assert parts((0, 100), (80, 200), log_start=90) == [(L, 90, 200)]
    assert parts((0, 100), (100, 100), log_start=100) == []


@pytest.mark.spec("changelog-restore 49")
@pytest.mark.parametrize(
    ("first_dirty", "expected"),
    [
        (0, [(R, 0, 80), (L, 80, 200)]),
        (80, [(R, 0, 80), (L, 80, 200)]),
        (90, [(R, 0, 90), (L, 90, 200)]),  # the cleaned part of the local log is left out
        (100, [(R, 0, 100), (L, 100, 200)]),
        (101, [(L, 80, 200)]),
        (150, [(L, 80, 200)]),
    ],
)
def test_compacted_log_is_mixed_only_if_the_local_part_was_never_cleaned(
    first_dirty: int, expected: list[tuple[Place, int, int]]
) -> None:
    assert parts((0, 100), (80, 200), first_dirty=first_dirty, is_compacted=True) == expected


def test_compacted_log_that_is_whole_on_this_host_is_read_here_alone() -> None:
    assert parts((0, 100), (0, 200), is_compacted=True) == [(L, 0, 200)]
    assert parts((20, 100), (0, 100), first_dirty=90, is_compacted=True) == [(L, 0, 100)]


def test_compacted_log_whose_replica_is_stale_is_read_from_the_tier_alone() -> None:
    assert parts((0, 300), (80, 200), is_compacted=True) == [(R, 0, 300)]


@given(remote=EXTENTS, local=EXTENTS, log_start=OFFSETS, first_dirty=OFFSETS, is_compacted=st.booleans())
def test_parts_ascend_without_overlap_and_read_each_place_only_where_it_has_offsets(
    remote: Extent, local: Extent, log_start: int, first_dirty: int, *, is_compacted: bool
) -> None:
    plan = plan_composite(
        remote=remote,
        local=local,
        log_start_offset=log_start,
        first_dirty_offset=first_dirty,
        is_compacted=is_compacted,
    )
    at = log_start
    for part in plan.parts:
        assert at <= part.start_offset < part.end_offset
        extent = local if part.place is L else remote
        assert extent.start_offset <= part.start_offset
        assert part.end_offset <= extent.end_offset
        at = part.end_offset
    if not is_compacted:
        wanted = {n for extent in (remote, local) for n in range(*extent) if n >= log_start}
        assert {n for part in plan.parts for n in range(part.start_offset, part.end_offset)} == wanted
    elif {part.place for part in plan.parts} == {L, R}:
        begins_local = next(part.start_offset for part in plan.parts if part.place is L)
        assert begins_local >= first_dirty


def test_part_at_an_offset_in_a_hole_is_the_part_behind_it() -> None:
    plan = plan_composite(
        remote=Extent(0, 50), local=Extent(80, 90), log_start_offset=0, first_dirty_offset=0, is_compacted=False
    )
    assert plan.part_at(49) == PlannedPart(R, 0, 50)
    assert plan.part_at(50) == PlannedPart(L, 80, 90)
    assert plan.part_at(90) is None
    assert plan.start_offset == 0
