"""LimitedObjectStore: a deadline for every call, a bound on calls at a time, a byte rate; PacedReads: one for reads."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.masking import Masking
from tierd.remote.deadlines import Deadline, Deadlines, deadline
from tierd.remote.forwarding import ForwardedCall, ForwardingObjectStore
from tierd.remote.object_store import Body, ObjectStore, max_size_of

T = TypeVar("T")

_UNKNOWN_SIZE_BYTES = 64 << 20
"""Size that a deadline assumes for a listing, and for an object that is read whole."""


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
        """Return when ``size_bytes`` may leave. After a cancellation in the wait the bytes still count as sent."""
        now_s = self._clock.monotonic_s()
        self._tokens = min(self._rate, self._tokens + (now_s - self._counted_s) * self._rate) - size_bytes
        self._counted_s = now_s
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._rate)


class LimitedObjectStore(ForwardingObjectStore):
    """An ``ObjectStore`` whose calls end in time, a bounded number of them at once; ``check`` does not count.

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
        """``masking`` is for a store whose own exceptions may hold secrets: a store of another package."""
        super().__init__(inner)
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

    async def check(self) -> None:
        """Raise unless the store may be used, or when it does not answer in time."""
        async with deadline("check", self._deadlines.for_size(0)):  # no place: it answers while uploads take them all
            await self._safely(self._inner.check())

    async def _forward(self, call: ForwardedCall, send: Callable[[], Awaitable[T]]) -> T:
        what = f"{call.operation.replace('_', ' ')} {call.key}"
        size_bytes = _UNKNOWN_SIZE_BYTES if call.max_bytes is None else call.max_bytes
        async with self._places, deadline(what, self._deadlines.for_size(size_bytes)):
            return await self._safely(send())

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


class PacedReads(ForwardingObjectStore):
    """An ``ObjectStore`` that returns from a download when its bytes were due at the rate.

    A caller that waits for one download before the next keeps to the rate; each further one at a time adds at most the
    bytes of one call. The inner store belongs to the caller, also at the end.
    """

    def __init__(self, inner: ObjectStore, *, bytes_per_second: int, clock: Clock) -> None:
        super().__init__(inner)
        self._rate = ByteRate(bytes_per_second, clock=clock)

    async def _forward(self, call: ForwardedCall, send: Callable[[], Awaitable[T]]) -> T:
        result = await send()
        if call.operation == "get" and isinstance(result, bytes):
            await self._rate.take(len(result))
        return result

    async def close(self) -> None:
        """Close nothing."""
