from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import segment
from tierd.metadata import ReadableRange
from tierd.model import TopicPartition
from tierd.pipeline.source.splits import Part, QuerySpan, plan_splits

ORDERS = TopicPartition("orders", 0)


def span(*parts: tuple[int, int, int], name: TopicPartition = ORDERS) -> QuerySpan:
    """Return a span of parts with first offset, end offset and size."""
    found = tuple(Part(ReadableRange(segment(a, b - 1), a, b), a, b, size) for a, b, size in parts)
    return QuerySpan(name, parts[0][0], parts[-1][1], found)


@st.composite
def spans(draw: st.DrawFn) -> QuerySpan:
    at, parts = 0, []
    for _ in range(draw(st.integers(min_value=1, max_value=6))):
        at += draw(st.integers(min_value=0, max_value=5))
        end = at + draw(st.integers(min_value=1, max_value=50))
        parts.append((at, end, draw(st.integers(min_value=1, max_value=1000))))
        at = end
    return span(*parts)


@given(
    st.lists(spans(), max_size=3),
    st.integers(min_value=1, max_value=2000),
    st.none() | st.integers(min_value=1, max_value=30),
    st.none() | st.integers(min_value=1, max_value=30),
)
def test_wanted_offsets_are_in_one_split_each_and_no_others(
    asked: list[QuerySpan], target_bytes: int, min_splits: int | None, max_records: int | None
) -> None:
    found = plan_splits(asked, target_bytes=target_bytes, min_splits=min_splits, max_records=max_records)
    wanted = [offset for each in asked for part in each.parts for offset in range(part.start_offset, part.end_offset)]
    read = [o for split in found for part in split.parts for o in range(part.start_offset, part.end_offset)]
    assert read == wanted
    for split in found:
        assert split.start_offset <= split.parts[0].start_offset
        assert split.parts[-1].end_offset <= split.end_offset
        assert max_records is None or split.end_offset - split.start_offset <= max_records


def test_large_segment_is_cut_and_small_segments_are_joined() -> None:
    found = plan_splits([span((0, 100, 4000))], target_bytes=1000, min_splits=None, max_records=None)
    assert [(s.start_offset, s.end_offset) for s in found] == [(0, 25), (25, 50), (50, 75), (75, 100)]
    small = span(*((n * 10, n * 10 + 10, 100) for n in range(8)))
    together = plan_splits([small], target_bytes=400, min_splits=None, max_records=None)
    assert [len(s.parts) for s in together] == [4, 4]


def test_splits_have_about_equal_sizes() -> None:
    uneven = span((0, 10, 5000), (10, 1000, 100), (1000, 1100, 2900))
    sizes = [s.size_bytes for s in plan_splits([uneven], target_bytes=2000, min_splits=None, max_records=None)]
    assert len(sizes) == 4
    assert max(sizes) <= 2600


def test_number_of_splits_is_the_requested_one() -> None:
    asked = [span((0, 100, 1000)), span((0, 100, 3000), name=TopicPartition("orders", 1))]
    found = plan_splits(asked, target_bytes=1 << 30, min_splits=8, max_records=None)
    assert [s.name.partition for s in found] == [0] * 2 + [1] * 6


def test_empty_span_has_no_split() -> None:
    assert plan_splits([QuerySpan(ORDERS, 5, 5, ())], target_bytes=1, min_splits=3, max_records=None) == []
