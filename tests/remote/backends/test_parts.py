from hypothesis import given
from hypothesis import strategies as st

from tierd.kernels import crc32c
from tierd.model import ByteRange
from tierd.remote.backends.parts import UploadPart, crc32c_of, parts_of_chunks, size_of
from tierd.testing import chunked_body


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 50))
async def test_chunks_of_any_size_give_the_parts_that_their_bytes_are_sent_in(
    chunks: list[bytes], part_size: int
) -> None:
    content = b"".join(chunks)
    parts = await parts_of_chunks(chunked_body(chunks), part_size)
    cuts = [content[at : at + part_size] for at in range(0, len(content), part_size)]
    assert parts == [
        UploadPart(number, ByteRange.of_size((number - 1) * part_size, len(cut)), crc32c(cut))
        for number, cut in enumerate(cuts, 1)
    ]
    assert (size_of(parts), crc32c_of(parts)) == (len(content), crc32c(content))
