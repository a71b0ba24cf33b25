"""StandbyDirectories: the partitions that log dirs of standbys have, as sources of a restore. Blocking."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tierd.errors import LogDirOfflineError
from tierd.log import DirectoryKind, PartitionDirectory, list_log_dir
from tierd.model import TopicIdPartition, TopicPartition
from tierd.restore import JoinSource, JoinSourceReader


@dataclass(frozen=True, slots=True)
class StandbyDirectories:
    """Partition directories of standbys.

    Attributes:
        log_dirs: as they were given.
        by_partition: the directories of each partition, in the order of the log dirs.
        unidentified: directories without a topic id.
    """

    log_dirs: tuple[Path, ...] = ()
    by_partition: Mapping[TopicIdPartition, tuple[PartitionDirectory, ...]] = field(default_factory=dict)
    unidentified: tuple[PartitionDirectory, ...] = ()

    @classmethod
    def read(cls, log_dirs: Sequence[Path]) -> Self:
        """List the directories of live partitions.

        Raises:
            LogDirOfflineError: a log dir is not there, or cannot be listed.
        """
        found: dict[TopicIdPartition, tuple[PartitionDirectory, ...]] = {}
        unidentified: list[PartitionDirectory] = []
        for log_dir in log_dirs:
            if not log_dir.is_dir():
                raise LogDirOfflineError(
                    f"{log_dir}: is no directory", remedy="name the log dir of a standby, or a copy of it"
                )
            for each in list_log_dir(log_dir).partitions:
                if each.kind is not DirectoryKind.CURRENT:
                    continue
                if each.topic_id is None:
                    unidentified.append(each)
                else:
                    found[each.partition] = (*found.get(each.partition, ()), each)
        return cls(tuple(log_dirs), found, tuple(unidentified))

    def newest(self) -> Mapping[TopicPartition, TopicIdPartition]:
        """Return the incarnation of each partition whose directory was written last.

        Raises:
            OSError: a directory cannot be read.
        """
        written: dict[TopicPartition, tuple[int, TopicIdPartition]] = {}
        for partition in self.by_partition:
            written_ms = self.written_ms(partition)
            known = written.get(partition.topic_partition)
            if known is None or known[0] < written_ms:
                written[partition.topic_partition] = written_ms, partition
        return {name: partition for name, (_, partition) in written.items()}

    def written_ms(self, partition: TopicIdPartition) -> int:
        """Return the time of the last change of a log file of the partition; 0 without one."""
        logs = [log for each in self.by_partition.get(partition, ()) for log in each.path.glob("*.log")]
        return max(map(_written_ms, logs), default=0)

    def sources(self, partition: TopicIdPartition, reader: JoinSourceReader) -> list[JoinSource]:
        """Return what the directories of a partition say of themselves; one that cannot be read is left out."""
        read = (reader.read(each, is_existing=False) for each in self.by_partition.get(partition, ()))
        return [each for each in read if each is not None]


def _written_ms(log: Path) -> int:
    """Return the time of the last change; 0 for a file that its standby has deleted since it was listed."""
    try:
        return log.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
