"""BlockBudget: the bytes of log blocks that the readers of a source may hold, all together (changelog-restore 3.7)."""

import asyncio
from typing import Final, Protocol

DEFAULT_BUDGET_BYTES: Final = 64 << 20


class BlockHolder(Protocol):
    """Reader that holds blocks."""

    @property
    def is_idle(self) -> bool:
        """Return True if no caller waits for the reader."""

    def drop(self) -> None:
        """Give up all blocks and release their bytes; the reader fetches them again when it is read."""


class BlockBudget:
    """Budget of one event loop.

    A reader waits only for the first block that it needs, while it holds none. Blocks ahead of that are fetched while
    there is room. A waiting reader makes idle readers drop their blocks, and the others are being read: so every wait
    ends.

    Attributes:
        used_bytes: held now.
        peak_bytes: the most bytes that were held at one time.
    """

    def __init__(self, limit_bytes: int = DEFAULT_BUDGET_BYTES) -> None:
        self.used_bytes = 0
        self.peak_bytes = 0
        self._limit_bytes = limit_bytes
        self._holders: set[BlockHolder] = set()
        self._released = asyncio.Event()

    def join(self, holder: BlockHolder) -> None:
        """Add a reader, which may be told to drop its blocks."""
        self._holders.add(holder)

    def leave(self, holder: BlockHolder) -> None:
        """Remove a reader, which holds nothing any more."""
        self._holders.discard(holder)

    def try_take(self, size_bytes: int) -> bool:
        """Take bytes if there is room. A block that is larger than the whole budget has room when nothing is held."""
        if self.used_bytes and self.used_bytes + size_bytes > self._limit_bytes:
            return False
        self.used_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return True

    async def take(self, size_bytes: int) -> None:
        """Wait until there is room, and take bytes."""
        while not self.try_take(size_bytes):
            for holder in [each for each in self._holders if each.is_idle]:
                holder.drop()
            if self.try_take(size_bytes):
                return
            self._released.clear()
            await self._released.wait()

    def release(self, size_bytes: int) -> None:
        """Give bytes back."""
        self.used_bytes -= size_bytes
        self._released.set()
