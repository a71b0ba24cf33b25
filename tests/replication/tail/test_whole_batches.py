"""Whole and sound batches at the front of some bytes."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import forged, legacy, plain, wrapper
from tierd.log import BatchHeader, open_source, walk
from tierd.model import EpochEntry
from tierd.replication.tail.whole_batches import TailStop, whole_batches

KINDS = st.sampled_from(["plain", "old", "older", "packed"])


def log_of(kinds: list[str]) -> bytes:
    data = b""
    for offset, kind in enumerate(kinds):
        match kind:
            case "plain":
                data += plain(offset, 1, epoch=offset // 3)
            case "old":
                data += legacy(1, offset, b"k", b"v")
            case "older":
                data += legacy(0, offset, b"k", b"v")
            case _:
                data += wrapper(1, offset, legacy(1, 0, b"k", b"v"))
    return data


def test_batches_of_any_format_are_whole() -> None:
    data = log_of(["older", "old", "packed", "plain", "plain"])
    found = whole_batches(data, next_offset=0)
    assert (found.stop, found.size_bytes, found.next_offset) == (TailStop.END, len(data), 5)
    assert found.offsets == [0, 1, 2, 3, 4]
    assert found.epochs == [EpochEntry(1, 3)]


@given(kinds=st.lists(KINDS, max_size=6), cut=st.integers(0, 300))
def test_cut_log_has_its_first_batches(kinds: list[str], cut: int) -> None:
    data = log_of(kinds)
    found = whole_batches(data[: len(data) - cut], next_offset=0)
    again = whole_batches(data[: found.size_bytes], next_offset=0)
    assert (again.stop, again.next_offset) == (TailStop.END, found.next_offset)
    assert found.stop is (TailStop.END if found.size_bytes == len(data[: len(data) - cut]) else TailStop.TORN)
    if found.wanted_bytes:
        assert found.size_bytes + found.wanted_bytes <= len(data)


@settings(max_examples=60)
@given(kinds=st.lists(KINDS, min_size=1, max_size=5), at=st.integers(0, 10_000), flipped=st.integers(1, 255))
def test_walk_ends_before_a_flipped_byte_as_the_reference_does(
    kinds: list[str], at: int, flipped: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(log_of(kinds))
    data[at % len(data)] ^= flipped
    path: Path = tmp_path_factory.getbasetemp() / "flipped.log"
    path.write_bytes(data)
    sound = 0
    with open_source(path) as source:
        for each in walk(source, base_offset=0):
            if not isinstance(each, BatchHeader):
                break
            sound = each.end_position
    assert whole_batches(bytes(data), next_offset=0, end_offset=1 << 31).size_bytes == sound


@given(st.binary(max_size=200))
def test_any_bytes_are_walked_without_an_error(data: bytes) -> None:
    found = whole_batches(data, next_offset=0)
    assert 0 <= found.size_bytes <= len(data)


def test_zeros_are_no_batch() -> None:
    found = whole_batches(plain(0) + bytes(500), next_offset=0)
    assert (found.stop, found.next_offset) == (TailStop.BAD, 1)


def test_offset_below_the_log_end_is_bad() -> None:
    assert whole_batches(plain(3), next_offset=4).stop is TailStop.BAD
    assert whole_batches(legacy(1, 3, b"k", b"v"), next_offset=4).stop is TailStop.BAD


def test_negative_number_of_offsets_is_bad() -> None:
    assert whole_batches(forged(plain(3), last_offset_delta=-1), next_offset=0).stop is TailStop.BAD


@pytest.mark.parametrize(("limit", "taken"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)])
def test_batch_that_reaches_the_limit_is_not_taken(limit: int, taken: int) -> None:
    found = whole_batches(plain(0, 2) + plain(2, 2), next_offset=0, limit_offset=limit)
    assert len(found.offsets) == taken
    assert found.stop is (TailStop.END if taken == 2 else TailStop.LIMIT)
