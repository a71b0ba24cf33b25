import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.kernels import crc32c
from tierd.remote.backends import part_buffers
from tierd.remote.backends.part_buffers import FilledPart, PartBuffer, PartBuffers, PartFilling
from tierd.testing import chunks_of, content_of


async def each_of(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def filled_with(content: bytes) -> PartBuffer:
    buffer = PartBuffer(len(content))
    buffer.write(0, memoryview(content))
    return buffer


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(1, 50))
async def test_parts_of_chunks_of_any_size_are_whole_but_the_last_one(chunks: list[bytes], part_size: int) -> None:
    filling, buffer = PartFilling(each_of(chunks), pace=None), PartBuffer(part_size)
    found: list[tuple[FilledPart, bytes]] = []
    while not found or not found[-1][0].is_last:
        part = await filling.fill(buffer)
        found.append((part, bytes(buffer.view(part.size_bytes))))
    assert b"".join(content for _, content in found) == b"".join(chunks)
    assert all(part.size_bytes == part_size for part, _ in found[:-1])
    assert len(found) == 1 or found[-1][1]
    assert all(part.crc32c == crc32c(content) for part, content in found)


async def test_chunks_larger_than_a_step_fill_parts_of_any_size() -> None:
    content = content_of((7 << 20) + 5)
    filling, buffer = PartFilling(each_of(chunks_of(content, (3 << 20) + 1)), pace=None), PartBuffer((2 << 20) + 3)
    found, is_last = b"", False
    while not is_last:
        size_bytes, crc, is_last = await filling.fill(buffer)
        found += buffer.view(size_bytes)
        assert crc == crc32c(found[-size_bytes:])
    assert found == content


async def test_each_chunk_with_bytes_waits_for_its_pace() -> None:
    paced: list[int] = []

    async def pace(size_bytes: int) -> None:
        paced.append(size_bytes)

    filling = PartFilling(each_of([b"ab", b"", b"cde"]), pace=pace)
    assert (await filling.fill(PartBuffer(2))).size_bytes == 2
    assert (await filling.fill(PartBuffer(9))) == (3, crc32c(b"cde"), True)
    assert paced == [2, 3]


async def test_chunks_that_were_copied_are_not_kept() -> None:
    made = [bytearray(b"abc"), bytearray(b"def"), bytearray(b"ghi")]
    filling = PartFilling(each_of(cast("list[bytes]", made)), pace=None)
    await filling.fill(PartBuffer(7))
    made[0].clear()  # BufferError if a view is left
    made[1].clear()
    await filling.fill(PartBuffer(7))
    made[2].clear()


def test_buffer_counts_each_view_and_slice_of_a_view() -> None:
    buffer = filled_with(b"content")
    assert not buffer.is_viewed()
    view = buffer.view(5)
    assert buffer.is_viewed()
    slice_of_view = view[1:3]
    view.release()
    assert buffer.is_viewed()
    assert bytes(slice_of_view) == b"on"
    del slice_of_view
    assert not buffer.is_viewed()


def test_view_of_a_buffer_cannot_be_written() -> None:
    assert filled_with(b"content").view(7).readonly


def test_content_that_does_not_fit_is_refused() -> None:
    with pytest.raises(IndexError):
        PartBuffer(4).write(2, memoryview(b"abc"))


async def test_buffer_without_views_is_used_again() -> None:
    buffers = PartBuffers(size_bytes=9, count=2)
    with buffers.upload():
        first = await buffers.take()
        buffers.give_back(first)
        assert await buffers.take() is first


async def test_buffer_that_is_viewed_is_not_used_again_and_keeps_its_bytes() -> None:
    buffers = PartBuffers(size_bytes=3, count=1)
    with buffers.upload():
        first = await buffers.take()
        first.write(0, memoryview(b"abc"))
        late = first.view(3)[1:]
        buffers.give_back(first)
        second = await buffers.take()
        assert second is not first
        second.write(0, memoryview(b"xyz"))
        assert bytes(late) == b"bc"


async def test_buffers_that_are_taken_are_bounded_over_all_uploads() -> None:
    buffers = PartBuffers(size_bytes=3, count=2)
    with buffers.upload(), buffers.upload():
        first, _ = await buffers.take(), await buffers.take()
        waiting = [asyncio.create_task(buffers.take()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        waiting[0].cancel()
        buffers.give_back(first)
        assert await waiting[1] is first, "a wait that was cancelled takes no place"


async def test_wait_for_a_buffer_that_finds_no_memory_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(size_bytes: int) -> PartBuffer:
        raise OSError(f"no memory for {size_bytes} bytes")

    buffers = PartBuffers(size_bytes=3, count=1)
    with monkeypatch.context() as patched:
        patched.setattr(part_buffers, "PartBuffer", refused)
        with pytest.raises(OSError, match="no memory"):
            await buffers.take()
    await buffers.take()


async def test_kept_memory_is_released_when_no_upload_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_buffers, "KEPT_S", 0.0)
    buffers = PartBuffers(size_bytes=3, count=1)
    with buffers.upload():
        first = await buffers.take()
        buffers.give_back(first)
    with buffers.upload():
        await asyncio.sleep(0)
        kept = await buffers.take()
        assert kept is first, "an upload that followed ends the wait"
        buffers.give_back(kept)
    loop = asyncio.get_running_loop()
    released = loop.create_future()
    loop.call_later(part_buffers.KEPT_S, released.set_result, None)  # behind the release
    await released
    assert await buffers.take() is not first
