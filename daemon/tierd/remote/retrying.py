"""RetryingObjectStore: repeats what failed retriably. The only retry loop around the object store."""

import random as _random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import structlog

from tierd.backoff import Backoff
from tierd.clock import Clock
from tierd.errors import TierError
from tierd.model import ByteRange
from tierd.remote.object_store import Body, ObjectInfo, ObjectStore, UnfinishedUpload
from tierd.remote.object_versions import ObjectVersion, versions_of

log = structlog.get_logger()

T = TypeVar("T")


class Retry:
    """Repeats a call while it fails retriably. A cancellation ends it at once, also in a wait."""

    def __init__(
        self,
        *,
        clock: Clock,
        backoff: Backoff = Backoff(),  # noqa: B008 - frozen
        attempts: int = 6,
        random: Callable[[], float] = _random.random,
        on_retry: Callable[[str, TierError], None] | None = None,
    ) -> None:
        """``attempts``: in all, the first one included; at least 1."""
        self._clock = clock
        self._backoff = backoff
        self._attempts = attempts
        self._random = random
        self._on_retry = on_retry

    async def __call__(self, operation: str, call: Callable[[], Awaitable[T]]) -> T:
        """Return what ``call`` returns; the last attempt reports its own failure."""
        for failures in range(1, self._attempts):
            try:
                return await call()
            except TierError as error:
                if not error.retriable:
                    raise
                delay_s = self._backoff.delay_s(failures, random=self._random)
                self._report(operation, error, delay_s)
            await self._clock.sleep(delay_s)
        return await call()

    def _report(self, operation: str, error: TierError, delay_s: float) -> None:
        log.warning("object_store_retry", operation=operation, delay_s=round(delay_s, 3), error=str(error))
        if self._on_retry is not None:
            self._on_retry(operation, error)


class RetryingObjectStore:
    """An ``ObjectStore`` that repeats the calls of another one by the rules of ``retry``."""

    def __init__(self, inner: ObjectStore, retry: Retry) -> None:
        self._inner = inner
        self._retry = retry

    async def put(self, key: str, body: Body) -> None:
        """Create the object. A lost reply is no harm: the next attempt finds the same content there."""
        await self._retry("put", partial(self._inner.put, key, body))

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give a small object other content. A lost reply is no harm: the next attempt finds that content there."""
        await self._retry("replace", partial(self._inner.replace, key, content, previous=previous))

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes."""
        return await self._retry("get", partial(self._inner.get, key, byte_range))

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object."""
        return await self._retry("head", partial(self._inner.head, key))

    async def delete(self, key: str) -> None:
        """Remove the object."""
        await self._retry("delete", partial(self._inner.delete, key))

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects below ``prefix``."""
        call = partial(self._inner.list_objects, prefix, start_after=start_after, limit=limit)
        return await self._retry("list", call)

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return unfinished uploads below ``prefix``."""
        return await self._retry("list_uploads", partial(self._inner.list_unfinished_uploads, prefix))

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload."""
        await self._retry("abort", partial(self._inner.abort_upload, upload))

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        """Return every version of the objects below ``prefix``."""
        return await self._retry("list versions", partial(versions_of(self._inner).list_versions, prefix))

    async def delete_version(self, version: ObjectVersion) -> None:
        """Remove one version."""
        await self._retry("delete version", partial(versions_of(self._inner).delete_version, version))

    async def check(self) -> None:
        """Raise unless the store may be used. Not repeated: who asks wants to know how it is now."""
        await self._inner.check()

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()
