import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tierd.kernels import combine_crc32c, crc32c, crc32c_of_file, crc32c_of_range
from tierd.model import CHECKSUM_BLOCK_BYTES, BlockChecksums, ByteRange

MIB = CHECKSUM_BLOCK_BYTES


def bitwise(data: bytes) -> int:
    """CRC-32C as its definition reads: the polynomial division, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def checksums_of(data: bytes) -> BlockChecksums:
    blocks = tuple(crc32c(data[at : at + MIB]) for at in range(0, len(data), MIB))
    return BlockChecksums(len(data), blocks)


@pytest.mark.spec("log-format REC-50")
def test_the_golden_checksum() -> None:
    assert crc32c(b"123456789") == bitwise(b"123456789") == 0xE3069283


@given(st.binary(max_size=200))
def test_it_is_castagnolis(data: bytes) -> None:
    assert crc32c(data) == bitwise(data)


@given(st.binary(max_size=300), st.binary(max_size=300))
@example(b"", b"")
@example(b"abc", b"")
@example(b"", b"abc")
def test_the_checksum_of_a_whole_comes_from_those_of_its_parts(first: bytes, second: bytes) -> None:
    assert combine_crc32c(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@given(st.binary(max_size=50), st.integers(1, 5 * MIB))
@settings(deadline=None, max_examples=30)
def test_long_parts_combine_too(first: bytes, size: int) -> None:
    second = bytes(size)
    assert combine_crc32c(crc32c(first), crc32c(second), size) == crc32c(first + second)


@given(st.integers(0, 4 * MIB), st.integers(0, 3), st.integers(0, 4))
@settings(deadline=None, max_examples=40)
@example(0, 0, 0)
@example(2 * MIB, 0, 1)
def test_a_range_of_blocks_needs_no_second_reading(size: int, first: int, last: int) -> None:
    data = (b"0123456789abcdef-" * (size // 17 + 1))[:size]
    checksums = checksums_of(data)
    assert crc32c_of_file(checksums) == crc32c(data)
    start, end = first * MIB, min((last + 1) * MIB, size) - 1
    if start <= end:
        assert crc32c_of_range(checksums, ByteRange(start, end)) == crc32c(data[start : end + 1])


@pytest.mark.parametrize("byte_range", [ByteRange(1, MIB - 1), ByteRange(0, MIB), ByteRange(0, 2 * MIB)])
def test_a_range_that_cuts_a_block_is_refused(byte_range: ByteRange) -> None:
    with pytest.raises(ValueError, match="does not"):
        crc32c_of_range(checksums_of(bytes(3 * MIB)), byte_range)


def test_blocks_know_their_sizes() -> None:
    checksums = checksums_of(bytes(2 * MIB + 5))
    assert [checksums.block_size(i) for i in range(3)] == [MIB, MIB, 5]
