from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import CorruptIndexError, MissingArtefactError
from tierd.log import ProducerStateEntry, parse_producer_snapshot, read_producer_snapshot
from tierd.log.producers.producer_state import encode_producer_snapshot

A13 = bytes.fromhex(
    "0001f5766a5200000001000000000000000700010000000400000000000000060000000100000000000003e9ffffffff0000000000000005"
)
ENTRY = ProducerStateEntry(7, 1, 4, 6, 1, 1001, -1, 5)

longs, ints, shorts = (
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**15), 2**15 - 1),
)
entries = st.builds(ProducerStateEntry, longs, shorts, ints, longs, ints, longs, ints, longs)


@pytest.mark.spec("log-format REC-50")
def test_golden_snapshots_are_decoded_and_encoded() -> None:
    assert parse_producer_snapshot(A13, "file") == (ENTRY,)
    assert encode_producer_snapshot((ENTRY,)) == A13
    assert parse_producer_snapshot(bytes.fromhex("000148674bc700000000"), "file") == ()


@pytest.mark.spec("log-format PSM-33")
@given(st.lists(entries, max_size=4))
def test_any_snapshot_is_decoded_as_it_was_encoded(producers: list[ProducerStateEntry]) -> None:
    assert parse_producer_snapshot(encode_producer_snapshot(tuple(producers)), "file") == tuple(producers)


def test_first_sequence_of_a_batch_wraps_below_0() -> None:
    assert ENTRY.first_sequence == 3
    assert ProducerStateEntry(7, 1, 0, 6, 1, 1001, -1, 5).first_sequence == 2**31 - 1
    assert ProducerStateEntry(7, 1, -1, -1, 0, 1001, 3, -1).first_sequence == -1


@pytest.mark.spec("log-format PSM-26")
@pytest.mark.parametrize(
    "data", [b"", A13[:5], A13[:-1], A13[: len(A13) // 2], bytes(len(A13)), A13 + b"\0", b"\0\2" + A13[2:]]
)
def test_an_unreadable_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndexError, match=r"^file: "):
        parse_producer_snapshot(data, "file")


def test_missing_snapshot_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingArtefactError):
        read_producer_snapshot(tmp_path / "x.snapshot")
    (tmp_path / "x.snapshot").write_bytes(A13)
    assert read_producer_snapshot(tmp_path / "x.snapshot") == (ENTRY,)


@given(st.binary(max_size=120))
def test_any_bytes_of_a_snapshot_are_decoded_or_refused(data: bytes) -> None:
    with suppress(CorruptIndexError):
        parse_producer_snapshot(data, "file")
