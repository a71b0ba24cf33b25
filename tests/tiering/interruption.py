"""Stores that end the process, or cancel its task, at the n-th call: before the call has an effect, or right after."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from tierd.metadata import Batch, KeyValueStore
from tierd.remote import ForwardedCall, ForwardingObjectStore, ObjectStore

Answer = TypeVar("Answer")


class CrashError(BaseException):
    """Death of the process: no code catches it."""


class Interruption:
    """Counter of the calls of both stores, which interrupts one of them."""

    def __init__(self, *, at: int | None, after: bool = False, cancels: bool = False) -> None:
        """Interrupt call number ``at``, from 1; None for no interruption. ``cancels``: cancel the task, do not die."""
        self._at = at
        self._after = after
        self._cancels = cancels
        self.victim: asyncio.Task[object] | None = None
        self.calls = 0
        self.struck = False

    async def during(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        self.calls += 1
        if self.struck and not self._cancels:
            raise CrashError  # other work of the dead process has no effect
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
    """KeyValueStore with an interruption."""

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


class InterruptedObjectStore(ForwardingObjectStore):
    """ObjectStore with an interruption."""

    def __init__(self, inner: ObjectStore, interruption: Interruption) -> None:
        super().__init__(inner)
        self._interruption = interruption

    async def check(self) -> None:
        await self._inner.check()

    async def _forward(self, call: ForwardedCall, send: Callable[[], Awaitable[Answer]]) -> Answer:
        return await self._interruption.during(send)
