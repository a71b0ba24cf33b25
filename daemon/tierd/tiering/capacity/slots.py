"""Slots: a semaphore whose size may change while it is in use."""

import asyncio
from typing import Literal


class Slots(asyncio.Semaphore):
    """Limit of tasks at the same work; waiting tasks are served in order."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._size = size
        self._taken = 0
        self._surplus = 0  # slots in use that a smaller size has no room for; they go when they are released

    @property
    def size(self) -> int:
        """Return the number of slots, once the surplus of a larger size was released."""
        return self._size

    def resize(self, size: int) -> None:
        """Have ``size`` slots from now on; a task keeps the slot that it has.

        Raises:
            ValueError: ``size`` is below 1.
        """
        if size < 1:
            raise ValueError(f"{size} slots admit no task")
        growth, self._size = size - self._size, size
        if growth < 0:
            self._surplus -= growth
        for _ in range(growth):
            self._give()

    @property
    def idle_ratio(self) -> float:
        """Return the free part of the slots, from 0 to 1."""
        return max(0.0, 1 - self._taken / self._size)

    async def acquire(self) -> Literal[True]:
        """Wait for a slot and take it."""
        await super().acquire()
        self._taken += 1
        return True

    def release(self) -> None:
        """Release a slot."""
        self._taken -= 1
        self._give()

    def _give(self) -> None:
        if self._surplus:
            self._surplus -= 1
        else:
            super().release()
