"""Parts of bodies that are made while they are sent: their buffers are used again, and never too early."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pickle import PickleBuffer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import RetriableRemoteStorageError
from tierd.kernels import crc32c
from tierd.remote.backends import part_buffers
from tierd.remote.backends.chunked_uploads import ChunkedUploads
from tierd.remote.backends.client_settings import PartLimits
from tierd.remote.backends.part_buffers import PartBuffer
from tierd.remote.backends.parts import UploadPart
from tierd.testing import cancel_at, chunked_body, chunks_of, content_of

PART_SIZE = 10
CONTENT = content_of(95)


@dataclass
class SteppedUploads:
    """Uploads that read each part in steps, in as many attempts as ``attempts`` says for its number.

    As a client library may do, they keep a view of each step: ``kept`` has it with the bytes that it must have.
    """

    attempts: Callable[[int], int] = lambda _: 1
    keeps: bool = False
    fails: int = 0  # number of the part whose last attempt fails; 0: none
    objects: dict[str, bytes] = field(default_factory=dict)
    kept: list[tuple[memoryview, bytes]] = field(default_factory=list)
    under_way: set[str] = field(default_factory=set)
    _sent: dict[tuple[str, int], bytes] = field(default_factory=dict)

    @asynccontextmanager
    async def begun(self, key: str) -> AsyncIterator[str]:
        self.under_way.add(key)
        try:
            await asyncio.sleep(0)
            yield key
        finally:
            self.under_way.discard(key)

    async def send_bytes(self, upload: str, part: UploadPart, content: memoryview) -> str:
        for _ in range(self.attempts(part.number)):
            sent = b""
            for at in range(0, len(content), 3):
                step = content[at : at + 3]
                if self.keeps:
                    self.kept.append((step, bytes(step)))
                await asyncio.sleep(0)
                sent += step
            assert crc32c(sent) == part.crc32c, "a store refuses the part"
        if part.number == self.fails:
            raise RetriableRemoteStorageError("the part failed")
        self._sent[upload, part.number] = sent
        return str(part.number)

    async def complete(self, upload: str, parts: Sequence[UploadPart], tags: Sequence[str]) -> None:
        await asyncio.sleep(0)
        assert tags == [str(part.number) for part in parts]
        self.objects[upload] = b"".join(self._sent[upload, part.number] for part in parts)

    async def put_whole(self, key: str, content: memoryview) -> None:
        await asyncio.sleep(0)
        self.objects[key] = bytes(content)


def over(uploads: SteppedUploads, *, max_concurrency: int = 2) -> ChunkedUploads[str]:
    limits = PartLimits(part_size=PART_SIZE, max_concurrency=max_concurrency)
    return ChunkedUploads(uploads, uploads.put_whole, limits=limits)


@pytest.fixture
def buffers_made(monkeypatch: pytest.MonkeyPatch) -> list[PartBuffer]:
    """Give the list of the buffers that are made."""
    made: list[PartBuffer] = []

    def make(size_bytes: int) -> PartBuffer:
        made.append(PartBuffer(size_bytes))
        return made[-1]

    monkeypatch.setattr(part_buffers, "PartBuffer", make)
    return made


@given(
    st.lists(st.lists(st.binary(min_size=1, max_size=25), max_size=8), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=9),
    st.integers(1, 4),
    st.booleans(),
)
async def test_parts_that_are_sent_again_have_their_bytes_while_other_uploads_use_the_buffers(
    bodies: list[list[bytes]],
    attempts: list[int],
    max_concurrency: int,
    keeps: bool,
) -> None:
    uploads = SteppedUploads(attempts=lambda number: attempts[number % len(attempts)], keeps=keeps)
    chunked = over(uploads, max_concurrency=max_concurrency)
    async with asyncio.TaskGroup() as group:
        for number, chunks in enumerate(bodies):
            group.create_task(chunked.put(str(number), chunked_body(chunks)))
    assert uploads.objects == {str(number): b"".join(chunks) for number, chunks in enumerate(bodies)}
    assert all(view == expected for view, expected in uploads.kept)


async def test_one_buffer_serves_all_parts_that_are_sent_one_at_a_time(buffers_made: list[PartBuffer]) -> None:
    uploads = SteppedUploads()
    chunked = over(uploads, max_concurrency=1)
    for key in "ab":
        await chunked.put(key, chunked_body(chunks_of(CONTENT, 7)))
    assert uploads.objects == {"a": CONTENT, "b": CONTENT}
    assert len(buffers_made) == 1


async def test_views_that_outlive_their_parts_keep_their_bytes(buffers_made: list[PartBuffer]) -> None:
    uploads = SteppedUploads(keeps=True)
    await over(uploads, max_concurrency=1).put("key", chunked_body(chunks_of(CONTENT, 7)))
    assert len(buffers_made) == 10, "none is used again while the library may send from it"
    assert all(view == expected for view, expected in uploads.kept)


async def test_failed_part_ends_the_upload_and_gives_back_all_buffers() -> None:
    uploads = SteppedUploads(fails=3)
    chunked = over(uploads)
    with pytest.raises(RetriableRemoteStorageError, match="the part failed"):
        await chunked.put("key", chunked_body(chunks_of(CONTENT, 7)))
    assert (uploads.objects, uploads.under_way) == ({}, set())
    uploads.fails = 0
    await chunked.put("key", chunked_body(chunks_of(CONTENT, 7)))
    assert uploads.objects == {"key": CONTENT}


@pytest.mark.parametrize("size_bytes", [PART_SIZE, len(CONTENT)])
async def test_put_cancelled_at_any_await_gives_back_all_buffers_and_leaves_views_their_bytes(size_bytes: int) -> None:
    uploads = SteppedUploads(keeps=True)
    chunked = over(uploads)
    content, other, number = CONTENT[:size_bytes], content_of(95, seed=2)[:size_bytes], 1
    while await cancel_at(number, lambda: chunked.put("cancelled", chunked_body(chunks_of(content, 7)))):
        assert uploads.under_way == set()
        await chunked.put("other", chunked_body(chunks_of(other, 7)))
        assert uploads.objects.pop("other") == other
        assert all(view == expected for view, expected in uploads.kept)
        uploads.kept.clear()
        number += 1
    assert number > 1
    assert uploads.objects.pop("cancelled") == content


async def test_request_that_outlives_its_part_cannot_read_the_part_that_follows() -> None:
    outliving: list[memoryview] = []

    class Leaving(SteppedUploads):
        async def send_bytes(self, upload: str, part: UploadPart, content: memoryview) -> str:
            outliving.append(content)
            return await super().send_bytes(upload, part, content)

    uploads = Leaving()
    await over(uploads, max_concurrency=1).put("key", chunked_body(chunks_of(CONTENT, 7)))
    assert uploads.objects == {"key": CONTENT}
    for content in outliving:
        with pytest.raises(ValueError, match="released"):
            bytes(content)


async def test_thread_that_reads_a_part_after_its_end_reads_the_bytes_of_that_part() -> None:
    reading: list[tuple[PickleBuffer, bytes]] = []

    class Hashing(SteppedUploads):
        async def send_bytes(self, upload: str, part: UploadPart, content: memoryview) -> str:
            reading.append((PickleBuffer(content), bytes(content)))  # as hashlib holds what a thread hashes
            return await super().send_bytes(upload, part, content)

    uploads = Hashing()
    await over(uploads, max_concurrency=1).put("key", chunked_body(chunks_of(CONTENT, 7)))
    assert uploads.objects == {"key": CONTENT}
    assert all(bytes(buffer.raw()) == content for buffer, content in reading)
