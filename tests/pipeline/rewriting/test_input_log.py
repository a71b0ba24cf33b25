from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import batch, legacy, plain
from tierd.errors import CorruptRecordError
from tierd.log import Compression, RecordBatch, compress_batch, iter_batches
from tierd.pipeline.rewriting.checked_run import CheckedRun, iter_runs
from tierd.pipeline.rewriting.input_log import InputLog
from tierd.pipeline.rewriting.record_rows import Opened, open_batch

LOG = plain(0, 3) + batch(3, [(1, b"k", b"v" * 300)]) + legacy(1, 4, b"k", b"v") + batch(5, []) + plain(6, 2)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    bounds = [0, *sorted(places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def batches_in(pieces: Iterable[bytes]) -> Iterator[RecordBatch]:
    for found in iter_runs(pieces, name="a.log"):
        yield from (found.batch(index) for index in range(len(found))) if isinstance(found, CheckedRun) else (found,)


@given(st.lists(st.integers(0, len(LOG)), max_size=30))
def test_batches_are_the_same_for_any_cut_into_pieces(places: list[int]) -> None:
    whole = list(iter_batches(LOG, name="a.log"))
    pieced = [(found, bytes(found.data)) for found in batches_in(cut(LOG, places))]
    assert [found for found, _ in pieced] == whole
    assert [data for _, data in pieced] == [bytes(found.data) for found in whole]


@given(st.lists(st.integers(0, len(LOG)), max_size=8), st.integers(1, len(LOG) - 1))
def test_log_that_ends_within_a_batch_is_corrupt(places: list[int], end: int) -> None:
    ends = [found.end_position for found in iter_batches(LOG, name="a.log")]
    pieces = cut(LOG[:end], [place for place in places if place < end])
    if end in ends:
        assert len(list(batches_in(pieces))) == ends.index(end) + 1
        return
    last = max((place for place in ends if place < end), default=0)
    with pytest.raises(CorruptRecordError, match=f"an incomplete batch, {end - last} bytes at position {last}"):
        list(batches_in(pieces))


@pytest.mark.parametrize("piece_bytes", [1, 5, 1000])
def test_batch_length_that_is_too_small_is_refused_before_further_reads(piece_bytes: int) -> None:
    damaged = bytes(8) + (13).to_bytes(4, "big") + bytes(5)

    def pieces() -> list[bytes]:
        return [damaged[at : at + piece_bytes] for at in range(0, len(damaged), piece_bytes)]

    with pytest.raises(CorruptRecordError, match="batch length 13 is below 14 at position 0"):
        list(batches_in(pieces()))


@pytest.mark.parametrize("codec", Compression)
@given(places=st.lists(st.integers(0, len(LOG)), max_size=5))
def test_rows_of_a_batch_run_are_those_of_its_batches(codec: Compression, places: list[int]) -> None:
    first, last = (compress_batch(memoryview(each), codec) for each in (plain(0, 3), plain(6, 2)))
    log = b"".join((first, batch(3, [(1, b"k", b"v" * 300)]), legacy(1, 4, b"k", b"v"), batch(5, []), last))
    offsets: list[int] = []
    for found in iter_runs(cut(log, places), name="a.log"):
        for one, opened in opened_in(found):
            assert opened.rows.offset.tolist() == [record.offset for record in one.records()]
            assert [opened.rows.key(n) for n in range(opened.rows.size)] == [record.key for record in one.records()]
            assert one.magic < 2 or bytes(opened.records) == bytes(one.payload())
            offsets += opened.rows.offset.tolist()
    assert offsets == [0, 1, 2, 3, 4, 6, 7]


def opened_in(found: CheckedRun | RecordBatch) -> list[tuple[RecordBatch, Opened]]:
    if isinstance(found, RecordBatch):
        return [(found, open_batch(found))]
    parts = [found.part(index, index + 1) for index in range(len(found))]
    return [(part.batch(0), Opened(part.rows, part.records(0))) for part in parts]


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("piece_bytes", [7, 1 << 20])
def test_flipped_bit_in_any_batch_is_a_wrong_checksum(codec: Compression, piece_bytes: int) -> None:
    batches = [bytes(compress_batch(memoryview(plain(at, 3)), codec)) for at in (0, 3, 6)]
    for damaged, position in zip(range(3), (0, len(batches[0]), len(batches[0]) + len(batches[1])), strict=True):
        log = bytearray(b"".join(batches))
        log[position + len(batches[damaged]) - 3] ^= 1
        pieces = [bytes(log[at : at + piece_bytes]) for at in range(0, len(log), piece_bytes)]
        with pytest.raises(CorruptRecordError, match=f"wrong checksum of the batch at position {position}"):
            list(batches_in(pieces))


def test_empty_input_is_a_log_without_batches() -> None:
    assert list(InputLog(name="a.log", start_offset=5, end_offset=9, pieces=[]).runs()) == []
    assert list(InputLog(name="a.log", start_offset=5, end_offset=9, pieces=[b""]).runs()) == []
