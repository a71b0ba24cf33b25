"""Self-test of an object store: every kind of call that tierd makes, once, below a folder of its own."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial

from tierd.app.checks.checklist import Checklist
from tierd.clock import Clock
from tierd.errors import RemoteConflictError, RemoteResourceNotFoundError, RemoteStorageError, TierError
from tierd.model import ByteRange
from tierd.remote import ChunkedBody, ObjectStore

_AREA = "object store"
_SMALL = b"tierd checks whether this store does what it needs\n"
_CHUNK_BYTES = 1 << 20
_MOST_SKEW_S = 60.0
_CLEAN_UP_TIMEOUT_S = 60.0


class _InterruptedOnPurposeError(TierError):
    """End of the upload that is to be aborted."""


class StoreSelfTest:
    """Test that writes, reads, lists, replaces and deletes below ``folder``, and leaves nothing there, however it ends.

    Args:
        store: a stack with few retries, because the caller wants an answer soon.
        folder: ends with a slash; used by this test alone.
        large_bytes: more than one part of an upload.
        clock: its wall-clock time is compared with the store's.
    """

    def __init__(self, store: ObjectStore, folder: str, *, large_bytes: int, clock: Clock) -> None:
        self._store = store
        self._folder = folder
        self._small = f"{folder}small"
        self._large = f"{folder}large"
        self._aborted = f"{folder}aborted"
        self._large_bytes = large_bytes
        self._clock = clock
        self._block = os.urandom(_CHUNK_BYTES)

    async def run(self, checklist: Checklist) -> None:
        """Take every step, then clean up; stop early if the store cannot be reached or takes no object."""
        step = partial(checklist.step, _AREA)
        if not await step("reach", self._reach):
            return
        try:
            if not await step("put", self._put):
                return
            for name, work in {
                "conditional put": self._put_again,
                "ranged get": self._get,
                "list": self._list,
                "replace": self._replace,
                "clock": self._compare_clocks,
                "large put": self._put_large,
                "abort": self._abort,
                "delete": self._delete,
            }.items():
                await step(name, work)
        finally:
            await asyncio.shield(asyncio.create_task(self._leave_nothing(checklist), name="clean up a self-test"))

    async def _reach(self) -> str:
        await self._store.check()
        return "it answers, and may be listed"

    async def _put(self) -> str:
        await self._store.put(self._small, _SMALL)
        return self._small

    async def _put_again(self) -> str:
        try:
            await self._store.put(self._small, _SMALL + b"other content")
        except RemoteConflictError:
            return "a key that exists is not written again"
        raise RemoteStorageError(
            "the store replaced an object, although the request forbade it",
            remedy="use a store with conditional writes: without them two brokers may destroy each other's segments",
        )

    async def _get(self) -> str:
        _require(await self._store.get(self._small), _SMALL)
        _require(await self._store.get(self._small, ByteRange(6, 11)), _SMALL[6:12])
        _require(await self._store.get(self._small, ByteRange(6, 10_000)), _SMALL[6:])
        return "the bytes are those that were put"

    async def _list(self) -> str:
        found = [info.key for info in await self._store.list_objects(self._folder, limit=10)]
        if found != [self._small]:
            raise RemoteStorageError(
                f"listing {self._folder} gives {found}, not {self._small}",
                remedy="use a store whose listings show an object as soon as it is there",
            )
        return "the object is listed at once"

    async def _replace(self) -> str:
        await self._store.replace(self._small, _SMALL[::-1], previous=_SMALL)
        try:
            await self._store.replace(self._small, b"other", previous=_SMALL)
        except RemoteConflictError:
            _require(await self._store.get(self._small), _SMALL[::-1])
            return "only what was read is replaced"
        raise RemoteStorageError(
            "the store replaced an object whose content was not what the request named",
            remedy="use a store with conditional writes (If-Match)",
        )

    async def _compare_clocks(self) -> str:
        key = f"{self._folder}clock"
        before_ms = self._clock.now_ms()
        await self._store.put(key, b"")
        after_ms = self._clock.now_ms()
        stored_ms = (await self._store.head(key)).modified_ms
        if stored_ms is None:
            return "the store does not report its time"
        # The store may report whole seconds only.
        skew_s = max(before_ms - stored_ms - 1000, stored_ms - after_ms - 1000, 0) / 1000
        if skew_s > _MOST_SKEW_S:
            raise RemoteStorageError(
                f"this host's clock and the store's are {skew_s:.0f} s apart",
                remedy="set this host's clock, for example by starting chrony or systemd-timesyncd",
            )
        return "this host's clock and the store's agree" if not skew_s else f"the clocks are {skew_s:.1f} s apart"

    async def _put_large(self) -> str:
        began_s = self._clock.monotonic_s()
        await self._store.put(self._large, ChunkedBody(self._chunks, self._large_bytes))
        took_s = max(self._clock.monotonic_s() - began_s, 1e-3)
        size = (await self._store.head(self._large)).size_bytes
        last = self._large_bytes % _CHUNK_BYTES or _CHUNK_BYTES
        tail = await self._store.get(self._large, ByteRange(self._large_bytes - last, self._large_bytes))
        if size != self._large_bytes or tail != self._block[:last]:
            raise RemoteStorageError(f"{self._large} is not what was put: {size} bytes", remedy="use another store")
        return f"{size / 1e6:.0f} MB in parts, {size / 1e6 / took_s:.0f} MB/s"

    async def _abort(self) -> str:
        async def chunks() -> AsyncIterator[bytes]:
            async for chunk in self._chunks():
                yield chunk
            raise _InterruptedOnPurposeError("interrupted on purpose")

        with suppress(_InterruptedOnPurposeError):
            await self._store.put(self._aborted, ChunkedBody(chunks, self._large_bytes))
        left = [upload.key for upload in await self._store.list_unfinished_uploads(self._folder)]
        if left or await self._store.list_objects(self._aborted):
            raise RemoteStorageError(
                f"an aborted upload is still there: {', '.join(left) or self._aborted}",
                remedy="allow these credentials to abort multipart uploads",
            )
        return "an aborted upload leaves nothing"

    async def _delete(self) -> str:
        for info in await self._store.list_objects(self._folder):
            await self._store.delete(info.key)
        try:
            await self._store.head(self._small)
        except RemoteResourceNotFoundError:
            return "deleted objects are gone"
        raise RemoteStorageError(f"{self._small} is still there after it was deleted", remedy="use another store")

    async def _leave_nothing(self, checklist: Checklist) -> None:
        try:
            async with asyncio.timeout(_CLEAN_UP_TIMEOUT_S):
                for upload in await self._store.list_unfinished_uploads(self._folder):
                    await self._store.abort_upload(upload)
                for info in await self._store.list_objects(self._folder):
                    await self._store.delete(info.key)
        except (TierError, TimeoutError) as error:
            await checklist.step(_AREA, "clean up", partial(self._something_left, error))

    async def _something_left(self, error: Exception) -> str:
        raise RemoteStorageError(
            f"{self._folder} may still hold objects of this check: {error}",
            remedy=f"remove everything below {self._folder}",
        )

    async def _chunks(self) -> AsyncIterator[bytes]:
        for position in range(0, self._large_bytes, _CHUNK_BYTES):
            yield self._block[: self._large_bytes - position]


def _require(content: bytes, expected: bytes) -> None:
    if content != expected:
        raise RemoteStorageError(
            f"the store gave {content[:40]!r} where {expected[:40]!r} was put",
            remedy="use another store, or look at the proxies on the way to it",
        )
