"""ObservedObjectStore: tells of every call, once, when it has ended."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tierd.clock import Clock
from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    TierError,
)
from tierd.model import ByteRange
from tierd.remote.object_store import FileBody, ObjectInfo, ObjectStore, UnfinishedUpload

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectStoreCall:
    """One call that ended.

    Attributes:
        operation: put, get, head, delete, list, list_uploads, abort or check.
        outcome: ok, not_found, conflict, damaged, refused, retriable, failed or cancelled.
        size_bytes: sent or received; 0 unless it succeeded.
    """

    operation: str
    key: str
    outcome: str
    duration_s: float
    size_bytes: int


class ObservedObjectStore:
    """An ``ObjectStore`` that hands an ``ObjectStoreCall`` to ``on_call`` after every call of another one."""

    def __init__(self, inner: ObjectStore, *, on_call: Callable[[ObjectStoreCall], None], clock: Clock) -> None:
        self._inner = inner
        self._on_call = on_call
        self._clock = clock

    async def put(self, key: str, body: bytes | FileBody) -> None:
        """Create the object."""
        size = len(body) if isinstance(body, bytes) else body.size
        await self._observe("put", key, self._inner.put(key, body), lambda _: size)

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes."""
        return await self._observe("get", key, self._inner.get(key, byte_range), len)

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object."""
        return await self._observe("head", key, self._inner.head(key))

    async def delete(self, key: str) -> None:
        """Remove the object."""
        await self._observe("delete", key, self._inner.delete(key))

    async def list_objects(self, prefix: str) -> list[ObjectInfo]:
        """Return every object below ``prefix``."""
        return await self._observe("list", prefix, self._inner.list_objects(prefix))

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return unfinished uploads below ``prefix``."""
        return await self._observe("list_uploads", prefix, self._inner.list_unfinished_uploads(prefix))

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload."""
        await self._observe("abort", upload.key, self._inner.abort_upload(upload))

    async def check(self) -> None:
        """Raise unless the store may be used."""
        await self._observe("check", "", self._inner.check())

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()

    async def _observe(
        self, operation: str, key: str, call: Awaitable[T], size_of: Callable[[T], int] = lambda _: 0
    ) -> T:
        began_s, outcome, size = self._clock.monotonic_s(), "failed", 0
        try:
            answer = await call
            outcome, size = "ok", size_of(answer)
        except TierError as error:
            outcome = _outcome(error)
            raise
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            duration_s = self._clock.monotonic_s() - began_s
            self._on_call(ObjectStoreCall(operation, key, outcome, duration_s, size))
        return answer


def _outcome(error: TierError) -> str:
    match error:
        case RemoteResourceNotFoundError():
            return "not_found"
        case RemoteConflictError():
            return "conflict"
        case RemoteIntegrityError():
            return "damaged"
        case RemoteAccessError():
            return "refused"
        case _:
            return "retriable" if error.retriable else "failed"
