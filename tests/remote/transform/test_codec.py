from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.kernels import crc32c
from tierd.remote.transform.binding import ArtefactKind, SegmentBinding
from tierd.remote.transform.chunk_layout import StoredChunk
from tierd.remote.transform.cipher import SegmentCipher
from tierd.remote.transform.codec import ChunkCodec, ChunkDamagedError
from tierd.testing import content_of

BINDING = SegmentBinding("cluster", UUID(int=7), 3, UUID(int=0xABC), 10, 19)


def codec(level: int | None, *, encrypts: bool) -> ChunkCodec:
    return ChunkCodec(level, SegmentCipher(bytes(32), BINDING) if encrypts else None)


codecs = st.builds(codec, st.none() | st.integers(1, 19), encrypts=st.booleans())
contents = st.binary(max_size=300) | st.builds(
    lambda word, n: word * n, st.binary(min_size=1, max_size=9), st.integers(1, 999)
)


def stored_chunk(content: bytes, stored: bytes, *, is_compressed: bool) -> StoredChunk:
    return StoredChunk(len(stored), crc32c(content), is_compressed)


@given(codecs, contents)
def test_chunk_is_decoded_to_its_content(one: ChunkCodec, content: bytes) -> None:
    stored, is_compressed = one.encode(content, number=1, count=3)
    chunk = stored_chunk(content, stored, is_compressed=is_compressed)
    reader = ChunkCodec(None, one.cipher)
    assert reader.decode(memoryview(stored), chunk, number=1, count=3, size_bytes=len(content)) == content
    assert len(stored) <= len(content) + one.overhead_bytes
    assert one.is_plain == (one.level is None and one.cipher is None)


@given(codecs, contents.filter(bool), st.data())
def test_a_changed_bit_never_gives_other_content(one: ChunkCodec, content: bytes, data: st.DataObject) -> None:
    stored, is_compressed = one.encode(content, number=1, count=3)
    chunk = stored_chunk(content, stored, is_compressed=is_compressed)
    at = data.draw(st.integers(0, len(stored) * 8 - 1))
    changed = bytearray(stored)
    changed[at // 8] ^= 1 << at % 8
    try:
        decoded = one.decode(bytes(changed), chunk, number=1, count=3, size_bytes=len(content))
    except ChunkDamagedError:
        return
    assert one.cipher is None, "of an encrypted chunk every bit counts"
    assert decoded == content  # a frame has bits that mean nothing


def test_a_chunk_in_another_place_does_not_open() -> None:
    one, content = codec(3, encrypts=True), b"text " * 100
    stored, is_compressed = one.encode(content, number=1, count=3)
    chunk = stored_chunk(content, stored, is_compressed=is_compressed)
    for number, count in ((0, 3), (2, 3), (1, 2), (1, 4)):
        with pytest.raises(ChunkDamagedError, match="does not open"):
            one.decode(stored, chunk, number=number, count=count, size_bytes=len(content))


def test_error_of_a_damaged_chunk_names_the_damage() -> None:
    one, content = codec(3, encrypts=False), b"text " * 100
    stored, _ = one.encode(content, number=0, count=1)
    chunk = StoredChunk(len(stored), crc32c(content), is_compressed=True)
    with pytest.raises(ChunkDamagedError, match=f"has 3 bytes, the manifest says {len(stored)}"):
        one.decode(b"abc", chunk, number=0, count=1, size_bytes=500)
    with pytest.raises(ChunkDamagedError, match="no zstd frame of 499 bytes"):
        one.decode(stored, chunk, number=0, count=1, size_bytes=499)
    with pytest.raises(ChunkDamagedError, match="CRC-32C"):
        one.decode(stored, StoredChunk(len(stored), 7, is_compressed=True), number=0, count=1, size_bytes=500)


def test_a_compressor_is_not_asked_for_what_cannot_shrink() -> None:
    content = content_of(100_000)
    assert codec(3, encrypts=False).encode(content, number=0, count=1) == (content, False)


@given(
    st.booleans(),
    st.sampled_from([kind for kind in ArtefactKind if kind is not ArtefactKind.LOG]),
    st.binary(max_size=99),
)
def test_index_is_decoded_to_its_content(encrypts: bool, kind: ArtefactKind, content: bytes) -> None:
    one = codec(None, encrypts=encrypts)
    stored = one.encode_index(kind, content)
    assert one.decode_index(kind, stored, len(stored), expected_crc=crc32c(content)) == content


def test_a_damaged_index_is_found() -> None:
    one, content = codec(None, encrypts=True), b"entries"
    stored = one.encode_index(ArtefactKind.OFFSET, content)
    crc = crc32c(content)
    with pytest.raises(ChunkDamagedError, match="does not open"):
        one.decode_index(ArtefactKind.TIMESTAMP, stored, len(stored), expected_crc=crc)
    with pytest.raises(ChunkDamagedError, match="has 3 bytes"):
        one.decode_index(ArtefactKind.OFFSET, stored[:3], len(stored), expected_crc=crc)
    with pytest.raises(ChunkDamagedError, match="has 3 bytes"):
        one.decode_index(ArtefactKind.OFFSET, stored[:3], 3, expected_crc=crc)
    with pytest.raises(ChunkDamagedError, match="checksum"):
        one.decode_index(ArtefactKind.OFFSET, stored, len(stored), expected_crc=crc + 1)
