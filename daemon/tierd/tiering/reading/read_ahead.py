"""ReadAhead: the ranges that a reader has under way, through the segments that follow one another."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tierd.model import RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager
from tierd.tasks import wait_all
from tierd.tiering.reading.remote_reader import RemoteSegmentReader

_EAGER_RANGES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAheadLimits:
    """Sizes of single requests and of the read-ahead.

    Attributes:
        first_bytes: the size of the range that the reader waits for when it begins.
        piece_bytes: the size of every other range: that of stored chunks, or a multiple of it.
        ahead_bytes: the most bytes that are asked for and not used yet; 0 asks for no byte before it is wanted.
        is_eager: ask for some ranges at once; otherwise nothing is ahead of a reader before it goes on. Then both have
            twice as much each time that they had to wait for bytes: so much hides the latency, and no more is held.
    """

    first_bytes: int
    piece_bytes: int
    ahead_bytes: int = 0
    is_eager: bool = False


class ReadAheadWindow(NamedTuple):
    """Part of one remote segment that is of our branch, from an offset on."""

    metadata: RemoteLogSegmentMetadata
    end_offset: int  # exclusive


Following = Callable[[int], ReadAheadWindow | None]
"""Lookup of the segment to read at an offset, from its first byte; None where reading ahead has to stop."""


class ReadAhead:
    """Open readers of one session: the current one, and those of the segments behind it. The owner has to ``close``."""

    def __init__(
        self,
        remote: RemoteStorageManager,
        limits: ReadAheadLimits,
        *,
        on_open: Callable[[], None],
        on_bytes: Callable[[int], None],
    ) -> None:
        """Read from ``remote``; ``on_open`` is called for every reader, ``on_bytes`` with the bytes that are used."""
        self._remote = remote
        self._limits = limits
        self._on_open = on_open
        self._on_bytes = on_bytes
        self._open: deque[tuple[RemoteSegmentReader, ReadAheadWindow]] = deque()
        self._allowed_bytes = min(_EAGER_RANGES * limits.piece_bytes, limits.ahead_bytes) if limits.is_eager else 0
        self._has_waited = False

    async def current(
        self, offset: int, wanted: RemoteLogSegmentMetadata, *, wanted_from: int
    ) -> RemoteSegmentReader | None:
        """Return the open reader in ``wanted`` for ``offset``, None without one; the readers before it are closed.

        ``wanted_from`` is the first offset that is wanted from the reader itself: one that has given out a batch at or
        behind it, which was not used, is closed as well. Otherwise that batch would be skipped.
        """
        while self._open:
            reader, window = self._open[0]
            is_before = offset < window.end_offset and reader.next_offset <= wanted_from
            if reader.metadata.segment == wanted.segment and is_before:
                return reader
            self._open.popleft()
            await reader.close()
        return None

    def begin(self, window: ReadAheadWindow, position: int) -> RemoteSegmentReader:
        """Open a reader at ``position`` as the current one; ``current`` found none."""
        return self._append(window, position, self._limits.first_bytes)

    def fill(self, following: Following) -> None:
        """Ask for what may be under way, across the ends of segments."""
        while self._open and self._ahead_bytes + self._limits.piece_bytes <= self._allowed_bytes:
            reader, window = self._open[-1]
            if reader.begin():
                continue
            behind = following(window.end_offset)
            if behind is None:
                return
            self._append(behind, 0, self._limits.piece_bytes).begin()

    def went_on(self) -> None:
        """Note that the reader wants the next piece; a reader that had to wait may have more ahead from now on."""
        wanted = max((2 if self._has_waited else 1) * self._allowed_bytes, 2 * self._limits.piece_bytes)
        self._allowed_bytes = min(wanted, self._limits.ahead_bytes)
        self._has_waited = False

    async def drop_failed(self) -> None:
        """Forget requests that failed while no reader waited for them: they are made again."""
        for reader, _ in self._open:
            await reader.drop_failed()

    async def close(self) -> None:
        """End everything that is under way; a cancellation is raised when it has ended."""
        await wait_all(self.abandon())

    def abandon(self) -> "list[asyncio.Task[bytes]]":
        """Cancel everything that is under way, and return it: the caller waits for its end."""
        ending = [fetch for reader, _ in self._open for fetch in reader.abandon()]
        self._open.clear()
        return ending

    @property
    def _ahead_bytes(self) -> int:
        return sum(reader.ahead_bytes for reader, _ in self._open)

    def _append(self, window: ReadAheadWindow, position: int, first_bytes: int) -> RemoteSegmentReader:
        reader = RemoteSegmentReader(
            self._remote,
            window.metadata,
            position=position,
            first_bytes=first_bytes,
            piece_bytes=self._limits.piece_bytes,
            on_wait=self._waited,
            on_bytes=self._on_bytes,
        )
        self._open.append((reader, window))
        self._on_open()
        return reader

    def _waited(self) -> None:
        self._has_waited = True
