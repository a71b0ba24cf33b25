"""Batches in columns: the walk that finds them, and its twin ``iter_batches``, which makes an object for each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import legacy, marker, plain, wrapper
from tierd.errors import CorruptRecordError
from tierd.log import CheckedBatches, RecordBatch, iter_batches, walk_checked

POSITION = 1000  # in the file

ONE_BATCH = st.one_of(
    st.integers(1, 4).map(lambda count: lambda offset: plain(offset, count)),
    st.just(lambda offset: marker(offset, 7, commit=True)),
    st.sampled_from([0, 1]).map(lambda magic: lambda offset: legacy(magic, offset, b"k", b"v")),
)


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    """Return bytes of batches of all formats, whose offsets ascend."""
    offset, content = draw(st.integers(0, 50)), b""
    for encode in draw(st.lists(ONE_BATCH, max_size=8)):
        content += encode(offset)
        offset += draw(st.integers(4, 20))
    return content


@st.composite
def damaged_contents(draw: st.DrawFn) -> bytes:
    """Return such bytes, of which some were changed, and the end may be cut off."""
    content = bytearray(draw(contents()))
    for _ in range(draw(st.integers(0, 2))):
        if content:
            content[draw(st.integers(0, len(content) - 1))] ^= draw(st.integers(1, 255))
    return bytes(content[: draw(st.integers(0, len(content)))])


def by_objects(content: bytes) -> list[RecordBatch] | str:
    try:
        return list(iter_batches(content, name="file", position=POSITION))
    except CorruptRecordError as error:
        return str(error)


def by_columns(content: bytes) -> CheckedBatches | str:
    try:
        return walk_checked(content, name="file", position=POSITION)
    except CorruptRecordError as error:
        return str(error)


def assert_equal(found: CheckedBatches, batches: list[RecordBatch]) -> None:
    assert list(found) == batches
    assert [bytes(each.data) for each in found] == [bytes(each.data) for each in batches]
    assert len(found) == len(batches)
    assert list(found.base_offsets) == [each.base_offset for each in batches]
    assert list(found.last_offsets) == [each.last_offset for each in batches]
    assert list(found.positions[:-1]) == [each.position for each in batches]
    assert found.size_bytes == sum(each.size_bytes for each in batches)
    assert b"".join(each.data for each in found.pieces) == b"".join(each.data for each in batches)


@given(content=st.one_of(contents(), damaged_contents(), st.binary(max_size=200)))
def test_walk_finds_and_refuses_what_iter_batches_does(content: bytes) -> None:
    batches, found = by_objects(content), by_columns(content)
    if isinstance(batches, str) or isinstance(found, str):
        assert found == batches
    else:
        assert_equal(found, batches)


@given(content=contents(), start=st.integers(-10, 10), stop=st.integers(-10, 10), index=st.integers(-9, 8))
def test_items_and_slices_are_those_of_a_list(content: bytes, start: int, stop: int, index: int) -> None:
    batches, found = list(iter_batches(content, name="file", position=POSITION)), by_columns(content)
    assert isinstance(found, CheckedBatches)
    assert_equal(found[start:stop], batches[start:stop])
    if -len(batches) <= index < len(batches):
        assert found[index] == batches[index]
    else:
        with pytest.raises(IndexError):
            found[index]


def test_slice_with_steps_is_refused() -> None:
    with pytest.raises(ValueError, match="follow one another"):
        walk_checked(plain(0) + plain(1), name="file")[::2]


@given(content=contents(), first=st.integers(0, 200), end=st.integers(0, 200))
def test_between_returns_the_batches_that_reach_a_range_of_offsets(content: bytes, first: int, end: int) -> None:
    batches, found = list(iter_batches(content, name="file", position=POSITION)), by_columns(content)
    assert isinstance(found, CheckedBatches)
    assert_equal(
        found.between(first, end), [each for each in batches if each.last_offset >= first and each.base_offset < end]
    )


def test_between_ends_at_the_first_batch_behind_the_range_where_offsets_do_not_ascend() -> None:
    found = walk_checked(plain(10) + plain(30) + plain(11), name="file")
    assert list(found.between(0, 20).base_offsets) == [10]
    assert list(found.between(11, 40).base_offsets) == [30, 11]


@given(content=contents(), max_bytes=st.integers(-10, 2000))
def test_within_returns_the_first_batches_that_fit(content: bytes, max_bytes: int) -> None:
    found = by_columns(content)
    assert isinstance(found, CheckedBatches)
    kept = found.within(max_bytes)
    assert list(kept) == list(found)[: len(kept)]
    assert kept.size_bytes <= max(max_bytes, 0)
    assert len(kept) == len(found) or found[: len(kept) + 1].size_bytes > max_bytes


@given(first=contents(), second=contents(), cut=st.integers(0, 16), max_bytes=st.integers(0, 2000))
def test_batches_from_two_places_in_memory_are_as_those_from_one(
    first: bytes, second: bytes, cut: int, max_bytes: int
) -> None:
    whole = list(iter_batches(first + second, name="file", position=POSITION))
    before = walk_checked(first, name="file", position=POSITION)
    found = before.followed_by(walk_checked(second, name="file", position=POSITION + len(first)))
    assert_equal(found, whole)
    assert_equal(found[cut:], whole[cut:])
    assert_equal(found[:cut], whole[:cut])
    kept = found.within(max_bytes)
    assert_equal(kept, whole[: len(kept)])


def test_slice_keeps_no_bytes_in_memory_that_none_of_its_batches_was_read_with() -> None:
    first, second = plain(0), plain(1) + plain(2)
    found = walk_checked(first, name="file").followed_by(walk_checked(second, name="file", position=len(first)))
    assert [source.data.obj for source in found[1:].sources] == [second]
    assert [source.data.obj for source in found[:1].sources] == [first]
    assert [source.data.obj for source in found[:2].sources] == [first, second]


def test_bytes_of_many_batches_are_one_piece() -> None:
    content = b"".join(plain(offset) for offset in range(10))
    assert walk_checked(content, name="file", position=7).pieces == [(memoryview(content), 7)]


def test_walk_names_the_batch_whose_checksum_is_wrong() -> None:
    content = plain(0) + plain(1)[:-1] + b"!"
    with pytest.raises(CorruptRecordError, match="wrong checksum") as raised:
        walk_checked(content, name="file", position=POSITION)
    assert raised.value.position == POSITION + len(plain(0))


def test_walk_checks_the_checksum_of_a_legacy_entry() -> None:
    content = wrapper(1, 5, legacy(1, 0, b"k", b"v"))
    (found,) = walk_checked(content, name="file")
    assert (found.magic, found.last_offset) == (1, 5)
    with pytest.raises(CorruptRecordError, match="wrong checksum"):
        walk_checked(content[:-1] + bytes([content[-1] ^ 1]), name="file")
