"""CompositeSource: changelogs whose segments are on this host, in the tier, or in both (changelog-restore 3.1, 3.4)."""

from collections.abc import Sequence

from tierd.log import AbortedTransaction
from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore.changelog.sources.composite_plan import CompositePlan, Extent, Place, plan_composite
from tierd.restore.changelog.sources.local_log_source import LocalChangelog, LocalChangelogs
from tierd.restore.changelog.sources.partition_changelog import (
    ChangelogBounds,
    ChangelogPiece,
    IsCompacted,
    PartitionChangelog,
    hole,
)
from tierd.restore.changelog.sources.partitioned_source import CommittedPositions, DeleteRetention, PartitionedSource
from tierd.restore.changelog.sources.remote_segment_source import RemoteChangelog, RemoteChangelogs


class CompositeChangelog:
    """Both copies of a changelog, planned anew with every refresh. One call at a time."""

    def __init__(
        self, partition: TopicPartition, local: LocalChangelog, remote: RemoteChangelog, *, is_compacted: bool
    ) -> None:
        self._partition = partition
        self._local = local
        self._remote = remote
        self._is_compacted = is_compacted
        self._plan = CompositePlan(())

    async def refresh(self) -> ChangelogBounds:
        """Look again, and plan anew. The tier is asked last: the broker deletes only what the tier has."""
        local = await self._local.refresh()
        remote = await self._remote.refresh_along(local.lineage)
        extent = await self._local.extent()
        log_start = self._remote.log_start_offset
        if log_start is None:
            # A checkpoint inside a segment: records were deleted on request, those in the tier too.
            checkpointed = extent.checkpointed_start or 0
            log_start = checkpointed if checkpointed > extent.first_offset else 0
        self._plan = plan_composite(
            remote=Extent(remote.earliest_offset, remote.end_offset),
            local=Extent(extent.first_offset, local.end_offset),
            log_start_offset=log_start,
            first_dirty_offset=extent.first_dirty_offset,
            is_compacted=self._is_compacted,
        )
        parts = self._plan.parts
        if not parts:
            end = max(local.end_offset, remote.end_offset, log_start)
            return _bounds(remote, start_offset=end, end_offset=end, stable_offset=end)
        newest = local if parts[-1].place is Place.LOCAL else remote
        return _bounds(
            remote,
            start_offset=parts[0].start_offset,
            end_offset=parts[-1].end_offset,
            stable_offset=newest.stable_offset,
        )

    async def read(self, offset: int, *, end_offset: int, max_bytes: int) -> ChangelogPiece:
        """Return the batches from ``offset`` on, of one segment in one of the places."""
        part = self._plan.part_at(offset)
        begin = end_offset if part is None else min(part.start_offset, end_offset)
        if part is None or begin > offset:
            if not self._is_compacted:
                raise hole(self._partition, offset, begin)
            return ChangelogPiece((), begin)
        place = self._local if part.place is Place.LOCAL else self._remote
        return await place.read(offset, end_offset=min(part.end_offset, end_offset), max_bytes=max_bytes)

    async def aborted(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """Return every aborted transaction that touches ``[start_offset, end_offset)``."""
        places = {part.place for part in self._plan.parts if part.end_offset > start_offset}
        found: list[AbortedTransaction] = []
        if Place.REMOTE in places:
            search = await self._remote.search_aborted(start_offset, end_offset)
            if search.is_all:
                return search.found
            found.extend(search.found)
        if Place.LOCAL in places:
            found.extend(await self._local.aborted(start_offset, end_offset))
        return found

    async def close(self) -> None:
        """End what was fetched ahead."""
        await self._local.close()
        await self._remote.close()


class CompositeChangelogs:
    """Changelogs of both places. Of a name the local incarnation counts, if there is one."""

    def __init__(self, local: LocalChangelogs, remote: RemoteChangelogs, *, is_compacted: IsCompacted) -> None:
        self._local = local
        self._remote = remote
        self._is_compacted = is_compacted

    async def list_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions that one of the places has."""
        return await self._local.list_partitions() | await self._remote.list_partitions()

    async def open(self, partition: TopicPartition) -> PartitionChangelog | None:
        """Open ``partition``; None if no place has it."""
        local = await self._local.open(partition)
        if local is None:
            return await self._remote.open(partition)
        if local.topic_id is None:
            return local
        remote = self._remote.open_incarnation(TopicIdPartition(local.topic_id, partition.topic, partition.partition))
        return CompositeChangelog(partition, local, remote, is_compacted=self._is_compacted(partition.topic))


class CompositeSource(PartitionedSource):
    """Source over log dirs of this host and the tier, mixed only where the rules for compacted changelogs allow it."""

    def __init__(
        self,
        local: LocalChangelogs,
        remote: RemoteChangelogs,
        *,
        delete_retention: DeleteRetention,
        groups: CommittedPositions | None = None,
        is_continued: bool = True,
    ) -> None:
        """Read both places.

        Args:
            local: log dirs.
            remote: the tier.
            delete_retention: which topics are compacted.
            groups: committed offsets; None where they are not known.
            is_continued: as in ``PartitionedSource``.
        """
        changelogs = CompositeChangelogs(local, remote, is_compacted=lambda topic: delete_retention(topic) is not None)
        super().__init__(changelogs, delete_retention=delete_retention, groups=groups, is_continued=is_continued)


def _bounds(remote: ChangelogBounds, *, start_offset: int, end_offset: int, stable_offset: int) -> ChangelogBounds:
    return ChangelogBounds(
        earliest_offset=start_offset,
        end_offset=end_offset,
        stable_offset=min(stable_offset, end_offset),
        topic_id=remote.topic_id,
        lineage=remote.lineage,  # of both places
    )
