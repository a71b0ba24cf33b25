"""EarlyReads: ranges asked for before it is certain that they are the right ones, so that one round trip is saved."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Self

from tierd.model import ByteRange

ReadRange = Callable[[str, ByteRange], Awaitable[bytes]]
DropRange = Callable[[str, ByteRange], Awaitable[None]]


class EarlyReads:
    """Reads one object. A context: what was asked for and not wanted in the end is over when it is left."""

    def __init__(self, read_range: ReadRange, key: str, ranges: Iterable[ByteRange]) -> None:
        """Ask for ``ranges`` of the object now, when the context is entered; for all others when they are read."""
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
        """End what nobody has read."""
        ending = list(self._under_way.values())
        for read in ending:
            read.cancel()
        if ending:
            await asyncio.wait(ending)
        for read in ending:
            if not read.cancelled():
                read.exception()  # of bytes that nobody wanted

    async def read(self, byte_range: ByteRange) -> bytes:
        """Return the bytes of ``byte_range``, which may be under way."""
        early = self._under_way.pop(byte_range, None)
        return await (self._read_range(self._key, byte_range) if early is None else early)
