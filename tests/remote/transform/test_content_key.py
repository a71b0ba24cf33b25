from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.transforms import KEY_SEED
from tierd.errors import RemoteIntegrityError
from tierd.remote.transform.binding import ArtefactKind, BoundPiece, SegmentBinding
from tierd.remote.transform.cipher import SegmentCipher
from tierd.remote.transform.codec import ChunkCodec
from tierd.remote.transform.content_key import ContentDigest

BINDING = SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABC), 10, 19)
CHUNKS = (b"first " * 100, b"second " * 100)
INDEX = b"offset index"

chunks_of_logs = st.lists(st.binary(max_size=300), max_size=4).map(tuple)


def digest_of(
    chunks: tuple[bytes, ...], *, index: bytes = INDEX, level: int | None = None, binding: SegmentBinding = BINDING
) -> ContentDigest:
    digest = ContentDigest(level, binding)
    for number, chunk in enumerate(chunks):
        digest.encode(chunk, number=number, count=len(chunks))
    digest.add_index(ArtefactKind.OFFSET, index)
    return digest


def key_of(chunks: tuple[bytes, ...], **other: object) -> bytes:
    return digest_of(chunks, **other).data_key(KEY_SEED)  # type: ignore[arg-type]


@given(chunks_of_logs)
def test_data_key_of_same_content_and_seed_is_the_same(chunks: tuple[bytes, ...]) -> None:
    assert key_of(chunks) == key_of(chunks)
    assert len(key_of(chunks)) == 32


@given(chunks_of_logs, chunks_of_logs)
def test_data_keys_of_two_contents_differ(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> None:
    assert (key_of(one) == key_of(other)) == (one == other)


@pytest.mark.parametrize(
    "other",
    [
        {"index": b"another"},
        {"level": 3},
        {"binding": replace(BINDING, segment_id=UUID(int=0xABD))},
        {"binding": replace(BINDING, end_offset=20)},
    ],
    ids=["index", "compression", "segment", "offsets"],
)
def test_data_key_differs_where_anything_that_is_encrypted_or_authenticated_does(other: dict[str, object]) -> None:
    assert key_of(CHUNKS) != key_of(CHUNKS, **other)


def test_data_key_does_not_depend_on_the_order_in_which_threads_take_chunks_in() -> None:
    digest = ContentDigest(None, BINDING)
    digest.add_index(ArtefactKind.OFFSET, INDEX)
    for number in (1, 0):
        digest.encode(CHUNKS[number], number=number, count=2)
    assert digest.data_key(KEY_SEED) == key_of(CHUNKS)


def test_data_keys_of_two_seeds_differ() -> None:
    assert digest_of(CHUNKS).data_key(bytes(32)) != key_of(CHUNKS)
    with pytest.raises(ValueError, match="a seed of 16 bytes, not 32"):
        digest_of(CHUNKS).data_key(bytes(16))


@pytest.mark.parametrize("level", [None, 3])
def test_second_pass_over_the_same_content_is_encrypted(level: int | None) -> None:
    digest = digest_of(CHUNKS, level=level)
    codec = ChunkCodec(level, SegmentCipher(key_of(CHUNKS, level=level), BINDING, digests=digest.pieces))
    for number, chunk in enumerate(CHUNKS):
        codec.encode(chunk, number=number, count=2)
    codec.encode_index(ArtefactKind.OFFSET, INDEX)


def test_piece_that_the_data_key_was_not_derived_from_is_refused() -> None:
    cipher = SegmentCipher(key_of(CHUNKS), BINDING, digests=digest_of(CHUNKS).pieces)
    piece = BoundPiece(ArtefactKind.LOG, 0, 2, len(CHUNKS[0]))
    for other, content in (
        (piece, CHUNKS[0][:-1] + b"?"),
        (replace(piece, is_compressed=True), CHUNKS[0]),
        (replace(piece, number=2), CHUNKS[0]),
        (replace(piece, kind=ArtefactKind.TIMESTAMP, number=0), b""),
    ):
        with pytest.raises(RemoteIntegrityError, match="not what it was"):
            cipher.encrypt(other, content)
    cipher.encrypt(piece, CHUNKS[0])
