"""ForwardingObjectStore: base of the stores that wrap another one. It passes on each call that is not overridden.

::

    ObservedObjectStore ──► RetryingObjectStore ──► ObservedObjectStore ──► LimitedObjectStore ──► backend
      each call                repeats it              each attempt           deadline, rate
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

from tierd.model import ByteRange
from tierd.remote.object_store import (
    Body,
    ObjectInfo,
    ObjectStore,
    ObjectVersion,
    UnfinishedUpload,
    max_size_of,
)

T = TypeVar("T")


class ForwardedCall(NamedTuple):
    """One call on its way to the inner store.

    Attributes:
        operation: put, replace, get, head, delete, list, list_uploads, abort, list_versions, delete_version or check.
        key: key or prefix that the call names; empty for check.
        max_bytes: bytes that the call moves at most; None where the store alone knows.
        is_change: the call changes what is stored.
    """

    operation: str
    key: str
    max_bytes: int | None = 0
    is_change: bool = False


class ForwardingObjectStore(ObjectStore):
    """An ``ObjectStore`` whose calls are those of another one; each of them but ``close`` goes through ``_forward``."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    async def _forward(self, call: ForwardedCall, send: Callable[[], Awaitable[T]]) -> T:
        """Make one call. A wrapper that changes all calls overrides this method.

        Args:
            call: describes the call.
            send: calls the inner store; each call of ``send`` is an attempt.
        """
        del call
        return await send()

    async def put(self, key: str, body: Body) -> None:
        """Create the object unless the key exists."""
        call = ForwardedCall("put", key, max_size_of(body), is_change=True)
        await self._forward(call, partial(self._inner.put, key, body))

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give a small object other content if it is exactly ``previous``."""
        call = ForwardedCall("replace", key, len(content) + len(previous), is_change=True)
        await self._forward(call, partial(self._inner.replace, key, content, previous=previous))

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, or those of ``byte_range`` clipped at its end."""
        call = ForwardedCall("get", key, byte_range.size if byte_range else None)
        return await self._forward(call, partial(self._inner.get, key, byte_range))

    async def head(self, key: str) -> ObjectInfo:
        """Describe the object."""
        return await self._forward(ForwardedCall("head", key), partial(self._inner.head, key))

    async def delete(self, key: str) -> None:
        """Remove the object."""
        await self._forward(ForwardedCall("delete", key, is_change=True), partial(self._inner.delete, key))

    async def list_objects(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        """Return the objects whose key begins with ``prefix``, in order of key."""
        send = partial(self._inner.list_objects, prefix, start_after=start_after, limit=limit)
        return await self._forward(ForwardedCall("list", prefix, None), send)

    async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
        """Return uploads begun under ``prefix`` that are neither completed nor aborted."""
        send = partial(self._inner.list_unfinished_uploads, prefix)
        return await self._forward(ForwardedCall("list_uploads", prefix, None), send)

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload."""
        call = ForwardedCall("abort", upload.key, is_change=True)
        await self._forward(call, partial(self._inner.abort_upload, upload))

    async def list_versions(self, prefix: str) -> list[ObjectVersion]:
        """Return every version of the objects whose key begins with ``prefix``."""
        return await self._forward(
            ForwardedCall("list_versions", prefix, None), partial(self._inner.list_versions, prefix)
        )

    async def delete_version(self, version: ObjectVersion) -> None:
        """Remove one version for good."""
        call = ForwardedCall("delete_version", version.key, is_change=True)
        await self._forward(call, partial(self._inner.delete_version, version))

    async def check(self) -> None:
        """Raise unless the store may be used."""
        await self._forward(ForwardedCall("check", ""), self._inner.check)

    async def close(self) -> None:
        """Close the inner store."""
        await self._inner.close()
