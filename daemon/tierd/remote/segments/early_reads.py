"""EarlyReads: ranges asked for before it is certain that they are the right ones, which saves a round trip."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Self

from tierd.model import ByteRange
from tierd.tasks import drop_task, wait_all

ReadRange = Callable[[str, ByteRange], Awaitable[bytes]]


class EarlyReads:
    """Reads of one object. Leaving the context ends the reads whose bytes were not used."""

    def __init__(self, read_range: ReadRange, key: str, ranges: Iterable[ByteRange]) -> None:
        """Prepare to ask for ``ranges`` when the context is entered; other ranges are asked for when they are read."""
        self._read_range = read_range
        self._key = key
        self._ranges = tuple(ranges)
        self._under_way: dict[ByteRange, asyncio.Future[bytes]] = {}

    async def __aenter__(self) -> Self:
        """Ask for the guessed ranges."""
        for guessed in self._ranges:
            self._under_way[guessed] = asyncio.ensure_future(self._read_range(self._key, guessed))
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the reads whose bytes were not used, whose failures are none. A cancellation is raised then."""
        for read in self._under_way.values():
            drop_task(read)
        await wait_all(self._under_way.values())

    async def read(self, byte_range: ByteRange) -> bytes:
        """Return the bytes of ``byte_range``, which may be under way."""
        early = self._under_way.pop(byte_range, None)
        return await (self._read_range(self._key, byte_range) if early is None else early)
