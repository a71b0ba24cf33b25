"""Contract suite of every ``ObjectStore``. Subclass the contract and provide a ``store`` fixture."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tierd.errors import (
    LogError,
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteObjectTooLargeError,
    RemoteResourceNotFoundError,
)
from tierd.kernels import crc32c
from tierd.model import ByteRange
from tierd.remote import ChunkedBody, FileBody, ObjectKind, ObjectStore, read_whole
from tierd.testing.bodies import chunked_body, chunks_of, content_of, file_body
from tierd.testing.cancellation import cancel_at
from tierd.testing.conformance import conformance

LARGE_BYTES = (12 << 20) + 777
"""More than two parts of the smallest size that S3 takes, the last one short."""


@pytest.mark.asyncio
class ObjectStoreContract:
    """Contract of an ``ObjectStore``. Every test gets an empty store."""

    async def test_bytes_come_back_as_they_were_put(self, store: ObjectStore) -> None:
        await store.put("a/b/c.manifest", b"content")
        assert await store.get("a/b/c.manifest") == b"content"

    @pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1, 3 << 20, LARGE_BYTES])
    async def test_a_file_comes_back_as_it_was_put(self, store: ObjectStore, tmp_path: Path, size: int) -> None:
        content = content_of(size)
        await store.put("a/segment.log", file_body(tmp_path / "segment", content))
        assert await store.get("a/segment.log") == content
        assert (await store.head("a/segment.log")).size_bytes == size
        assert await store.list_unfinished_uploads("") == []

    @pytest.mark.parametrize(("start", "size"), [(0, 1 << 20), (1 << 20, 2 << 20), (2 << 20, (10 << 20) + 777)])
    async def test_part_of_a_file_can_be_put(self, store: ObjectStore, tmp_path: Path, start: int, size: int) -> None:
        content = content_of(LARGE_BYTES)
        whole = file_body(tmp_path / "segment", content)
        await store.put("part", FileBody(whole.path, ByteRange.of_size(start, size), whole.checksums))
        assert await store.get("part") == content[start : start + size]

    @pytest.mark.parametrize("chunk_size", [1 << 16, (1 << 20) + 1, 7 << 20])
    @pytest.mark.parametrize("size", [0, 1, 5 << 20, (5 << 20) + 1, LARGE_BYTES])
    async def test_chunks_come_back_as_one_object(self, store: ObjectStore, size: int, chunk_size: int) -> None:
        content = content_of(size)
        await store.put("chunked", chunked_body(chunks_of(content, chunk_size)))
        assert await store.get("chunked") == content
        info = await store.head("chunked")
        assert info.size_bytes == size
        assert info.crc32c in {crc32c(content), None}
        assert await store.list_unfinished_uploads("") == []

    async def test_empty_chunks_change_nothing(self, store: ObjectStore) -> None:
        await store.put("key", chunked_body([b"", b"con", b"", b"tent", b""]))
        assert await store.get("key") == b"content"

    @pytest.mark.parametrize("size", [100, LARGE_BYTES])
    async def test_the_same_chunks_again_are_success_and_others_are_refused(
        self, store: ObjectStore, size: int
    ) -> None:
        content = content_of(size)
        await store.put("key", chunked_body(chunks_of(content, 1 << 20)))
        await store.put("key", chunked_body(chunks_of(content, 1 << 19)))
        for other in (content_of(size, seed=2), content[:-1], content + b"!"):
            with pytest.raises(RemoteConflictError):
                await store.put("key", chunked_body(chunks_of(other, 1 << 20)))
        assert await store.get("key") == content
        assert await store.list_unfinished_uploads("") == []

    @pytest.mark.parametrize("sound_bytes", [0, 100, 5 << 20, LARGE_BYTES])
    async def test_chunks_that_cannot_be_made_leave_nothing_behind(self, store: ObjectStore, sound_bytes: int) -> None:
        async def chunks() -> AsyncIterator[bytes]:
            for chunk in chunks_of(content_of(sound_bytes), 1 << 20):
                yield chunk
            raise LogError("the source is damaged")

        with pytest.raises(LogError, match="the source is damaged"):
            await store.put("key", ChunkedBody(chunks, LARGE_BYTES))
        await self._assert_nothing_is_left(store)

    @pytest.mark.parametrize("size", [100, LARGE_BYTES])
    async def test_chunks_are_closed_when_a_put_is_cancelled_and_nothing_is_left(
        self, store: ObjectStore, size: int
    ) -> None:
        content = content_of(size)
        await store.check()
        number, opened, closed = 1, 0, 0

        async def chunks() -> AsyncIterator[bytes]:
            nonlocal opened, closed
            opened += 1
            try:
                for chunk in chunks_of(content, 1 << 20):
                    yield chunk
            finally:
                closed += 1

        body = ChunkedBody(chunks, size)
        while await cancel_at(number, lambda: store.put(f"key-{number}", body)):  # noqa: B023 - called at once
            assert opened == closed
            await self._assert_whole_or_absent(store, f"key-{number}", content)
            number += 1
        assert await store.get(f"key-{number}") == content

    async def test_every_chunk_is_paced(self, store: ObjectStore) -> None:
        paced = 0

        async def pace(size_bytes: int) -> None:
            nonlocal paced
            paced += size_bytes

        content = content_of(LARGE_BYTES)
        await store.put("key", chunked_body(chunks_of(content, 1 << 20), pace=pace))
        assert paced == len(content)

    async def test_content_is_replaced_only_where_it_is_what_was_expected(self, store: ObjectStore) -> None:
        await store.put("key", b"first")
        await store.replace("key", b"second", previous=b"first")
        assert await store.get("key") == b"second"
        assert (await store.head("key")).size_bytes == len(b"second")
        with pytest.raises(RemoteConflictError):
            await store.replace("key", b"third", previous=b"first")
        assert await store.get("key") == b"second"
        assert [info.key for info in await store.list_objects("")] == ["key"]
        assert await store.list_unfinished_uploads("") == []

    async def test_replacing_by_what_is_there_already_is_success(self, store: ObjectStore) -> None:
        await store.put("key", b"second")
        await store.replace("key", b"second", previous=b"first")
        await store.replace("key", b"second", previous=b"second")
        assert await store.get("key") == b"second"

    @pytest.mark.parametrize("previous", [b"", b"old"])
    async def test_content_is_replaced_where_an_object_is_empty_or_becomes_so(
        self, store: ObjectStore, previous: bytes
    ) -> None:
        await store.put("key", previous)
        await store.replace("key", b"new", previous=previous)
        await store.replace("key", b"", previous=b"new")
        assert await store.get("key") == b""

    async def test_object_much_larger_than_was_expected_is_not_replaced(self, store: ObjectStore) -> None:
        await store.put("key", b"x" * LARGE_BYTES)
        with pytest.raises(RemoteConflictError):
            await store.replace("key", b"second", previous=b"first")
        assert (await store.head("key")).size_bytes == LARGE_BYTES

    @pytest.mark.parametrize("size", [0, 99, 100, 101, LARGE_BYTES])
    async def test_object_is_read_whole_up_to_its_limit_and_refused_beyond(self, store: ObjectStore, size: int) -> None:
        kind = ObjectKind("note", 100)
        content = content_of(size)
        await store.put("a/note", content)
        if size <= kind.max_bytes:
            assert await read_whole(store, "a/note", kind) == content
            return
        with pytest.raises(RemoteObjectTooLargeError, match=f"a/note has {size} bytes, and no note has more than 100"):
            await read_whole(store, "a/note", kind)

    async def test_replacement_of_an_absent_object_is_refused(self, store: ObjectStore) -> None:
        with pytest.raises(RemoteResourceNotFoundError):
            await store.replace("key", b"second", previous=b"first")
        assert await store.list_objects("") == []

    async def test_of_many_replacements_one_wins(self, store: ObjectStore) -> None:
        await store.put("key", b"first")
        contents = [f"writer {n}".encode() for n in range(8)]
        outcomes = await asyncio.gather(
            *(store.replace("key", content, previous=b"first") for content in contents), return_exceptions=True
        )
        winners = [c for c, outcome in zip(contents, outcomes, strict=True) if outcome is None]
        assert [await store.get("key")] == winners
        assert all(isinstance(o, RemoteConflictError) for o in outcomes if o is not None)

    async def test_a_replacement_cancelled_at_any_await_leaves_the_one_or_the_other(self, store: ObjectStore) -> None:
        await store.put("key", b"first")
        await store.check()
        number = 1
        while await cancel_at(number, lambda: store.replace("key", b"second", previous=b"first")):
            assert await store.get("key") in {b"first", b"second"}
            assert await store.list_unfinished_uploads("") == []
            number += 1
        assert await store.get("key") == b"second"

    async def test_object_has_the_time_of_its_storing(self, store: ObjectStore) -> None:
        before_ms = time.time() * 1000
        await store.put("key", b"content")
        after_ms = time.time() * 1000
        reported = [(await store.head("key")).modified_ms, (await store.list_objects("key"))[0].modified_ms]
        for modified_ms in reported:
            assert modified_ms is not None
            assert before_ms - 2000 <= modified_ms <= after_ms + 2000  # a store may return whole seconds only

    async def test_listed_checksum_is_that_of_the_object(self, store: ObjectStore, tmp_path: Path) -> None:
        await store.put("small", b"123456789")
        assert (await store.head("small")).crc32c in {0xE3069283, None}

    @conformance.spec("remote-tiering 243")
    async def test_ranges_are_clipped_at_the_end(self, store: ObjectStore) -> None:
        await store.put("key", b"0123456789")
        assert await store.get("key", ByteRange(0, 0)) == b"0"
        assert await store.get("key", ByteRange(9, 9)) == b"9"
        assert await store.get("key", ByteRange(3, 5)) == b"345"
        assert await store.get("key", ByteRange(0, 20)) == b"0123456789"
        assert await store.get("key", ByteRange(10, 10)) == b""

    async def test_a_range_of_an_empty_object_is_empty(self, store: ObjectStore) -> None:
        await store.put("empty", b"")
        assert await store.get("empty") == b""
        assert await store.get("empty", ByteRange(0, 99)) == b""

    async def test_read_of_an_absent_object_raises_not_found(self, store: ObjectStore) -> None:
        with pytest.raises(RemoteResourceNotFoundError):
            await store.get("nothing/here")
        with pytest.raises(RemoteResourceNotFoundError):
            await store.get("nothing/here", ByteRange(0, 9))
        with pytest.raises(RemoteResourceNotFoundError):
            await store.head("nothing/here")

    async def test_the_same_content_again_is_success(self, store: ObjectStore, tmp_path: Path) -> None:
        for name, content in {"small": b"content", "empty": b""}.items():
            await store.put(name, content)
            await store.put(name, content)
        body = file_body(tmp_path / "segment", content_of(LARGE_BYTES))
        await store.put("large", body)
        await store.put("large", body)
        assert await store.list_unfinished_uploads("") == []

    @pytest.mark.parametrize("size", [100, LARGE_BYTES])
    async def test_other_content_is_refused_and_what_is_there_stays(
        self, store: ObjectStore, tmp_path: Path, size: int
    ) -> None:
        first = content_of(size, seed=1)
        await store.put("key", file_body(tmp_path / "first", first))
        for other in (content_of(size, seed=2), content_of(size - 1, seed=1)):
            with pytest.raises(RemoteConflictError):
                await store.put("key", file_body(tmp_path / "other", other))
        with pytest.raises(RemoteConflictError):
            await store.put("key", b"short")
        assert await store.get("key") == first
        assert await store.list_unfinished_uploads("") == []

    async def test_of_many_writers_of_one_key_one_wins(self, store: ObjectStore) -> None:
        contents = [f"writer {n}".encode() for n in range(8)]
        outcomes = await asyncio.gather(*(store.put("key", c) for c in contents), return_exceptions=True)
        winners = [c for c, outcome in zip(contents, outcomes, strict=True) if outcome is None]
        assert [await store.get("key")] == winners
        assert all(isinstance(o, RemoteConflictError) for o in outcomes if o is not None)

    @pytest.mark.parametrize("size", [2 << 20, LARGE_BYTES])
    async def test_a_source_that_changed_is_refused(self, store: ObjectStore, tmp_path: Path, size: int) -> None:
        content = content_of(size)
        body = file_body(tmp_path / "segment", content)
        body.path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(RemoteIntegrityError):
            await store.put("key", body)
        await self._assert_nothing_is_left(store)

    @pytest.mark.parametrize("size", [2 << 20, LARGE_BYTES])
    async def test_a_source_that_shrank_is_refused(self, store: ObjectStore, tmp_path: Path, size: int) -> None:
        content = content_of(size)
        body = file_body(tmp_path / "segment", content)
        body.path.write_bytes(content[:-1])
        with pytest.raises(RemoteIntegrityError):
            await store.put("key", body)
        await self._assert_nothing_is_left(store)

    async def test_a_source_that_vanished_is_refused(self, store: ObjectStore, tmp_path: Path) -> None:
        body = file_body(tmp_path / "segment", content_of(LARGE_BYTES))
        body.path.unlink()
        with pytest.raises(RemoteIntegrityError):
            await store.put("key", body)
        await self._assert_nothing_is_left(store)

    @conformance.spec("remote-tiering 245")
    async def test_deleted_object_is_gone_and_may_be_deleted_again(self, store: ObjectStore) -> None:
        await store.put("a/key", b"content")
        await store.put("a/other", b"content")
        await store.delete("a/key")
        await store.delete("a/key")
        assert [info.key for info in await store.list_objects("")] == ["a/other"]
        await store.put("a/key", b"another content")
        assert await store.get("a/key") == b"another content"

    async def test_listing_is_by_prefix_in_order_of_key(self, store: ObjectStore) -> None:
        keys = ["a/1/x", "a/1/y", "a/10/x", "a/2/x", "ab/1/x", "b"]
        for key in reversed(keys):
            await store.put(key, key.encode())
        assert [info.key for info in await store.list_objects("")] == sorted(keys)
        assert [info.key for info in await store.list_objects("a/1")] == ["a/1/x", "a/1/y", "a/10/x"]
        assert [info.key for info in await store.list_objects("a/1/")] == ["a/1/x", "a/1/y"]
        assert [info.size_bytes for info in await store.list_objects("a/10/")] == [6]
        assert await store.list_objects("c/") == []

    async def test_a_listing_goes_on_after_a_key_and_ends_at_its_limit(self, store: ObjectStore) -> None:
        keys = ["a", "b-/x", "b/0", "b/1-x", "b/1.x", "b/1/x", "b/1/y", "b/10", "b/ü", "b/\U0001f600", "c"]
        for key in keys:
            await store.put(key, b"content")
        assert keys == sorted(keys, key=str.encode)

        async def listed(prefix: str, start_after: str, limit: int | None) -> list[str]:
            return [info.key for info in await store.list_objects(prefix, start_after=start_after, limit=limit)]

        assert await listed("", "", 3) == keys[:3]
        assert await listed("", keys[2], 4) == keys[3:7]
        assert await listed("b/", "", 2) == keys[2:4]
        assert await listed("b/", "a", 2) == keys[2:4]
        assert await listed("b/", "b/1-x", None) == keys[4:10]
        assert await listed("b/", "b/1-y", None) == keys[4:10]
        assert await listed("b/", "b/1/", None) == keys[5:10]
        assert await listed("b/", "b/1/y", 1) == ["b/10"]
        assert await listed("b/", "b/\U0001f600", None) == []
        assert await listed("b/", "c", None) == []

    async def test_a_listing_of_more_than_a_page_is_complete(self, store: ObjectStore) -> None:
        keys = [f"many/{n:05d}" for n in range(1_005)]
        for at in range(0, len(keys), 50):
            await asyncio.gather(*(store.put(key, b"") for key in keys[at : at + 50]))
        assert [info.key for info in await store.list_objects("many/")] == keys
        assert len(await store.list_objects("many/", limit=1_001)) == 1_001
        after = await store.list_objects("many/", start_after=keys[2])
        assert [info.key for info in after] == keys[3:]

    @pytest.mark.parametrize(
        "key", ["sp ace/ü%41/+&=?#", "topic.with.dots-_/0/x", "%2E/x%", "a/.hidden", "-dash/--", "quo'te\"/;:"]
    )
    async def test_odd_keys_are_kept_apart(self, store: ObjectStore, key: str) -> None:
        await store.put(key, b"content")
        assert await store.get(key) == b"content"
        assert [info.key for info in await store.list_objects("")] == [key]
        await store.delete(key)
        assert await store.list_objects("") == []

    @pytest.mark.parametrize("size", [100, LARGE_BYTES])
    async def test_a_put_cancelled_at_any_await_leaves_nothing_behind(
        self, store: ObjectStore, tmp_path: Path, size: int
    ) -> None:
        content = content_of(size)
        body = file_body(tmp_path / "segment", content)
        await store.check()  # connected, so that the awaits counted are those of the put
        number = 1
        while await cancel_at(number, lambda: store.put(f"key-{number}", body)):  # noqa: B023 - called at once
            await self._assert_whole_or_absent(store, f"key-{number}", content)
            number += 1
        assert await store.get(f"key-{number}") == content

    async def test_a_put_cancelled_in_the_middle_of_the_bytes_leaves_nothing_behind(
        self, store: ObjectStore, tmp_path: Path
    ) -> None:
        content = content_of(LARGE_BYTES)
        await store.check()
        for steps in (1, 4, 11):
            at_step = _CancelAtStep(steps)
            body = file_body(tmp_path / "segment", content, pace=at_step.pace)
            at_step.task = asyncio.create_task(store.put("key", body))
            assert not await _ended(at_step.task)
            await self._assert_whole_or_absent(store, "key", content)
            await store.delete("key")

    async def test_a_sound_store_passes_its_check_and_closes_twice(self, store: ObjectStore) -> None:
        await store.check()
        await store.close()
        await store.close()

    async def _assert_nothing_is_left(self, store: ObjectStore) -> None:
        assert await store.list_objects("") == []
        assert await store.list_unfinished_uploads("") == []

    async def _assert_whole_or_absent(self, store: ObjectStore, key: str, content: bytes) -> None:
        assert await store.list_unfinished_uploads("") == []
        for info in await store.list_objects(key):
            assert (info.key != key) or await store.get(key) == content


async def _ended(task: "asyncio.Task[None]") -> bool:
    """Wait for the end of ``task``; return False when it was cancelled."""
    await asyncio.wait({task})
    if task.cancelled():
        return False
    task.result()
    return True


class _CancelAtStep:
    """Canceller of a put when the bytes of step ``number`` are about to leave, whichever part they belong to."""

    def __init__(self, number: int) -> None:
        self.task: asyncio.Task[None] | None = None
        self._left = number

    async def pace(self, size_bytes: int) -> None:
        assert size_bytes > 0
        self._left -= 1
        if not self._left:
            assert self.task is not None, "set before the put runs"
            self.task.cancel()
        await asyncio.sleep(0)  # where a paced upload would wait
