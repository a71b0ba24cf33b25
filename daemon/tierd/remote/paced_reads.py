"""PacedReads: an ObjectStore whose downloads keep to a byte rate, for work that must not disturb the broker."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tierd.clock import Clock
from tierd.remote.forwarding import ForwardedCall, ForwardingObjectStore
from tierd.remote.limited import ByteRate
from tierd.remote.object_store import ObjectStore

T = TypeVar("T")


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
