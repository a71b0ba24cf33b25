"""FetchTask: a partition read by offset, local and remote as one log (remote-tiering 14)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from tierd.log import AbortedTransaction, Record, RecordBatch
from tierd.remote import RemoteStorageManager
from tierd.tiering.reading.committed import committed_batches, data_batches
from tierd.tiering.reading.read_session import ReadSession, ReadSources
from tierd.tiering.reading.remote_indexes import RemoteIndexes
from tierd.tiering.reading.remote_reader import SMALLEST_WINDOW_BYTES
from tierd.tiering.reading.tiered_log import Isolation, Tier, TieredLog
from tierd.tiering.recorder import TieringRecorder

_PIECE_BYTES = 1 << 20  # decoded at once: bounds the records in memory


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Raw batches from one segment, as Kafka's fetch gives them.

    Attributes:
        base_offset: of the first batch; may lie below the offset that was asked for. None when there are no bytes.
        position: byte position of the first batch in its segment; None for local reads.
        data: whole batches.
        next_offset: where to go on.
        aborted: what a reader of committed records must leave out, empty for others.
    """

    tier: Tier
    base_offset: int | None
    position: int | None
    data: bytes
    next_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()


class FetchTask:
    """Reads one partition. Any number of reads may run at once; they share what they learned of indexes."""

    def __init__(
        self,
        snapshot: Callable[[], Awaitable[TieredLog]],
        *,
        remote: RemoteStorageManager,
        recorder: TieringRecorder,
        prefetch_bytes: int,
    ) -> None:
        """Prepare to read.

        Args:
            snapshot: looks at both tiers anew; called at the start of a read and when the ground has moved.
            remote: where remote bytes are.
            recorder: what is told of remote reads.
            prefetch_bytes: how much a sequential reader asks for at once, and has under way ahead of itself.
        """
        self._sources = ReadSources(snapshot, remote, RemoteIndexes(remote), recorder)
        self._prefetch_bytes = prefetch_bytes

    async def read(
        self, offset: int, *, max_bytes: int, isolation: Isolation, at_least_one: bool = True
    ) -> FetchResult:
        """Return batches from the one that holds ``offset`` or follows it; empty at the end.

        Args:
            offset: first offset wanted.
            max_bytes: bound on the bytes; the first batch may exceed it when ``at_least_one``.
            isolation: committed reads end at the last stable offset and name aborted transactions.
            at_least_one: answer with the first batch however large it is.

        Raises:
            OffsetOutOfRangeError: below the log start, above the end, or in neither tier.
            RemoteResourceNotFoundError: metadata says the segment is there, the store says it is not.
            RemoteStorageError: the store did not answer.
        """
        session = ReadSession(
            self._sources, isolation, window_bytes=max_bytes + SMALLEST_WINDOW_BYTES, read_ahead=False
        )
        try:
            await session.begin(offset)
            piece = await session.next_piece(offset, max_bytes=max_bytes)
            kept = _within(piece.batches, max_bytes, at_least_one=at_least_one) if piece else []
            if not kept or piece is None:
                return FetchResult(Tier.REMOTE if piece is None else piece.tier, None, None, b"", offset)
            upper = kept[-1].last_offset + 1
            aborted = await session.aborted(kept[0].base_offset, upper)
        finally:
            await session.close()
        return FetchResult(
            tier=piece.tier,
            base_offset=kept[0].base_offset,
            position=kept[0].position if piece.tier is Tier.REMOTE else None,
            data=b"".join(batch.data for batch in kept),
            next_offset=upper,
            aborted=aborted,
        )

    async def records(
        self, from_offset: int | None, to_offset: int | None, isolation: Isolation
    ) -> AsyncGenerator[Record, None]:
        """Yield records in order of offset, as a consumer sees them: no markers, nothing beyond the end.

        Close the generator (``contextlib.aclosing``) when leaving it early, so that what is read ahead ends too.

        Args:
            from_offset: first offset wanted; None means the log start.
            to_offset: exclusive end; None means the end of the log at this moment.
            isolation: with committed reads, nothing of aborted or open transactions.

        Raises:
            OffsetOutOfRangeError: as ``read``; also in the middle, where offsets are in neither tier.
            CorruptRecordError: a local batch is damaged, or records cannot be decoded.
            RemoteIntegrityError: remote bytes are damaged.
        """
        session = ReadSession(self._sources, isolation, window_bytes=self._prefetch_bytes, read_ahead=True)
        try:
            offset = await session.begin(from_offset)
            end = session.end_offset if to_offset is None else min(to_offset, session.end_offset)
            while offset < end:
                piece = await session.next_piece(offset, max_bytes=_PIECE_BYTES)
                if piece is None:
                    return
                for group in _groups(piece.batches):
                    aborted = await session.aborted(group[0].base_offset, group[-1].last_offset + 1)
                    for record in await asyncio.to_thread(_decode, group, aborted, isolation):
                        if offset <= record.offset < end:
                            yield record
                offset = piece.next_offset
        finally:
            await session.close()


def _within(batches: Sequence[RecordBatch], max_bytes: int, *, at_least_one: bool) -> list[RecordBatch]:
    kept: list[RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.size_bytes
        if size > max_bytes and not (at_least_one and not kept):
            break
        kept.append(batch)
    return kept


def _groups(batches: Sequence[RecordBatch]) -> list[list[RecordBatch]]:
    """Batches in runs of about ``_PIECE_BYTES``, so that few records are in memory at once."""
    groups: list[list[RecordBatch]] = [[]]
    size = 0
    for batch in batches:
        if groups[-1] and size + batch.size_bytes > _PIECE_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(batch)
        size += batch.size_bytes
    return groups if groups[-1] else []


def _decode(
    batches: Sequence[RecordBatch], aborted: Sequence[AbortedTransaction], isolation: Isolation
) -> list[Record]:
    wanted = committed_batches(batches, aborted) if isolation is Isolation.READ_COMMITTED else data_batches(batches)
    return [record for batch in wanted for record in batch.records()]
