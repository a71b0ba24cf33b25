import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tierd.kernels import combine_crc32c, crc32c, crc32c_of_file, crc32c_of_range
from tierd.model import CHECKSUM_BLOCK_BYTES, BlockChecksums, ByteRange

MIB = CHECKSUM_BLOCK_BYTES


def bitwise(data: bytes) -> int:
    """Return the CRC-32C by its definition: the polynomial division, bit by bit."""
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
def test_crc32c_has_its_published_value() -> None:
    assert crc32c(b"123456789") == bitwise(b"123456789") == 0xE3069283


@given(st.binary(max_size=200))
def test_crc32c_agrees_with_the_bitwise_definition(data: bytes) -> None:
    assert crc32c(data) == bitwise(data)


@given(st.binary(max_size=300), st.binary(max_size=300))
@example(b"", b"")
@example(b"abc", b"")
@example(b"", b"abc")
def test_checksums_of_two_parts_combine_to_that_of_the_whole(first: bytes, second: bytes) -> None:
    assert combine_crc32c(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@given(st.binary(max_size=50), st.integers(1, 5 * MIB))
@settings(deadline=None, max_examples=30)
def test_checksum_of_a_long_part_combines_to_that_of_the_whole(first: bytes, size: int) -> None:
    second = bytes(size)
    assert combine_crc32c(crc32c(first), crc32c(second), size) == crc32c(first + second)


@given(st.integers(0, 4 * MIB), st.integers(0, 3), st.integers(0, 4))
@settings(deadline=None, max_examples=40)
@example(0, 0, 0)
@example(2 * MIB, 0, 1)
def test_checksum_of_a_range_of_blocks_is_combined_from_block_checksums(size: int, first: int, last: int) -> None:
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


def test_block_size_is_whole_but_for_the_last_block() -> None:
    checksums = checksums_of(bytes(2 * MIB + 5))
    assert [checksums.block_size(i) for i in range(3)] == [MIB, MIB, 5]
