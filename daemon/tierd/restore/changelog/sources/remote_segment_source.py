"""RemoteSegmentSource: changelogs in the tier, each along one lineage (changelog-restore 3.1, 3.4)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tierd.errors import (
    CorruptIndexError,
    CorruptRecordError,
    RemoteIndexAbsentError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    SegmentChangedError,
)
from tierd.log import AbortedTransaction, OffsetIndex, RecordBatch
from tierd.metadata import OwnBranch, PartitionView, effective_lineage
from tierd.model import IndexType, Lineage, RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition
from tierd.remote import RemoteStorageManager
from tierd.restore.changelog.changelog_errors import CorruptSourceError
from tierd.restore.changelog.sources.partition_changelog import (
    ChangelogBounds,
    ChangelogPiece,
    IsCompacted,
    ObjectGoneError,
    hole,
    require_no_hole,
)
from tierd.restore.changelog.sources.partitioned_source import CommittedPositions, DeleteRetention, PartitionedSource
from tierd.restore.changelog.sources.remote_blocks import BlockBudget, BlockLimits, RemoteBlocks
from tierd.restore.changelog.sources.remote_transactions import AbortedSearchResult, RemoteTransactions
from tierd.tasks import wait_all

_ATTEMPTS: Final = 5  # retention and compactions may change the tier under a few looks in a row

LoadView = Callable[[TopicIdPartition], Awaitable[PartitionView]]
"""Returns a partition's remote segments as the metadata has them now."""

IsRewritten = Callable[[RemoteLogSegmentMetadata], Awaitable[bool]]
"""Tells whether a job of tierd wrote a segment, which may have erased records of any topic."""


async def _is_copy(metadata: RemoteLogSegmentMetadata) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteTier:
    """The tier as sources read it: metadata, bytes, and limits that all partitions of a source share.

    Attributes:
        is_rewritten: asked about a segment of a topic that is not compacted and lacks offsets: they are no hole if a
            job of tierd wrote the segment. By default no segment is of a job.
    """

    load_view: LoadView
    storage: RemoteStorageManager
    is_rewritten: IsRewritten = _is_copy
    limits: BlockLimits = field(default_factory=BlockLimits)
    budget: BlockBudget = field(default_factory=BlockBudget)


class RemoteChangelog:
    """The remote segments of a changelog. One call at a time."""

    def __init__(self, partition: TopicIdPartition, tier: RemoteTier, *, is_compacted: bool) -> None:
        """Read a partition's segments.

        Args:
            partition: with its topic id: segments of another topic of that name are not read.
            tier: where they are.
            is_compacted: holes between batches are normal.
        """
        self._partition = partition
        self._tier = tier
        self._is_compacted = is_compacted
        self._branch: OwnBranch | None = None
        self._transactions = RemoteTransactions(tier.storage)
        self._current: RemoteBlocks | None = None
        self._following: RemoteBlocks | None = None  # of the segment behind the current one, from its first byte
        self._dropped: set[asyncio.Task[bytes]] = set()  # fetches that were cancelled and have not ended yet
        self._stands_at = -1  # the offset that ``_current`` reads on from
        self._rewritten: UUID | None = None  # the last segment known to be of a job

    async def refresh(self) -> ChangelogBounds:
        """Load the metadata again; the newest segments tell the lineage."""
        return await self.refresh_along(Lineage())

    async def refresh_along(self, local: Lineage) -> ChangelogBounds:
        """Load the metadata again, for a log whose local part has the lineage ``local``; empty without one.

        Raises:
            SegmentChangedError: the last segment was gone at every look.
        """
        for _ in range(_ATTEMPTS - 1):
            with suppress(SegmentChangedError):
                return await self._read_bounds(local)
        return await self._read_bounds(local)  # the last attempt reports its own failure

    async def _read_bounds(self, local: Lineage) -> ChangelogBounds:
        view = await self._tier.load_view(self._partition)
        branch = OwnBranch(view, effective_lineage(view, local))
        first = next(branch.readable_ranges(0, branch.end_offset), None)
        log_start = view.log_start_offset or 0
        start = log_start if first is None else max(log_start, first.start_offset)
        end = max(branch.end_offset, start)
        last = branch.last_whole
        with self._changing(view):
            stable = start if last is None else await self._transactions.stable_end(last)
        self._branch = branch
        self._transactions.use(branch)
        return ChangelogBounds(
            earliest_offset=start,
            end_offset=end,
            stable_offset=min(stable, end),
            topic_id=self._partition.topic_id,
            lineage=branch.lineage,
        )

    @property
    def log_start_offset(self) -> int | None:
        """Return the log start of the metadata; None while it was never set, or before a refresh."""
        return None if self._branch is None else self._branch.view.log_start_offset

    async def read(self, offset: int, *, end_offset: int, max_bytes: int) -> ChangelogPiece:
        """Return the batches from ``offset`` on, of one segment.

        Raises:
            ObjectGoneError: of the segment; refresh, and read again.
        """
        branch = await self._loaded()
        with self._changing(branch.view):
            return await self._read(branch, offset, end_offset, max_bytes)

    async def _read(self, branch: OwnBranch, offset: int, end_offset: int, max_bytes: int) -> ChangelogPiece:
        metadata = branch.segment_for(offset)
        end = offset if metadata is None else min(branch.readable_end(metadata, offset), end_offset)
        if metadata is None or end <= offset:
            following = branch.next_answered(offset)
            following = end_offset if following is None else min(following, end_offset)
            if not self._is_compacted:
                raise hole(self._partition.topic_partition, offset, following)
            return ChangelogPiece((), following)
        batches = await self._batches(metadata, offset, end, max_bytes)
        next_offset = batches[-1].last_offset + 1 if batches else end
        if not self._is_compacted and metadata.segment.id != self._rewritten:
            try:
                require_no_hole(self._partition.topic_partition, offset, batches, end_offset=next_offset)
            except CorruptSourceError:
                if not await self._tier.is_rewritten(metadata):
                    raise
                self._rewritten = metadata.segment.id
        size_bytes = sum(batch.size_bytes for batch in batches)
        return ChangelogPiece(batches, next_offset, size_bytes, size_bytes)

    async def aborted(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """Return every aborted transaction that touches ``[start_offset, end_offset)`` and ended in the tier."""
        return (await self.search_aborted(start_offset, end_offset)).found

    async def search_aborted(self, start_offset: int, end_offset: int) -> AbortedSearchResult:
        """Return the aborted transactions of ``aborted``, and whether a marker behind the tier may end one more.

        Raises:
            ObjectGoneError: an index is gone; refresh, and read again.
        """
        branch = await self._loaded()
        with self._changing(branch.view):
            return await self._transactions.aborted(start_offset, end_offset)

    async def close(self) -> None:
        """End what was fetched ahead; a cancellation is raised when it has ended."""
        self._drop()
        await wait_all(self._dropped)

    def _drop(self) -> None:
        for blocks in (self._current, self._following):
            if blocks is not None:
                blocks.drop()
        self._current = self._following = None

    @contextmanager
    def _changing(self, view: PartitionView) -> Iterator[None]:
        """Turn an object that is gone into ``ObjectGoneError``: its segment was probably replaced or deleted."""
        try:
            yield
        except RemoteIndexAbsentError:
            raise
        except RemoteResourceNotFoundError as error:
            raise ObjectGoneError(
                f"{error}; its segment was replaced or deleted, or the object is lost",
                remedy=f"read again; if it stays so, run tierd verify {self._partition.topic_partition}",
                segments=frozenset(view.segments),
            ) from error

    async def _loaded(self) -> OwnBranch:
        if self._branch is None:
            await self.refresh()
        assert self._branch is not None, "a refresh sets it"
        return self._branch

    async def _batches(
        self, metadata: RemoteLogSegmentMetadata, offset: int, end_offset: int, max_bytes: int
    ) -> list[RecordBatch]:
        """Return batches of one segment that touch ``[offset, end_offset)``; none if compaction left none there."""
        if (blocks := self._standing_at(metadata, offset)) is not None:
            return await self._wanted(blocks, offset, end_offset, max_bytes)
        position = await self._position_of(metadata, offset)
        try:
            found = await self._wanted(self._begin(metadata, position), offset, end_offset, max_bytes)
            if not position or (found and found[0].base_offset <= offset):
                return found
        except (CorruptRecordError, RemoteIntegrityError):
            if not position:
                raise
        # The index is a hint. A walk from the first byte tells whether the log is damaged, or the index is wrong.
        return await self._wanted(self._begin(metadata, 0), offset, end_offset, max_bytes)

    async def _wanted(self, blocks: RemoteBlocks, offset: int, end_offset: int, max_bytes: int) -> list[RecordBatch]:
        while found := await blocks.next_batches(max_bytes):
            self._fetch_following(blocks)
            batches = [batch for batch in found if batch.last_offset >= offset and batch.base_offset < end_offset]
            if found[-1].base_offset >= end_offset:
                self._drop()  # a later read may want the batches that are left out here
                return batches
            if batches:
                self._stands_at = batches[-1].last_offset + 1
                return batches
        self._stands_at = end_offset
        return []

    def _standing_at(self, metadata: RemoteLogSegmentMetadata, offset: int) -> RemoteBlocks | None:
        """Return the open reader if it goes on with ``offset``."""
        following = self._following
        if following is not None and following.metadata == metadata and offset == metadata.start_offset:
            if self._current is not None:
                self._current.drop()
            self._current, self._following, self._stands_at = following, None, offset
        current = self._current
        if current is None or current.is_dropped or current.metadata != metadata or self._stands_at != offset:
            return None
        return current

    def _begin(self, metadata: RemoteLogSegmentMetadata, position: int) -> RemoteBlocks:
        self._drop()
        self._current = self._blocks(metadata, position)
        return self._current

    def _fetch_following(self, blocks: RemoteBlocks) -> None:
        """Begin with the next segment once every byte of the current one was asked for."""
        if not blocks.is_asked_for or self._branch is None:
            return
        if self._following is None or self._following.is_dropped:
            metadata = self._branch.segment_for(blocks.metadata.end_offset + 1)
            if metadata is None or metadata.start_offset != blocks.metadata.end_offset + 1 or not metadata.size_bytes:
                return
            self._following = self._blocks(metadata, 0)
        self._following.fill(self._tier.limits.ahead_blocks - blocks.blocks_ahead)

    def _blocks(self, metadata: RemoteLogSegmentMetadata, position: int) -> RemoteBlocks:
        tier = self._tier
        return RemoteBlocks(
            tier.storage,
            metadata,
            position=position,
            limits=tier.limits,
            budget=tier.budget,
            dropped=self._dropped,
        )

    async def _position_of(self, metadata: RemoteLogSegmentMetadata, offset: int) -> int:
        """Return the position to begin at, by the offset index; 0 if the index is absent or damaged."""
        if offset <= metadata.start_offset:
            return 0
        try:
            data = await self._tier.storage.fetch_index(metadata, IndexType.OFFSET)
            name = f"{metadata.segment} offset index"
            index = await asyncio.to_thread(OffsetIndex.from_bytes, data, metadata.start_offset, name)
        except (RemoteIndexAbsentError, RemoteIntegrityError, CorruptIndexError):
            return 0
        position = index.lookup(offset).position
        return position if position < metadata.size_bytes else 0


class RemoteChangelogs:
    """Changelogs in the tier."""

    def __init__(
        self, partitions: Mapping[TopicPartition, TopicIdPartition], tier: RemoteTier, *, is_compacted: IsCompacted
    ) -> None:
        self._partitions = dict(partitions)
        self._tier = tier
        self._is_compacted = is_compacted

    async def list_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions."""
        return frozenset(self._partitions)

    async def open(self, partition: TopicPartition) -> RemoteChangelog | None:
        """Open the segments of the incarnation that ``partition`` means; None without one."""
        found = self._partitions.get(partition)
        return None if found is None else self.open_incarnation(found)

    def open_incarnation(self, partition: TopicIdPartition) -> RemoteChangelog:
        """Open the segments of the topic with that id."""
        return RemoteChangelog(partition, self._tier, is_compacted=self._is_compacted(partition.topic))


class RemoteSegmentSource(PartitionedSource):
    """Source over the remote segments of a cluster's tier; needs no broker and no daemon."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, TopicIdPartition],
        tier: RemoteTier,
        *,
        delete_retention: DeleteRetention,
        groups: CommittedPositions | None = None,
        is_continued: bool = True,
    ) -> None:
        """Read a tier.

        Args:
            partitions: the incarnation that each name means.
            tier: metadata and bytes.
            delete_retention: which topics are compacted.
            groups: committed offsets; None where they are not known.
            is_continued: as in ``PartitionedSource``.
        """
        changelogs = RemoteChangelogs(partitions, tier, is_compacted=lambda topic: delete_retention(topic) is not None)
        super().__init__(changelogs, delete_retention=delete_retention, groups=groups, is_continued=is_continued)
