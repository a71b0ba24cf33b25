"""Batches of a remote segment, read in ranges of any size."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.log_dirs import SegmentShape
from tests.fakes.remote_segments import segment
from tests.fakes.storage_manager import UnusedStorage
from tierd.errors import CorruptRecordError, RemoteIntegrityError
from tierd.log import NewRecord, RecordBatch, encode_batch, iter_batches
from tierd.model import ByteRange, RemoteLogSegmentMetadata
from tierd.tiering.reading.remote_reader import RemoteSegmentReader, _parse

SIZES = st.lists(st.integers(0, 300), min_size=1, max_size=12)


class Ranges(UnusedStorage):
    """``RemoteStorageManager`` that has only the bytes of one log."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[ByteRange] = []

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        self.asked.append(byte_range)
        return self.content[byte_range.start : byte_range.end + 1]


def log_of(sizes: list[int]) -> bytes:
    """Return a log with a batch of one record for each size."""
    batches = [encode_batch([NewRecord(None, b"v" * size, 1)], base_offset=at) for at, size in enumerate(sizes)]
    return b"".join(bytes(batch) for batch in batches)


@given(sizes=SIZES, cuts=st.lists(st.integers(1, 4000), max_size=20))
def test_batches_are_the_same_for_any_cut_of_the_bytes(sizes: list[int], cuts: list[int]) -> None:
    content = log_of(sizes)
    edges = [0, *sorted({min(cut, len(content)) for cut in cuts}), len(content)]
    found, joined, tail, position = list[RecordBatch](), b"", b"", 0
    for start, end in pairwise(edges):
        data = content[start:end]
        parsed = _parse(tail, data, "log", position)
        position += len(tail) + len(data) - len(parsed.tail)
        found += parsed.batches
        joined += b"".join(piece.data for piece in parsed.batches.pieces)
        tail = parsed.tail
    assert tail == b""
    assert found == list(iter_batches(content, name="log"))
    assert b"".join(bytes(batch.data) for batch in found) == content
    assert joined == content


@given(
    sizes=SIZES, cut=st.integers(1, 4000), length=st.one_of(st.integers(-(1 << 31), 13), st.integers(14, (1 << 31) - 1))
)
def test_batch_with_an_impossible_length_is_refused_or_stays_incomplete(
    sizes: list[int], cut: int, length: int
) -> None:
    content = bytearray(log_of(sizes))
    content[8:12] = length.to_bytes(4, "big", signed=True)
    whole = bytes(content)
    cut = min(cut, len(whole))
    try:
        parsed = _parse(b"", whole[:cut], "log", 0)
        parsed = _parse(parsed.tail, whole[cut:], "log", 0)
    except CorruptRecordError:
        return
    assert not parsed.batches or bytes(whole) == log_of(sizes)


async def test_batch_larger_than_a_range_is_assembled_from_several_ranges() -> None:
    batch = SegmentShape(records_per_batch=100, value_bytes=3000).batch()
    content = bytes(batch)
    remote = Ranges(content)
    metadata = segment(0, 99, size_bytes=len(content))
    reader = RemoteSegmentReader(remote, metadata, position=0, first_bytes=1, piece_bytes=1)
    batches = await reader.next_batches()
    assert batches is not None
    (found,) = batches
    assert bytes(found.data) == content
    assert await reader.next_batches() is None
    assert sum(asked.size for asked in remote.asked) == len(content)
    assert reader.fetched_bytes == len(content)


async def test_incomplete_batch_at_the_end_of_a_segment_is_an_integrity_error() -> None:
    content = log_of([10, 20])[:-1]
    metadata = segment(0, 1, size_bytes=len(content))
    reader = RemoteSegmentReader(Ranges(content), metadata, position=0, first_bytes=1 << 20, piece_bytes=1 << 20)
    batches = await reader.next_batches()
    assert batches is not None
    assert len(batches) == 1
    with pytest.raises(RemoteIntegrityError, match="no whole batch"):
        await reader.next_batches()
