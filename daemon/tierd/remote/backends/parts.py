"""Parts of an upload: the cuts of a body, and checksums in the forms of S3 and GCS."""

import base64
from collections.abc import Sequence
from typing import NamedTuple

from tierd.kernels import combine_crc32c, crc32c, crc32c_of_range
from tierd.model import ByteRange
from tierd.remote.chunks import iterated
from tierd.remote.object_store import ChunkedBody, FileBody


class UploadPart(NamedTuple):
    """One part; numbers begin at 1."""

    number: int
    byte_range: ByteRange
    crc32c: int


def parts_of(body: FileBody, part_size: int) -> list[UploadPart]:
    """Cut the body; every part begins and ends where a checksum block does, or at the end of the file."""
    if body.byte_range is None:
        return []
    start, stop = body.byte_range.start, body.byte_range.end + 1
    ranges = [ByteRange(at, min(at + part_size, stop) - 1) for at in range(start, stop, part_size)]
    return [UploadPart(number, r, crc32c_of_range(body.checksums, r)) for number, r in enumerate(ranges, 1)]


def part_of_bytes(content: bytes) -> list[UploadPart]:
    """Return ``content`` as one part; no part when it is empty."""
    return [UploadPart(1, ByteRange.of_size(0, len(content)), crc32c(content))] if content else []


async def parts_of_chunks(body: ChunkedBody, part_size: int) -> list[UploadPart]:
    """Make all chunks once more, unpaced, and return the parts that they are sent in; no part without bytes."""
    sizes: list[int] = []
    crcs: list[int] = []
    async with iterated(body.chunks) as chunks:
        async for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                if not sizes or sizes[-1] == part_size:
                    sizes.append(0)
                    crcs.append(0)
                step = rest[: part_size - sizes[-1]]
                sizes[-1] += len(step)
                crcs[-1] = crc32c(step, crcs[-1])
                rest = rest[len(step) :]
    ranges = [ByteRange.of_size(index * part_size, size) for index, size in enumerate(sizes)]
    return [UploadPart(number, part, crc) for number, (part, crc) in enumerate(zip(ranges, crcs, strict=True), 1)]


def size_of(parts: Sequence[UploadPart]) -> int:
    """Return the number of bytes of all parts."""
    return sum(part.byte_range.size for part in parts)


def crc32c_of(parts: Sequence[UploadPart]) -> int:
    """Return the CRC-32C of all parts as one."""
    total = 0
    for part in parts:
        total = combine_crc32c(total, part.crc32c, part.byte_range.size)
    return total


def composite_checksum(parts: Sequence[UploadPart]) -> str:
    """Return S3's older checksum of a multipart object: the checksum of its parts' checksums, and their number."""
    return f"{encoded(crc32c(b''.join(part.crc32c.to_bytes(4, 'big') for part in parts)))}-{len(parts)}"


def encoded(crc: int) -> str:
    """Return a CRC in S3's form: base64 of its four bytes, the highest first."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode()


def decoded(checksum: str) -> int:
    """Return the CRC of a checksum in S3's form.

    Raises:
        ValueError: the text is not base64, as a composite checksum is not.
    """
    return int.from_bytes(base64.b64decode(checksum, validate=True), "big")
