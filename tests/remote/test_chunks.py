from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from tierd.kernels import crc32c
from tierd.remote import ChunkedBody
from tierd.remote.chunks import Measured, gathered, iterated, measured, sliced
from tierd.testing import chunked_body, content_of, file_body


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 50))
async def test_parts_of_chunks_of_any_size_are_whole_but_the_last_one(chunks: list[bytes], part_size: int) -> None:
    async with aclosing(gathered(chunked_body(chunks), part_size)) as pieces:
        parts = [piece async for piece in pieces]
    assert b"".join(part.content for part in parts) == b"".join(chunks)
    assert all(len(part.content) == part_size for part in parts[:-1])
    assert len(parts) == 1 or parts[-1].content
    assert [part.is_last for part in parts] == [False] * (len(parts) - 1) + [True]


async def test_size_and_checksum_are_the_same_for_each_kind_of_body(tmp_path: Path) -> None:
    content = content_of((1 << 20) + 7)
    expected = Measured(len(content), crc32c(content))
    assert await measured(content) == expected
    assert await measured(file_body(tmp_path / "file", content)) == expected
    assert await measured(chunked_body([content[:5], b"", content[5:]])) == expected
    assert await measured(file_body(tmp_path / "empty", b"")) == await measured(b"") == Measured(0, 0)


async def test_pace_holds_back_gathering_and_not_measuring() -> None:
    paced: list[int] = []

    async def pace(size_bytes: int) -> None:
        paced.append(size_bytes)

    body = chunked_body([b"ab", b"", b"c"], pace=pace)
    await measured(body)
    assert paced == []
    async with aclosing(gathered(body, 2)) as parts:
        assert [part.content async for part in parts] == [b"ab", b"c"]
    assert paced == [2, 1]


async def test_chunks_of_a_part_are_released_with_the_part() -> None:
    made = [bytearray(b"abc"), bytearray(b"def"), bytearray(b"ghi")]

    async def chunks() -> AsyncIterator[bytes]:
        for chunk in made:
            yield cast("bytes", chunk)

    async with aclosing(gathered(ChunkedBody(chunks, 100), 7)) as parts:
        first = await anext(parts)
        made[0].clear()  # BufferError if a view is left
        made[1].clear()
        last = await anext(parts)
    assert (first.content, last.content) == (b"abcdefg", b"hi")


async def test_iterator_that_is_left_early_is_closed() -> None:
    closed = False

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal closed
        try:
            while True:
                yield b"chunk"
        finally:
            closed = True

    async with iterated(chunks) as iterator:
        assert await anext(iterator) == b"chunk"
    assert closed
    closed = False
    async with aclosing(gathered(ChunkedBody(chunks, 100), 7)) as parts:
        await anext(parts)
    assert closed


async def test_iterator_without_aclose_is_left_as_it_is() -> None:
    class Plain:
        def __aiter__(self) -> "Plain":
            return self

        async def __anext__(self) -> bytes:
            raise StopAsyncIteration

    async with iterated(Plain) as iterator:
        assert [chunk async for chunk in iterator] == []


async def test_slices_of_bytes_make_up_the_bytes() -> None:
    content = content_of((3 << 20) + 1)
    pieces = [piece async for piece in sliced(content)]
    assert b"".join(pieces) == content
    assert all(piece.obj is content for piece in pieces), "a slice is a view, not a copy"
