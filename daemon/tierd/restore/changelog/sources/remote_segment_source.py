"""RemoteSegmentSource: changelogs in the tier (changelog-restore 3.1)."""

from collections.abc import Mapping

from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore.changelog.sources.partition_changelog import IsCompacted
from tierd.restore.changelog.sources.partitioned_source import DeleteRetention, GroupPositions, PartitionedSource
from tierd.restore.changelog.sources.remote_changelog import RemoteChangelog, RemoteTier


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
        groups: GroupPositions | None = None,
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
