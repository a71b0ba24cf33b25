"""CompositeSource: changelogs whose segments are on this host, in the tier, or in both (changelog-restore 3.1)."""

from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore.changelog.sources.composite_changelog import CompositeChangelog
from tierd.restore.changelog.sources.local_log_source import LocalChangelogs
from tierd.restore.changelog.sources.partition_changelog import IsCompacted, PartitionChangelog
from tierd.restore.changelog.sources.partitioned_source import DeleteRetention, GroupPositions, PartitionedSource
from tierd.restore.changelog.sources.remote_segment_source import RemoteChangelogs


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
        groups: GroupPositions | None = None,
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
