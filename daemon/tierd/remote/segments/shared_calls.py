"""SharedCalls: whoever asks for what somebody else is waiting for already waits for the same answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class _Call(Generic[T]):
    def __init__(self, task: "asyncio.Future[T]") -> None:
        self.task = task
        self.waiters = 0


class SharedCalls(Generic[T]):
    """Calls under way. One belongs to those who wait for it, and ends with the last of them."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call[T]] = {}

    async def ask(self, subject: str, call: Callable[[], Awaitable[T]]) -> T:
        """Return what ``call`` answers, or the one that is under way for ``subject``; its failure is everybody's.

        A cancelled caller leaves the call to the others; the last one ends it, and waits for that.
        """
        shared = self._calls.get(subject)
        if shared is None:
            shared = self._calls[subject] = _Call(asyncio.ensure_future(call()))
            begun = shared
            shared.task.add_done_callback(lambda _: self._forget(subject, begun))
        shared.waiters += 1
        try:
            return await asyncio.shield(shared.task)
        finally:
            shared.waiters -= 1
            if not shared.waiters and not shared.task.done():
                self._forget(subject, shared)
                shared.task.cancel()
                await asyncio.wait({shared.task})

    def _forget(self, subject: str, call: _Call[T]) -> None:
        if self._calls.get(subject) is call:
            del self._calls[subject]
