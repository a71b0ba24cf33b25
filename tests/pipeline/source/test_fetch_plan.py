"""Planned reads consist of whole batches and cover all wanted records, for any entries of the index."""

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tierd.arrow import Range
from tierd.log import OffsetIndex
from tierd.pipeline.source.fetch_plan import (
    Bytes,
    ChunkTimes,
    batches_of_offsets,
    chunks_to_read,
    clipped,
    whole_batches,
)


class Log:
    """Batches one after another: sizes, last offsets, and an index of some of them."""

    def __init__(self, shapes: list[tuple[int, int, bool]]) -> None:
        self.batches: list[tuple[Bytes, int, int]] = []  # bytes, first offset, last offset
        entries, position, offset = b"", 0, 0
        for size, records, is_indexed in shapes:
            last = offset + records - 1
            if is_indexed and position:
                entries += struct.pack(">ii", last, position)
            self.batches.append((Bytes(position, position + size), offset, last))
            position, offset = position + size, last + 1
        self.index = OffsetIndex.from_bytes(entries, 0, "index")
        self.size_bytes, self.end_offset = position, offset


logs = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5), st.booleans()), min_size=1, max_size=30).map(Log)


def is_whole(log: Log, piece: Bytes) -> bool:
    starts = {where.start for where, _, _ in log.batches}
    return piece.start in starts and (piece.end in starts or piece.end == log.size_bytes)


@given(logs, st.data())
def test_read_of_an_offset_range_covers_its_batches_and_is_whole(log: Log, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, log.end_offset - 1))
    end = data.draw(st.integers(start + 1, log.end_offset))
    found = batches_of_offsets(log.index, start, end, log.size_bytes)
    assert is_whole(log, found)
    for where, first, last in log.batches:
        if first < end and last >= start:
            assert found.start <= where.start < where.end <= found.end


@given(logs, st.lists(st.tuples(st.integers(0, 1500), st.integers(1, 200)), max_size=4))
def test_widened_pieces_are_whole_batches_and_cover_the_wanted_bytes(log: Log, asked: list[tuple[int, int]]) -> None:
    wanted = clipped([Bytes(at, at + size) for at, size in sorted(asked)], Bytes(0, log.size_bytes))
    found = whole_batches(wanted, log.index, log.size_bytes)
    assert all(is_whole(log, piece) for piece in found)
    assert all(before.end < after.start for before, after in pairwise(found))
    assert all(any(piece.start <= w.start and w.end <= piece.end for piece in found) for w in wanted)


def test_chunks_of_other_times_are_left_out_and_chunks_of_unknown_time_are_read() -> None:
    chunks = [
        ChunkTimes(Bytes(0, 10), 1, 5),
        ChunkTimes(Bytes(10, 20), 6, 9),
        ChunkTimes(Bytes(20, 30), None, None),
        ChunkTimes(Bytes(30, 40), 20, 30),
    ]
    assert chunks_to_read(chunks, Range(6, 8), 40) == [Bytes(10, 30)]
    assert chunks_to_read(chunks, Range(40, 50), 40) == [Bytes(20, 30)]
    assert chunks_to_read(chunks, Range(), 40) == [Bytes(0, 40)]
