"""ObservedObjectStore: a report of each call when it has ended."""

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tierd.clock import Clock
from tierd.errors import (
    RemoteAccessError,
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteObjectRetainedError,
    RemoteResourceNotFoundError,
    TierError,
)
from tierd.model import ByteRange
from tierd.remote.chunks import iterated
from tierd.remote.forwarding import ForwardedCall, ForwardingObjectStore
from tierd.remote.object_store import Body, ChunkedBody, ObjectStore, max_size_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ObjectStoreCall:
    """One call that ended.

    Attributes:
        operation: put, replace, get, head, delete, list, list_uploads, abort, list_versions, delete_version or check;
            of a request inside a call upload_part, complete_upload or abort_upload.
        outcome: ok, not_found, conflict, damaged, refused, retained, retriable, failed or cancelled.
        size_bytes: sent or received; 0 unless it succeeded.
        failure: error of the call; None when it succeeded, was cancelled or met a bug.
    """

    operation: str
    key: str
    outcome: str
    duration_s: float
    size_bytes: int
    failure: TierError | None = None


class ObservedObjectStore(ForwardingObjectStore):
    """An ``ObjectStore`` that hands an ``ObjectStoreCall`` to ``on_call`` after every call of another one."""

    def __init__(self, inner: ObjectStore, *, on_call: Callable[[ObjectStoreCall], None], clock: Clock) -> None:
        super().__init__(inner)
        self._on_call = on_call
        self._clock = clock

    async def put(self, key: str, body: Body) -> None:
        """Create the object; chunks are counted on their way."""
        if isinstance(body, ChunkedBody):
            counted = _Counted(body.chunks)
            call = self._inner.put(key, dataclasses.replace(body, chunks=counted.chunks))
            await self._observe("put", key, call, lambda _: counted.size_bytes)
        else:
            size = max_size_of(body)
            await self._observe("put", key, self._inner.put(key, body), lambda _: size)

    async def replace(self, key: str, content: bytes, *, previous: bytes) -> None:
        """Give a small object other content, whose size is that of the call."""
        call = self._inner.replace(key, content, previous=previous)
        await self._observe("replace", key, call, lambda _: len(content))

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        """Return the object's bytes, whose number is the size of the call."""
        return await self._observe("get", key, self._inner.get(key, byte_range), len)

    async def _forward(self, call: ForwardedCall, send: Callable[[], Awaitable[T]]) -> T:
        return await self._observe(call.operation, call.key, send())

    async def _observe(
        self, operation: str, key: str, call: Awaitable[T], size_of: Callable[[T], int] = lambda _: 0
    ) -> T:
        return await observed(operation, key, call, on_call=self._on_call, clock=self._clock, size_of=size_of)


async def observed(
    operation: str,
    key: str,
    call: Awaitable[T],
    *,
    on_call: Callable[[ObjectStoreCall], None],
    clock: Clock,
    size_of: Callable[[T], int] = lambda _: 0,
) -> T:
    """Await ``call`` and hand an ``ObjectStoreCall`` to ``on_call`` when it has ended, by an answer or otherwise.

    ``size_of`` gives the bytes that were sent or received, from the answer.
    """
    began_s, outcome, size = clock.monotonic_s(), "failed", 0
    failure: TierError | None = None
    try:
        answer = await call
        outcome, size = "ok", size_of(answer)
    except TierError as error:
        outcome, failure = _outcome_of(error), error
        raise
    except asyncio.CancelledError:
        outcome = "cancelled"
        raise
    finally:
        on_call(ObjectStoreCall(operation, key, outcome, clock.monotonic_s() - began_s, size, failure))
    return answer


class _Counted:
    """Chunks that are counted at each iteration; ``size_bytes`` is of the last one."""

    def __init__(self, chunks: Callable[[], AsyncIterator[bytes]]) -> None:
        self.size_bytes = 0
        self._chunks = chunks

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        self.size_bytes = 0
        async with iterated(self._chunks) as chunks:
            async for chunk in chunks:
                self.size_bytes += len(chunk)
                yield chunk


def _outcome_of(error: TierError) -> str:
    """Return the word for a call that failed, as ``ObjectStoreCall`` has it."""
    match error:
        case RemoteResourceNotFoundError():
            return "not_found"
        case RemoteConflictError():
            return "conflict"
        case RemoteIntegrityError():
            return "damaged"
        case RemoteObjectRetainedError():
            return "retained"
        case RemoteAccessError():
            return "refused"
        case _:
            return "retriable" if error.retriable else "failed"
