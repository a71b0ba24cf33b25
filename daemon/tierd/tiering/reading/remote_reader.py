"""RemoteSegmentReader: the batches of one remote segment from an offset on, in ranged reads, one range ahead."""

import asyncio
from collections.abc import Sequence

from tierd.errors import RemoteIntegrityError
from tierd.log import RecordBatch, iter_batches
from tierd.model import ByteRange, RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager

SMALLEST_WINDOW_BYTES = 64 << 10  # below it a request costs more than its bytes
_BATCH_HEADER_BYTES = 12  # base offset and length: enough to know the size of the whole batch


class RemoteSegmentReader:
    """Reads forward. Owns at most one fetch ahead of its reader; ``close`` ends it. One caller at a time."""

    def __init__(
        self,
        remote: RemoteStorageManager,
        metadata: RemoteLogSegmentMetadata,
        *,
        position: int,
        window_bytes: int,
        read_ahead: bool,
    ) -> None:
        """Begin at byte ``position``, where a batch begins; a read asks for about ``window_bytes``."""
        self._remote = remote
        self._metadata = metadata
        self._window_bytes = max(window_bytes, SMALLEST_WINDOW_BYTES)
        self._read_ahead = read_ahead
        self._position = position  # of the first byte of the carried tail
        self._tail = b""
        self._ahead: asyncio.Task[bytes] | None = None
        self._fetched_bytes = 0

    @property
    def metadata(self) -> RemoteLogSegmentMetadata:
        """Whose batches these are."""
        return self._metadata

    @property
    def fetched_bytes(self) -> int:
        """Bytes that came from the store so far."""
        return self._fetched_bytes

    async def next_batches(self) -> Sequence[RecordBatch]:
        """Return the next whole batches, at least one; none at the end of the segment. Their CRC is checked.

        Raises:
            RemoteResourceNotFoundError: the object is not there.
            RemoteIntegrityError: the object ends before its metadata says, or a batch in it is damaged.
        """
        wanted = self._window_bytes
        while self._position + len(self._tail) < self._metadata.size_bytes:
            data = self._tail + await self._fetch(wanted)
            # Parsing 16 MiB takes as long as other tasks should not wait.
            batches = await asyncio.to_thread(_parse, data, self._name, self._position)
            if batches:
                last = batches[-1]
                used = last.position + last.size_bytes - self._position
                self._tail = data[used:]
                self._position += used
                return batches
            self._tail = data
            wanted = _missing_bytes(data) or self._window_bytes
        if self._tail:
            raise RemoteIntegrityError(
                f"{self._metadata.segment}: {len(self._tail)} bytes at its end are no whole batch",
                remedy=f"run tierd verify --deep {self._metadata.segment.topic_id_partition}",
            )
        return ()

    async def close(self) -> None:
        """End the fetch that is under way, if any."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.wait([ahead])
            if not ahead.cancelled():
                ahead.exception()  # nobody waits for it any more

    @property
    def _name(self) -> str:
        return str(self._metadata.segment)

    async def _fetch(self, wanted: int) -> bytes:
        start = self._position + len(self._tail)
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            ahead = self._begin(start, wanted)
        try:
            data = await asyncio.shield(ahead)
        except asyncio.CancelledError:
            self._ahead = ahead  # ``close`` ends it
            raise
        if not data:
            raise RemoteIntegrityError(
                f"{self._name}: the object ends at byte {start}, its metadata says {self._metadata.size_bytes}",
                remedy=f"run tierd verify {self._metadata.segment.topic_id_partition}",
            )
        self._fetched_bytes += len(data)
        if self._read_ahead and start + len(data) < self._metadata.size_bytes:
            self._ahead = self._begin(start + len(data), self._window_bytes)
        return data

    def _begin(self, start: int, size: int) -> asyncio.Task[bytes]:
        byte_range = ByteRange(start, min(start + size, self._metadata.size_bytes) - 1)
        fetch = self._remote.fetch_log_segment(self._metadata, byte_range)
        return asyncio.ensure_future(fetch)


def _parse(data: bytes, name: str, position: int) -> list[RecordBatch]:
    return list(iter_batches(data, name=name, position=position))


def _missing_bytes(data: bytes) -> int | None:
    """How much more the first, incomplete batch in ``data`` needs."""
    if len(data) < _BATCH_HEADER_BYTES:
        return None
    size = _BATCH_HEADER_BYTES + int.from_bytes(data[8:12], "big")
    return max(size - len(data), SMALLEST_WINDOW_BYTES)
