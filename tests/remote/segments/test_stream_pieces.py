from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tierd.model import ByteRange
from tierd.remote.segments.segment_storage import STREAM_PIECE_BYTES, stream_pieces

MIB = 1 << 20
starts = st.integers(0, 100 * MIB)


@given(starts, st.integers(1, 100 * MIB), st.integers(1, 20))
def test_pieces_make_up_the_range_are_bounded_and_end_where_chunks_end(start: int, size: int, chunk_mib: int) -> None:
    chunk_size = chunk_mib * MIB
    pieces = list(stream_pieces(ByteRange.of_size(start, size), chunk_size=chunk_size))
    assert (pieces[0].start, pieces[-1].end) == (start, start + size - 1)
    assert all(one.end + 1 == other.start for one, other in pairwise(pieces))
    assert max(piece.size for piece in pieces) <= max(chunk_size, STREAM_PIECE_BYTES)
    assert all((piece.end + 1) % chunk_size == 0 for piece in pieces[:-1])
