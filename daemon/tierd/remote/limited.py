"""LimitedObjectStore: a deadline for every call, a bound on calls at a time, and a byte rate for uploads."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.masking import Masking
from tierd.model import ByteRange
from tierd.remote.deadlines import Deadline, Deadlines, deadline
from tierd.remote.object_store import Body, ObjectInfo, ObjectStore, UnfinishedUpload, max_size_of
from tierd.remote.object_versions import ObjectVersion, versions_of

T = TypeVar("T")

_UNKNOWN_SIZE_BYTES = 64 << 20
"""What a whole object is taken for: the objects read whole are manifests and the artefacts beside a log."""


class ByteRate:
    """A token bucket: ``bytes_per_second`` on average, at most one second's worth at once after a pause.

    Callers are served in order. A step larger than the bucket is let through and paid for by those that follow.
    """

    def __init__(self, bytes_per_second: float, *, clock: Clock) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._tokens = bytes_per_second
        self._counted_s = clock.monotonic_s()

    async def take(self, size_bytes: int) -> None:
        """Return when ``size_bytes`` may leave. A cancellation in the wait gives nothing back: the place is taken."""
        now_s = self._clock.monotonic_s()
        self._tokens = min(self._rate, self._tokens + (now_s - self._counted_s) * self._rate) - size_bytes
        self._counted_s = now_s
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._rate)


class LimitedObjectStore:
    """An ``ObjectStore`` whose calls end in time and do not crowd out one another.

    Waiting for a free place or for the byte rate does not count against the deadline.
    """

    def __init__(
        self,
        inner: ObjectStore,
        *,
        deadlines: Deadlines,
        max_calls: int,
        upload_rate: ByteRate | None = None,
        masking: Masking | None = None,
    ) -> None:
        """``masking`` is of a store whose own exceptions may hold secrets: one of another package."""
        self._inner = inner
        self._deadlines = deadlines
        self._places = asyncio.Semaphore(max_calls)
        self._upload_rate = upload_rate
        self._masking = masking

    async def put(self, key: str, body: Body) -> None:
        """Create the object before the deadline for its size."""
        size = max_size_of(body)
        async with self._places, deadline(f"put {key}", self._deadlines.for_size(size)) as running:
            if self._upload_rate is not None:
                if isinstance(body, bytes):
                    await _paced(self._upload_rate, running, None)(size)
                else:
                    body = replace(body, pace=_paced(self._upload_rate, running, body.pace))
            await self._safely(self._inner.put(key, body))

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give a small object other content, outside the byte rate: nothing large is replaced."""
        call = partial(self._inner.replace, key, content, previous=previous)
        await self._call(f"replace {key}", call, len(content) + len(previous))

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes before the deadline for the range."""
        size = byte_range.size if byte_range else _UNKNOWN_SIZE_BYTES
        return await self._call(f"get {key}", partial(self._inner.get, key, byte_range), size)

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object."""
        return await self._call(f"head {key}", partial(self._inner.head, key))

    async def delete(self, key: str) -> None:
        """Remove the object."""
        await self._call(f"delete {key}", partial(self._inner.delete, key))

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects below ``prefix``; a listing has as long as an object of unknown size."""
        listing = partial(self._inner.list_objects, prefix, start_after=start_after, limit=limit)
        return await self._call(f"list {prefix}", listing, _UNKNOWN_SIZE_BYTES)

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return unfinished uploads below ``prefix``."""
        listing = partial(self._inner.list_unfinished_uploads, prefix)
        return await self._call(f"list uploads {prefix}", listing, _UNKNOWN_SIZE_BYTES)

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload."""
        await self._call(f"abort {upload.key}", partial(self._inner.abort_upload, upload))

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        """Return every version of the objects below ``prefix``."""
        listing = partial(versions_of(self._inner).list_versions, prefix)
        return await self._call(f"list versions {prefix}", listing, _UNKNOWN_SIZE_BYTES)

    async def delete_version(self, version: ObjectVersion) -> None:
        """Remove one version."""
        await self._call(f"delete {version.key}", partial(versions_of(self._inner).delete_version, version))

    async def check(self) -> None:
        """Raise unless the store may be used, or when it does not answer in time."""
        async with deadline("check", self._deadlines.for_size(0)):  # no place: it answers while uploads take them all
            await self._safely(self._inner.check())

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    async def _call(self, what: str, call: Callable[[], Awaitable[T]], size_bytes: int = 0) -> T:
        async with self._places, deadline(what, self._deadlines.for_size(size_bytes)):
            return await self._safely(call())

    async def _safely(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except (TierError, TimeoutError):
            raise
        except Exception as error:
            if self._masking is None:
                raise
            raise self._masking.error(error) from None


def _paced(
    rate: ByteRate, running: Deadline, further: Callable[[int], Awaitable[None]] | None
) -> Callable[[int], Awaitable[None]]:
    """Hold bytes back for ``rate`` and then for ``further``, outside the deadline."""

    async def pace(size_bytes: int) -> None:
        async with running.paused():
            await rate.take(size_bytes)
            if further is not None:
                await further(size_bytes)

    return pace
