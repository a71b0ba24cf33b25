from dataclasses import fields, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.remote_segments import PARTITION, segment
from tierd.model import IndexType
from tierd.remote.transform.binding import ArtefactKind, BoundPiece, SegmentBinding

BINDING = SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABC), 10, 19)
PIECE = BoundPiece(ArtefactKind.LOG, 4, 9, 1 << 20, is_compressed=True)

bindings = st.builds(
    SegmentBinding,
    st.text(max_size=30),
    st.uuids(),
    st.integers(0, 2**31 - 1),
    st.uuids(),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
)
pieces = st.builds(
    BoundPiece,
    st.sampled_from(ArtefactKind),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**40),
    st.booleans(),
)


def test_binding_has_the_bytes_of_the_format() -> None:
    identity = bytes.fromhex(
        "0007" + b"cluster".hex() + "00000000000000000000000000000007" + "00000003"
        "00000000000000000000000000000abc" + "000000000000000a" + "0000000000000013"
    )
    piece = bytes.fromhex("01" + "00000004" + "00000009" + "0000000000100000" + "01")
    assert BINDING.for_piece(PIECE) == b"tierd chunk 1\x00" + identity + piece
    assert BINDING.for_data_key("k") == b"tierd data key 1\x00" + b"\x00\x01k" + identity
    assert PIECE.nonce == bytes.fromhex("00000001" + "0000000000000004")


def test_bindings_differ_where_any_field_differs() -> None:
    other: dict[str, Any] = {
        "cluster_id": "clustes",
        "topic_id": UUID(int=8),
        "partition": 4,
        "segment_id": UUID(int=0xABD),
        "start_offset": 11,
        "end_offset": 20,
        "kind": ArtefactKind.OFFSET,
        "number": 5,
        "count": 10,
        "original_size": 1 << 19,
        "is_compressed": False,
    }
    for field in fields(BINDING):
        changed = replace(BINDING, **{field.name: other[field.name]})
        assert changed.for_piece(PIECE) != BINDING.for_piece(PIECE)
        assert changed.for_data_key("k") != BINDING.for_data_key("k")
    for field in fields(PIECE):
        assert BINDING.for_piece(replace(PIECE, **{field.name: other[field.name]})) != BINDING.for_piece(PIECE)


@given(st.tuples(bindings, pieces), st.tuples(bindings, pieces))
def test_two_pieces_never_have_the_same_bytes(
    one: tuple[SegmentBinding, BoundPiece], two: tuple[SegmentBinding, BoundPiece]
) -> None:
    assert (one == two) == (one[0].for_piece(one[1]) == two[0].for_piece(two[1]))


@given(pieces, pieces)
def test_a_nonce_is_that_of_one_artefact_and_one_chunk(one: BoundPiece, two: BoundPiece) -> None:
    assert len(one.nonce) == 12
    assert (one.nonce == two.nonce) == ((one.kind, one.number) == (two.kind, two.number))


def test_binding_holds_the_identity_of_the_metadata() -> None:
    metadata = segment(10, 19, segment_id=UUID(int=0xABC))
    expected = SegmentBinding("cluster", PARTITION.topic_id, PARTITION.partition, UUID(int=0xABC), 10, 19)
    assert SegmentBinding.of(metadata, cluster_id="cluster") == expected


@pytest.mark.parametrize("index_type", IndexType)
def test_every_index_has_a_kind_of_its_own(index_type: IndexType) -> None:
    assert ArtefactKind.of_index(index_type).name == index_type.name
