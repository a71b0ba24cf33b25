"""Stores that end the process, or cancel its task, at the n-th call: before it has any effect, or right after."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar

from tierd.metadata import Batch, KeyValueStore
from tierd.model import ByteRange
from tierd.remote import Body, ObjectInfo, ObjectStore, UnfinishedUpload

Answer = TypeVar("Answer")


class CrashError(BaseException):
    """The process is gone: nothing catches this."""


class Interruption:
    """Counts the calls of both stores and strikes at one of them."""

    def __init__(self, *, at: int | None, after: bool = False, cancels: bool = False) -> None:
        """``at``: which call, from 1; None never strikes. ``cancels``: cancel the current task instead of dying."""
        self._at = at
        self._after = after
        self._cancels = cancels
        self.victim: asyncio.Task[object] | None = None
        self.calls = 0
        self.struck = False

    async def during(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        self.calls += 1
        if self.struck and not self._cancels:
            raise CrashError  # whatever else still runs in the dead process has no effect
        mine = self.calls == self._at
        if mine and not self._after:
            await self._strike()
        answer = await call()
        if mine and self._after:
            await self._strike()
        return answer

    async def _strike(self) -> None:
        self.struck = True
        if not self._cancels:
            raise CrashError
        assert self.victim is not None
        self.victim.cancel()
        await asyncio.sleep(0)


class InterruptedKeyValueStore(KeyValueStore):
    """A KeyValueStore with an interruption in it."""

    def __init__(self, inner: KeyValueStore, interruption: Interruption) -> None:
        self._inner = inner
        self._interruption = interruption

    async def get(self, key: str) -> bytes | None:
        return await self._interruption.during(lambda: self._inner.get(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        return await self._interruption.during(lambda: self._inner.get_many(keys))

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        return await self._interruption.during(lambda: self._inner.scan(prefix))

    async def apply(self, batch: Batch) -> None:
        await self._interruption.during(lambda: self._inner.apply(batch))

    async def close(self) -> None:
        await self._inner.close()


class InterruptedObjectStore:
    """An ObjectStore with an interruption in it."""

    def __init__(self, inner: ObjectStore, interruption: Interruption) -> None:
        self._inner = inner
        self._interruption = interruption

    async def put(self, key: str, body: Body) -> None:
        await self._interruption.during(lambda: self._inner.put(key, body))

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        await self._interruption.during(lambda: self._inner.replace(key, content, previous=previous))

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        return await self._interruption.during(lambda: self._inner.get(key, byte_range))

    async def head(self, key: str) -> ObjectInfo:
        return await self._interruption.during(lambda: self._inner.head(key))

    async def delete(self, key: str) -> None:
        await self._interruption.during(lambda: self._inner.delete(key))

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        listing = partial(self._inner.list_objects, prefix, start_after=start_after, limit=limit)
        return await self._interruption.during(listing)

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        return await self._interruption.during(lambda: self._inner.list_unfinished_uploads(prefix))

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        await self._interruption.during(lambda: self._inner.abort_upload(upload))

    async def check(self) -> None:
        await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()
