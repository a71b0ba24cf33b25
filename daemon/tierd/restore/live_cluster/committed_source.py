"""CommittedSource: the committed records of one partition's plan, as batches for a leader of another cluster."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

import structlog

from tierd.errors import CorruptIndexError, CorruptRecordError, RemoteIndexAbsentError, RemoteIntegrityError
from tierd.log import (
    AbortedTransaction,
    BatchHeader,
    OffsetIndex,
    OpenTransactions,
    ProducerStateEntry,
    RecordBatch,
    TransactionIndex,
    parse_header,
    parse_producer_snapshot,
    stable_end_offset,
    take_lacking,
    with_data,
)
from tierd.model import IndexType, OffsetRange, RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager
from tierd.restore.live_cluster.batch_transform import AbortedRanges, BatchTransform, OutgoingBatch
from tierd.restore.plan.partition_plan import SegmentPart

log = structlog.get_logger()


class _BatchCutter:
    """Cutter of a segment's pieces into batches, which are checked. One batch may lie across pieces."""

    def __init__(self, name: str, position: int) -> None:
        """Begin at a batch's position."""
        self._name = name
        self._position = position
        self._cut = bytearray()  # what the pieces so far have of a batch that they cut
        self._next_offset = 0

    def cut(self, piece: bytes | memoryview) -> list[RecordBatch]:
        """Return the batches that end in ``piece``; they refer to its bytes. Computes.

        Raises:
            CorruptRecordError: a batch is damaged, or not in its place.
        """
        found: list[RecordBatch] = []
        rest = memoryview(piece)
        while self._cut and rest:
            rest = take_lacking(self._cut, rest)
            header = parse_header(memoryview(self._cut), 0, name=self._name, position=self._position)
            if header is not None and header.size_bytes == len(self._cut):
                found.append(self._checked(header, memoryview(bytes(self._cut))))
                self._cut = bytearray()
        at = 0
        while (header := parse_header(rest, at, name=self._name, position=self._position)) is not None:
            if at + header.size_bytes > len(rest):
                break
            found.append(self._checked(header, rest[at : at + header.size_bytes]))
            at += header.size_bytes
        self._cut += rest[at:]
        return found

    def require_whole(self) -> None:
        """Raise unless the pieces end with a whole batch.

        Raises:
            CorruptRecordError: they do not.
        """
        if self._cut:
            raise CorruptRecordError(self._name, self._position, f"an incomplete batch, {len(self._cut)} bytes")

    def _checked(self, header: BatchHeader, data: memoryview) -> RecordBatch:
        batch = with_data(header, data).checked()
        first = batch.base_offset if batch.magic >= 2 else batch.last_offset
        if first < self._next_offset:
            raise CorruptRecordError(self._name, self._position, f"offset {first} follows {self._next_offset - 1}")
        self._next_offset = batch.last_offset + 1
        self._position += batch.size_bytes
        return batch


def _transformed(
    transform: BatchTransform, batches: Sequence[RecordBatch], aborted: AbortedRanges, wanted: OffsetRange
) -> list[OutgoingBatch]:
    return [outgoing for batch in batches for outgoing in transform.feed(batch, aborted, wanted)]


class CommittedSource:
    """Reader of the parts of one plan, in order."""

    def __init__(self, remote: RemoteStorageManager, parts: Sequence[SegmentPart]) -> None:
        """Keep the parts, ascending and without overlap."""
        self._remote = remote
        self._parts = parts
        self._indexes: dict[int, TransactionIndex] = {}  # by the number of the part

    @property
    def start_offset(self) -> int | None:
        """Return the first offset of the parts; None without one."""
        return self._parts[0].start_offset if self._parts else None

    def changed_ms(self, start_offset: int, end_offset: int) -> int:
        """Return the wall clock at which the newest part with offsets of a range came into the tier; -1 without one."""
        times = [
            part.metadata.event_timestamp_ms
            for part in self._parts
            if part.start_offset < end_offset and part.end_offset > start_offset
        ]
        return max(times, default=-1)

    async def stable_end_offset(self, end_offset: int) -> int:
        """Return the exclusive end of the offsets below ``end_offset`` whose transactions are decided by the parts.

        The marker of a transaction may lie behind the parts. Its records are left out, and all that follow its first.

        Raises:
            RemoteStorageError: the store does not give what is needed.
            CorruptRecordError: a batch on the way is damaged.
        """
        numbers = [n for n, part in enumerate(self._parts) if part.start_offset < end_offset]
        if not numbers:
            return end_offset
        last = self._parts[numbers[-1]]
        if min(last.end_offset, end_offset) > last.metadata.end_offset:
            snapshot = await self._snapshot(last.metadata)
            if snapshot is not None:
                return stable_end_offset(snapshot, end_offset=end_offset)
        state = OpenTransactions()
        first = await self._last_snapshot(numbers[:-1], state)
        for number in numbers[first:]:
            part = self._parts[number]
            end = min(part.end_offset, end_offset)  # behind that the segment is of another branch of the log
            async with contextlib.aclosing(self._batches(number, part.start_offset)) as pieces:
                async for batches in pieces:
                    for batch in batches:
                        if batch.base_offset >= end:
                            break
                        if batch.is_transactional:
                            state.apply(batch, batch.control_type())
        unstable = state.first_unstable_offset
        return end_offset if unstable is None else min(unstable, end_offset)

    async def batches(
        self,
        transform: BatchTransform,
        *,
        start_offset: int,
        end_offset: int,
    ) -> AsyncGenerator[list[OutgoingBatch], None]:
        """Yield the batches to send of ``[start_offset, end_offset)``, a list for each piece of the store.

        The caller closes the generator when it stops early.

        Raises:
            RemoteStorageError: the store fails, or a segment is gone.
            CorruptRecordError: a batch is damaged.
        """
        for number, part in enumerate(self._parts):
            first, end = max(part.start_offset, start_offset), min(part.end_offset, end_offset)
            if first >= end:
                continue
            aborted = await self._aborted(number, end)
            async with contextlib.aclosing(self._batches(number, first)) as pieces:
                async for batches in pieces:
                    transformed = await asyncio.to_thread(
                        _transformed, transform, batches, aborted, OffsetRange(first, end - 1)
                    )
                    if transformed:
                        yield transformed
                    if batches and batches[-1].last_offset >= end:
                        break
            rest = await asyncio.to_thread(list, transform.flush())
            if rest:
                yield rest
            self._indexes.pop(number, None)

    async def _batches(self, number: int, first_offset: int) -> AsyncGenerator[list[RecordBatch], None]:
        """Yield the checked batches of a part from that of ``first_offset`` on, a list for each piece of the store."""
        metadata = self._parts[number].metadata
        position = await self._position(metadata, first_offset)
        cutter = _BatchCutter(str(metadata.segment), position)
        async with contextlib.aclosing(self._remote.stream_log_segment(metadata, position)) as pieces:
            async for piece in pieces:
                yield await asyncio.to_thread(cutter.cut, piece)
        cutter.require_whole()

    async def _position(self, metadata: RemoteLogSegmentMetadata, offset: int) -> int:
        """Return a position at or before the batch of ``offset``; 0 where the index cannot tell."""
        if offset <= metadata.start_offset:
            return 0
        try:
            data = await self._remote.fetch_index(metadata, IndexType.OFFSET)
            index = OffsetIndex.from_bytes(data, metadata.start_offset, str(metadata.segment))
        except (RemoteIndexAbsentError, RemoteIntegrityError, CorruptIndexError) as error:
            log.warning("offset_index_unusable", segment=str(metadata.segment), problem=str(error))
            return 0
        return index.lookup(offset).position

    async def _snapshot(self, metadata: RemoteLogSegmentMetadata) -> Sequence[ProducerStateEntry] | None:
        """Return the producers as they were at the end of the segment; None where the tier does not have them."""
        try:
            data = await self._remote.fetch_index(metadata, IndexType.PRODUCER_SNAPSHOT)
            return tuple(parse_producer_snapshot(data, str(metadata.segment)))
        except (RemoteIndexAbsentError, RemoteIntegrityError, CorruptIndexError) as error:
            log.warning("producer_snapshot_unusable", segment=str(metadata.segment), problem=str(error))
            return None

    async def _last_snapshot(self, numbers: Sequence[int], state: OpenTransactions) -> int:
        """Fill ``state`` from the newest usable snapshot; return how many of the parts it covers."""
        for number in reversed(numbers):
            part = self._parts[number]
            is_cut = part.end_offset <= part.metadata.end_offset  # its snapshot is that of another branch of the log
            snapshot = None if is_cut else await self._snapshot(part.metadata)
            if snapshot is not None:
                state.first_offsets.update(OpenTransactions.from_snapshot(snapshot).first_offsets)
                return number + 1
        return 0

    async def _aborted(self, number: int, upper_offset: int) -> AbortedRanges:
        """Return the aborted transactions with records in a part; their markers may be in later parts."""
        found: list[AbortedTransaction] = []
        from_offset = self._parts[number].start_offset
        for later in range(number, len(self._parts)):
            index = await self._transaction_index(later)
            transactions, is_complete = index.collect(
                from_offset, upper_offset, end_offset=self._parts[later].end_offset
            )
            found += transactions
            if is_complete:
                break
        return AbortedRanges(found)

    async def _transaction_index(self, number: int) -> TransactionIndex:
        if number not in self._indexes:
            self._indexes[number] = await self._fetch_transaction_index(self._parts[number].metadata)
        return self._indexes[number]

    async def _fetch_transaction_index(self, metadata: RemoteLogSegmentMetadata) -> TransactionIndex:
        if metadata.txn_index_empty:
            return TransactionIndex()
        try:
            data = await self._remote.fetch_index(metadata, IndexType.TRANSACTION)
        except RemoteIndexAbsentError:
            return TransactionIndex()
        return TransactionIndex.from_bytes(data, metadata.start_offset, str(metadata.segment))
