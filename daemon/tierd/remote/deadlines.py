"""Deadlines of calls to the object store; time in which tierd itself holds bytes back does not count."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tierd.errors import RetriableRemoteStorageError

_CLEAN_UP_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Time limits: ``base_s`` for every call, and more for more bytes.

    The deadline ends an upload into a network that drops every packet, which would not end by itself.
    """

    base_s: float = 60.0
    min_bytes_per_second: float = 1 << 20

    def for_size(self, size_bytes: int) -> float:
        """Return the seconds that a call with ``size_bytes`` may take."""
        return self.base_s + size_bytes / self.min_bytes_per_second

    @property
    def clean_up_s(self) -> float:
        """Return the seconds that a look at the store, or an abort, may take after a failure: the caller waits."""
        return min(_CLEAN_UP_S, self.base_s)


class Deadline:
    """One running deadline. Several tasks may pause it at once; it goes on when the last pause has ended."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout
        self._pauses = 0
        self._paused_at = 0.0
        self._due: float | None = None

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Stop the deadline for the time of the context."""
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
