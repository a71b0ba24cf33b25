from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tierd.model import ByteRange
from tierd.remote.transform.chunk_layout import ChunkLayout, StoredChunk, count_chunks, original_sizes


@st.composite
def layouts(draw: st.DrawFn) -> ChunkLayout:
    size, chunk_size = draw(st.integers(1, 500)), draw(st.integers(1, 100))
    count = count_chunks(size, chunk_size)
    stored = draw(st.lists(st.integers(1, 200), min_size=count, max_size=count))
    return ChunkLayout(size, chunk_size, tuple(StoredChunk(s, 0) for s in stored))


@given(layouts())
def test_chunks_cover_the_log_and_the_object_without_gaps(layout: ChunkLayout) -> None:
    count = len(layout.chunks)
    originals = [layout.original_range(number) for number in range(count)]
    stored = [layout.stored_range(range(number, number + 1)) for number in range(count)]
    for ranges, end in ((originals, layout.original_size), (stored, sum(c.size_bytes for c in layout.chunks))):
        assert [r.start for r in ranges] == [0, *(r.end + 1 for r in ranges[:-1])]
        assert ranges[-1].end + 1 == end
    assert [r.size for r in originals] == list(original_sizes(layout.original_size, layout.chunk_size))


@given(layouts(), st.data())
def test_a_range_is_in_exactly_the_chunks_that_it_touches(layout: ChunkLayout, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, layout.original_size - 1))
    asked = ByteRange(start, data.draw(st.integers(start, layout.original_size - 1)))
    touched = [
        number
        for number in range(len(layout.chunks))
        if layout.original_range(number).start <= asked.end and layout.original_range(number).end >= asked.start
    ]
    assert list(layout.chunks_of(asked)) == touched


@given(layouts(), st.integers(0, 1000))
def test_runs_are_neighbours_within_the_bound(layout: ChunkLayout, max_bytes: int) -> None:
    everything = range(len(layout.chunks))
    runs = list(layout.runs(everything, max_bytes))
    assert [number for run in runs for number in run] == list(everything)
    assert all(len(run) == 1 or layout.stored_range(run).size <= max_bytes for run in runs)
    for run, following in pairwise(runs):
        assert layout.stored_range(range(run.start, following.start + 1)).size > max_bytes
