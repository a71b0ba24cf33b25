"""How long a call to the object store may take; the time in which we hold the bytes back does not count."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tierd.errors import RetriableRemoteStorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """``base_s`` for every call, and longer for more bytes.

    An upload into a network that swallows everything never ends by itself, so this is what ends it.
    """

    base_s: float = 60.0
    min_bytes_per_second: float = 1 << 20

    def for_size(self, size_bytes: int) -> float:
        """Seconds that a call moving ``size_bytes`` may take."""
        return self.base_s + size_bytes / self.min_bytes_per_second


class Deadline:
    """One running deadline. Any number of tasks may pause it at once; it goes on when the last has ended its pause."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout
        self._pauses = 0
        self._paused_at = 0.0
        self._due: float | None = None

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Do not count the time inside."""
        loop = asyncio.get_running_loop()
        if not self._pauses:
            self._due, self._paused_at = self._timeout.when(), loop.time()
            self._timeout.reschedule(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses and self._due is not None and not self._timeout.expired():
                self._timeout.reschedule(self._due + loop.time() - self._paused_at)


@asynccontextmanager
async def deadline(what: str, limit_s: float) -> AsyncIterator[Deadline]:
    """Cancel the body after ``limit_s`` seconds.

    Raises:
        RetriableRemoteStorageError: the time was up.
    """
    try:
        async with asyncio.timeout(limit_s) as timeout:
            yield Deadline(timeout)
    except TimeoutError as error:
        raise RetriableRemoteStorageError(
            f"{what}: the object store did not finish within {limit_s:g} s",
            remedy="it is tried again; look at the network between this host and the store",
        ) from error
