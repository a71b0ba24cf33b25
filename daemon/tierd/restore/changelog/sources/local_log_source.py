"""LocalLogSource: changelogs in the log dirs of this host, a broker's or our own (changelog-restore 3.1)."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from tierd.log import DirectoryKind, PartitionDirectory, list_log_dir
from tierd.model import TopicPartition
from tierd.restore.changelog.sources.local_changelog import LocalChangelog, LocalEnd
from tierd.restore.changelog.sources.partition_changelog import IsCompacted
from tierd.restore.changelog.sources.partitioned_source import DeleteRetention, GroupPositions, PartitionedSource


class LocalChangelogs:
    """Changelogs in the log dirs of this host."""

    def __init__(self, log_dirs: Sequence[Path], *, is_compacted: IsCompacted, end: LocalEnd) -> None:
        self._log_dirs = tuple(log_dirs)
        self._is_compacted = is_compacted
        self._end = end

    async def list_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions with a replica on this host."""
        return frozenset(await asyncio.to_thread(_directories, self._log_dirs))

    async def open(self, partition: TopicPartition) -> LocalChangelog | None:
        """Open the replica of ``partition``; None without one."""
        directory = (await asyncio.to_thread(_directories, self._log_dirs)).get(partition)
        if directory is None:
            return None
        return LocalChangelog(directory, is_compacted=self._is_compacted(partition.topic), end=self._end)


class LocalLogSource(PartitionedSource):
    """Source over the partition directories of this host, beside a running broker or without one."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        delete_retention: DeleteRetention,
        groups: GroupPositions | None = None,
        end: LocalEnd = LocalEnd.HIGH_WATERMARK,
    ) -> None:
        """Read log dirs.

        Args:
            log_dirs: with the partition directories.
            delete_retention: which topics are compacted.
            groups: committed offsets; None where they are not known.
            end: up to where records count.
        """
        changelogs = LocalChangelogs(log_dirs, is_compacted=lambda topic: delete_retention(topic) is not None, end=end)
        super().__init__(changelogs, delete_retention=delete_retention, groups=groups)


def _directories(log_dirs: Sequence[Path]) -> dict[TopicPartition, PartitionDirectory]:
    found = (each for path in log_dirs for each in list_log_dir(path).partitions)
    return {each.topic_partition: each for each in found if each.kind is DirectoryKind.CURRENT}
