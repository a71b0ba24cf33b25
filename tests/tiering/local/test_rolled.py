"""Offsets that the sources of a partition cover, without the rest of the daemon."""

from hypothesis import given
from hypothesis import strategies as st

from tierd.model import Lineage
from tierd.tiering.local.held_segment import FileState, HeldSegment, HoldKind
from tierd.tiering.local.rolled import CoveredOffsets, is_within


def _held(base_offset: int, records: int) -> HeldSegment:
    return HeldSegment(
        base_offset=base_offset,
        next_base_offset=base_offset + records,
        kind=HoldKind.NONE,
        root="/kafka/orders-0",
        log_file=FileState(1, 1, 1),
        lineage=Lineage(),
        present=frozenset(),
    )


SEGMENTS = st.lists(st.builds(_held, st.integers(0, 30), st.integers(1, 12)), max_size=8)


@given(sources=SEGMENTS, listed=SEGMENTS, taken=st.sets(st.integers(0, 7)))
def test_covered_offsets_agree_with_a_search_of_all_sources(
    sources: list[HeldSegment], listed: list[HeldSegment], taken: set[int]
) -> None:
    covered, known = CoveredOffsets(sources), list(sources)
    for number, segment in enumerate(sorted(listed, key=lambda each: each.base_offset)):
        assert covered.has_all_of(segment) == is_within(segment, known)
        if number in taken:
            covered.add(segment)
            known.append(segment)
