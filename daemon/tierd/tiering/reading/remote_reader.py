"""RemoteSegmentReader: the batches of one remote segment from a position on, in ranged reads, several under way."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tierd.errors import RemoteIntegrityError
from tierd.log import CheckedBatches, walk_checked
from tierd.model import ByteRange, RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager
from tierd.tasks import drop_task, wait_all

SMALLEST_WINDOW_BYTES = 64 << 10  # below it a request costs more than its bytes
_BATCH_HEADER_BYTES = 12  # base offset and length: enough to know the size of the whole batch


class RemoteSegmentReader:
    """Forward reader, which owns the fetches that ``begin`` starts; ``close`` ends them. One caller at a time.

    Attributes:
        metadata: the segment of these batches.
    """

    def __init__(
        self,
        remote: RemoteStorageManager,
        metadata: RemoteLogSegmentMetadata,
        *,
        position: int,
        first_bytes: int,
        piece_bytes: int,
        on_wait: Callable[[], None] = lambda: None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Begin at byte ``position``, where a batch begins.

        Args:
            remote: the store of the bytes.
            metadata: the segment to read.
            position: the position of the first batch.
            first_bytes: the size of the first range, which a reader waits for.
            piece_bytes: the size of every later range; ranges end at its multiples, as stored chunks do.
            on_wait: is called whenever bytes are wanted that are not there yet.
            on_bytes: is called with the number of bytes whenever some are used.
        """
        self._remote = remote
        self.metadata: Final = metadata
        self._first_bytes = max(first_bytes, SMALLEST_WINDOW_BYTES)
        self._piece_bytes = max(piece_bytes, SMALLEST_WINDOW_BYTES)
        self._first_position = position
        self._position = position  # of the first byte of the carried tail
        self._tail = b""
        self._next_offset = metadata.start_offset
        self._begun = position  # exclusive end of what was asked for
        self._under_way: deque[asyncio.Task[bytes]] = deque()  # invariant: consecutive ranges, up to _begun
        self._fetched_bytes = 0
        self._on_wait = on_wait
        self._on_bytes = on_bytes

    @property
    def next_offset(self) -> int:
        """Return the offset behind the last batch that was given out; at first the start of the segment."""
        return self._next_offset

    @property
    def fetched_bytes(self) -> int:
        """Return the bytes that came from the store and were used so far."""
        return self._fetched_bytes

    @property
    def ahead_bytes(self) -> int:
        """Return the bytes that were asked for and not taken yet."""
        return self._begun - self._position - len(self._tail)

    @property
    def is_at_end(self) -> bool:
        """Return True if every batch was given out."""
        return self._position >= self.metadata.size_bytes

    def begin(self) -> bool:
        """Ask for the next range; False when everything was asked for already."""
        start = self._begun
        if start == self._first_position:
            end = start + self._first_bytes
        else:
            end = (start // self._piece_bytes + 1) * self._piece_bytes
        return self._begin(start, end)

    async def next_batches(self) -> CheckedBatches | None:
        """Return the next whole batches, at least one; None at the end of the segment.

        Their CRC is checked, and their offsets, which no CRC covers, ascend within those of the segment.

        Raises:
            RemoteResourceNotFoundError: the object is not there.
            RemoteIntegrityError: the store returned fewer or more bytes than were asked for, or a batch is damaged.
        """
        while self._position + len(self._tail) < self.metadata.size_bytes:
            data = await self._fetch()
            # Parsing 4 MiB takes as long as other tasks should not wait.
            parsed = await asyncio.to_thread(self._parsed, data)
            self._position += len(self._tail) + len(data) - len(parsed.tail)
            self._tail = parsed.tail
            if parsed.batches:
                self._next_offset = parsed.batches.last_offsets[-1] + 1
                return parsed.batches
            if not self._under_way and (size := _size_of_first(self._tail)) is not None:
                self._begin(self._begun, self._begun + max(size - len(self._tail), SMALLEST_WINDOW_BYTES))
        if self._tail:
            raise RemoteIntegrityError(
                f"{self.metadata.segment}: {len(self._tail)} bytes at its end are no whole batch",
                remedy=f"run tierd verify --deep {self.metadata.segment.topic_id_partition}",
            )
        return None

    async def close(self) -> None:
        """End the fetches that are under way, if any; reading may go on and asks for them again.

        A cancellation is raised when they have ended.
        """
        await wait_all(self.abandon())

    def abandon(self) -> "list[asyncio.Task[bytes]]":
        """Cancel the fetches that are under way, as ``close`` does, and return them: the caller waits for their end."""
        ending = list(self._under_way)
        self._under_way.clear()
        self._begun = self._position + len(self._tail)
        for fetch in ending:
            drop_task(fetch)
        return ending

    async def drop_failed(self) -> None:
        """Ask again for what is under way, if some of it has failed already."""
        if any(task.done() and (task.cancelled() or task.exception()) for task in self._under_way):
            await self.close()

    @property
    def _name(self) -> str:
        return str(self.metadata.segment)

    async def _fetch(self) -> bytes:
        if not self._under_way:
            self.begin()
        oldest = self._under_way[0]
        if not oldest.done():
            self._on_wait()
        data = await self._result(oldest)
        self._under_way.popleft()
        self._fetched_bytes += len(data)
        self._on_bytes(len(data))
        return data

    async def _result(self, fetch: "asyncio.Task[bytes]") -> bytes:
        """Return the result of ``fetch``. A cancelled caller leaves it under way; a failed fetch leaves nothing."""
        try:
            return await asyncio.shield(fetch)
        except Exception:
            await self.close()
            raise

    def _begin(self, start: int, end: int) -> bool:
        end = min(end, self.metadata.size_bytes)
        if start >= end:
            return False
        self._under_way.append(asyncio.ensure_future(self._range(start, end)))
        self._begun = end
        return True

    async def _range(self, start: int, end: int) -> bytes:
        data = await self._remote.fetch_log_segment(self.metadata, ByteRange(start, end - 1))
        if len(data) == end - start:
            return data
        found = f"ends at byte {start + len(data)}" if len(data) < end - start else f"has {len(data)} bytes at {start}"
        raise RemoteIntegrityError(
            f"{self._name}: the object {found}, its metadata says {self.metadata.size_bytes}",
            remedy=f"run tierd verify {self.metadata.segment.topic_id_partition}",
        )

    def _parsed(self, data: bytes) -> "_Parsed":
        parsed = _parse(self._tail, data, self._name, self._position)
        found, next_offset, end_offset = parsed.batches, self._next_offset, self.metadata.end_offset
        for index, (base, last) in enumerate(zip(found.base_offsets, found.last_offsets, strict=True)):
            if base < next_offset or last > end_offset:
                raise RemoteIntegrityError(
                    f"{self._name}: the batch at byte {found.positions[index]} has offset {base}, which is not in "
                    f"its place between {next_offset} and {end_offset}",
                    remedy=f"run tierd verify --deep {self.metadata.segment.topic_id_partition}",
                )
            next_offset = last + 1
        return parsed


class _Parsed(NamedTuple):
    batches: CheckedBatches
    tail: bytes  # the beginning of a batch that goes on in the next range


def _parse(tail: bytes, data: bytes, name: str, position: int) -> _Parsed:
    """Check the batches of ``tail`` and ``data``, copying none but the one that lies across. Blocking."""
    if not tail:
        return _walked(data, 0, name, position)
    size = _size_of_first((tail + data[:_BATCH_HEADER_BYTES])[:_BATCH_HEADER_BYTES])
    taken = len(data) if size is None or size <= len(tail) else size - len(tail)  # nonsense is refused below
    across = _walked(tail + data[:taken], 0, name, position)
    if not across.batches:
        return across
    rest = _walked(data, taken, name, position + len(tail) + taken)
    return _Parsed(across.batches.followed_by(rest.batches), rest.tail)


def _walked(data: bytes, start: int, name: str, position: int) -> _Parsed:
    view = memoryview(data)[start:]
    batches = walk_checked(view, name=name, position=position)
    return _Parsed(batches, bytes(view[batches.size_bytes :]))


def _size_of_first(data: bytes) -> int | None:
    """Return the size that the first batch in ``data`` gives for itself; None when that is not there yet."""
    if len(data) < _BATCH_HEADER_BYTES:
        return None
    return _BATCH_HEADER_BYTES + int.from_bytes(data[8:_BATCH_HEADER_BYTES], "big", signed=True)
