"""RemoteBlocks: the batches of one remote segment from a position on, in blocks fetched ahead (changelog-restore 3.4).

::

    ├─ given ─┼─ tail ─┼─ block ─┼─ block ─┼─ not asked for ─┤
              ╰ begin of a batch ╰─ under way, in order
                that the next block ends

All readers of a source share the bytes that they may hold (3.7).
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tierd.errors import RemoteIntegrityError
from tierd.log import RecordBatch, iter_batches
from tierd.model import ByteRange, RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager
from tierd.tasks import drop_task

DEFAULT_BUDGET_BYTES: Final = 64 << 20


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
        self._holders: set[RemoteBlocks] = set()
        self._released = asyncio.Event()

    def join(self, holder: "RemoteBlocks") -> None:
        """Add a reader, which may be told to drop its blocks."""
        self._holders.add(holder)

    def leave(self, holder: "RemoteBlocks") -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLimits:
    """Sizes of requests to the tier.

    Attributes:
        block_bytes: size of one request.
        ahead_blocks: the most blocks that one partition has under way.
    """

    block_bytes: int = 4 << 20
    ahead_blocks: int = 4


class _Block(NamedTuple):
    size_bytes: int
    fetch: "asyncio.Task[bytes]"


class _ParsedBlock(NamedTuple):
    batches: list[RecordBatch]
    tail: bytes


class RemoteBlocks:
    """Forward reader of one segment, which owns the fetches that it begins until ``drop`` hands them over.

    Attributes:
        metadata: of the segment.
        is_idle: no caller waits for the reader.
        is_dropped: ``drop`` was called.
    """

    def __init__(
        self,
        storage: RemoteStorageManager,
        metadata: RemoteLogSegmentMetadata,
        *,
        position: int,
        limits: BlockLimits,
        budget: BlockBudget,
        dropped: "set[asyncio.Task[bytes]]",
    ) -> None:
        """Begin at byte ``position``, where a batch begins.

        ``dropped`` gets the fetches that are cancelled, and loses each when it has ended; its owner waits for the last.
        """
        self.metadata = metadata
        self.is_idle = True
        self.is_dropped = False
        self._storage = storage
        self._limits = limits
        self._budget = budget
        self._dropped = dropped
        self._position = position  # of the first byte of the tail
        self._tail = b""
        self._asked = position  # exclusive end of what was asked for
        self._ahead: deque[_Block] = deque()  # invariant: consecutive, up to _asked
        self._parsed: deque[RecordBatch] = deque()
        self._held_bytes = 0  # of the block that _parsed is of
        budget.join(self)

    @property
    def blocks_ahead(self) -> int:
        """Return the number of blocks under way."""
        return len(self._ahead)

    @property
    def is_asked_for(self) -> bool:
        """Return True if every byte was asked for."""
        return self._asked >= self.metadata.size_bytes

    def fill(self, at_most: int) -> None:
        """Ask for blocks while there is room in the budget, until ``at_most`` are under way."""
        while len(self._ahead) < at_most and not self.is_asked_for:
            size_bytes = self._next_size()
            if not self._budget.try_take(size_bytes):
                return
            self._ask(size_bytes)

    async def next_batches(self, max_bytes: int) -> Sequence[RecordBatch]:
        """Return the next batches, about ``max_bytes`` of them, and at least one; none at the end of the segment.

        Raises:
            RemoteStorageError: a fetch failed; the reader is dropped.
            CorruptRecordError: a batch is damaged; the reader is dropped.
        """
        self.is_idle = False
        try:
            while not self._parsed and self._position + len(self._tail) < self.metadata.size_bytes:
                await self._parse_next()
            self._require_no_torn_end()
        except BaseException:
            self.drop()
            raise
        finally:
            self.is_idle = True
        return self._given(max_bytes)

    def drop(self) -> None:
        """Cancel the fetches that are under way, and release every byte. The reader cannot be read any more."""
        self.is_dropped = True
        self._budget.leave(self)
        self._parsed.clear()
        self._hold(0)
        while self._ahead:
            block = self._ahead.popleft()
            self._dropped.add(block.fetch)
            block.fetch.add_done_callback(self._dropped.discard)
            drop_task(block.fetch)
            self._budget.release(block.size_bytes)

    def _given(self, max_bytes: int) -> list[RecordBatch]:
        given: list[RecordBatch] = []
        size_bytes = 0
        while self._parsed and (not given or size_bytes + self._parsed[0].size_bytes <= max_bytes):
            given.append(self._parsed.popleft())
            size_bytes += given[-1].size_bytes
        if not self._parsed:
            self._hold(0)
        return given

    def _require_no_torn_end(self) -> None:
        if self._tail and not self._parsed:
            raise RemoteIntegrityError(
                f"{self.metadata.segment}: {len(self._tail)} bytes at position {self._position} are no whole batch",
                remedy=f"run tierd verify --deep {self.metadata.segment.topic_id_partition}",
            )

    async def _parse_next(self) -> None:
        if not self._ahead:
            size_bytes = self._next_size()
            await self._budget.take(size_bytes)
            self._ask(size_bytes)
        self.fill(self._limits.ahead_blocks)
        # A cancelled caller leaves the fetch in the queue until ``drop``.
        data = await asyncio.shield(self._ahead[0].fetch)
        block = self._ahead.popleft()
        self._hold(block.size_bytes, is_taken=True)
        if len(data) != block.size_bytes:
            raise RemoteIntegrityError(
                f"{self.metadata.segment}: {len(data)} of {block.size_bytes} bytes at position "
                f"{self._position + len(self._tail)}",
                remedy=f"run tierd verify {self.metadata.segment.topic_id_partition}",
            )
        # Parsing a block takes as long as other tasks should not wait.
        parsed = await asyncio.to_thread(_parse, self._tail + data, str(self.metadata.segment), self._position)
        self._position += len(self._tail) + len(data) - len(parsed.tail)
        self._tail = parsed.tail
        self._parsed.extend(parsed.batches)
        if not parsed.batches:
            self._hold(0)

    def _next_size(self) -> int:
        """Return the size of the next block: blocks end at multiples of their size, as stored chunks do."""
        block_bytes = self._limits.block_bytes
        end = (self._asked // block_bytes + 1) * block_bytes
        return min(end, self.metadata.size_bytes) - self._asked

    def _ask(self, size_bytes: int) -> None:
        """Begin to fetch the next block, whose bytes were taken from the budget."""
        start = self._asked
        fetch = asyncio.ensure_future(
            self._storage.fetch_log_segment(self.metadata, ByteRange(start, start + size_bytes - 1))
        )
        fetch.set_name(f"fetch {self.metadata.segment} at {start}")
        self._ahead.append(_Block(size_bytes, fetch))
        self._asked = start + size_bytes

    def _hold(self, size_bytes: int, *, is_taken: bool = False) -> None:
        """Hold the bytes of one block instead of those held before; ``is_taken`` if the budget counts them already."""
        assert is_taken or not size_bytes, "bytes are taken from the budget before a block is asked for"
        if self._held_bytes:
            self._budget.release(self._held_bytes)
        self._held_bytes = size_bytes


def _parse(data: bytes, name: str, position: int) -> _ParsedBlock:
    """Check the batches that ``data`` begins with, without a copy. Blocking."""
    batches = list(iter_batches(data, name=name, position=position))
    used = batches[-1].position + batches[-1].size_bytes - position if batches else 0
    return _ParsedBlock(batches, data[used:])
