from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import RemoteIntegrityError
from tierd.remote.transform.binding import ArtefactKind, BoundPiece, SegmentBinding
from tierd.remote.transform.cipher import TAG_BYTES, SegmentCipher

BINDING = SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABC), 10, 19)
DATA_KEY = bytes(range(32))
CONTENT = b"the bytes of a chunk"
PIECE = BoundPiece(ArtefactKind.LOG, 1, 3, len(CONTENT))


def cipher() -> SegmentCipher:
    return SegmentCipher(DATA_KEY, BINDING)


@given(st.binary(max_size=200), st.sampled_from(ArtefactKind), st.integers(0, 5))
def test_piece_is_decrypted_to_its_content(content: bytes, kind: ArtefactKind, number: int) -> None:
    piece = BoundPiece(kind, number, 6, len(content))
    sealed = cipher().encrypt(piece, content)
    assert len(sealed) == len(content) + TAG_BYTES
    assert cipher().decrypt(piece, sealed) == content


def test_the_same_piece_gives_the_same_bytes_each_time() -> None:
    one = cipher()
    assert one.encrypt(PIECE, CONTENT) == one.encrypt(PIECE, CONTENT)


def test_two_contents_are_never_encrypted_under_one_nonce() -> None:
    one = cipher()
    one.encrypt(PIECE, CONTENT)
    with pytest.raises(RemoteIntegrityError, match="not what it was"):
        one.encrypt(PIECE, CONTENT[:-1] + b"?")
    with pytest.raises(RemoteIntegrityError, match="not what it was"):
        one.encrypt(replace(PIECE, is_compressed=True), CONTENT)


@pytest.mark.parametrize(
    "other",
    [
        replace(PIECE, number=2),
        replace(PIECE, count=4),
        replace(PIECE, kind=ArtefactKind.OFFSET),
        replace(PIECE, original_size=7),
        replace(PIECE, is_compressed=True),
    ],
)
def test_piece_that_was_moved_does_not_open(other: BoundPiece) -> None:
    assert cipher().decrypt(other, cipher().encrypt(PIECE, CONTENT)) is None


@pytest.mark.parametrize(
    "other",
    [
        replace(BINDING, cluster_id="another"),
        replace(BINDING, topic_id=UUID(int=8)),
        replace(BINDING, partition=4),
        replace(BINDING, segment_id=UUID(int=1)),
        replace(BINDING, start_offset=9),
        replace(BINDING, end_offset=20),
    ],
)
def test_a_piece_of_another_segment_does_not_open_even_under_its_key(other: SegmentBinding) -> None:
    assert SegmentCipher(DATA_KEY, other).decrypt(PIECE, cipher().encrypt(PIECE, CONTENT)) is None


def test_any_changed_bit_and_any_cut_is_found() -> None:
    sealed = cipher().encrypt(PIECE, CONTENT)
    for at in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[at // 8] ^= 1 << at % 8
        assert cipher().decrypt(PIECE, bytes(changed)) is None
    for length in range(len(sealed)):
        assert cipher().decrypt(PIECE, sealed[:length]) is None


def test_a_tag_fits_one_content_and_one_key() -> None:
    tag = cipher().tag_of(b"manifest")
    assert cipher().is_tag_of(b"manifest", tag)
    assert not cipher().is_tag_of(b"manifesT", tag)
    assert not cipher().is_tag_of(b"manifest", "")
    assert not cipher().is_tag_of(b"manifest", tag.upper())
    assert not SegmentCipher(bytes(32), BINDING).is_tag_of(b"manifest", tag)


def test_each_segment_has_a_key_of_its_own_that_is_not_shown() -> None:
    one, first = SegmentCipher.of_new_key(BINDING)
    two, _ = SegmentCipher.of_new_key(BINDING)
    assert one != two
    assert len(one) == 32
    assert repr(first) == f"SegmentCipher({BINDING})"
