"""TargetDirectories: the partition directories that a log dir has before a restore. Blocking."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from uuid import UUID

import structlog

from tierd.errors import LogError, MissingArtefactError
from tierd.log import DirectoryKind, PartitionDirectory, list_log_dir, read_lineage, read_meta_properties_text
from tierd.model import Lineage, TopicPartition
from tierd.restore import METADATA_DIRECTORY, has_restored

log = structlog.get_logger()

_STAGE_SUFFIX = ".tierd-restore"


@dataclass(frozen=True, slots=True)
class TargetDirectories:
    """Partition directories of one log dir, by name.

    Attributes:
        log_dir: the log dir.
        identity: content of its ``meta.properties``; None without one.
        has_metadata: it has a directory of the cluster metadata.
        by_name: the directories.
        elsewhere: other log dirs of the same broker, by the partitions that they have.
        stage: of restores into the log dir; None where there is none.
    """

    log_dir: Path
    identity: str | None
    has_metadata: bool
    by_name: Mapping[TopicPartition, PartitionDirectory]
    elsewhere: Mapping[TopicPartition, Path]
    stage: Path | None = None

    @classmethod
    def read(cls, log_dir: Path, *, others: Collection[Path], stage: Path | None = None) -> Self:
        """List the directories; a log dir that does not exist has none. ``others`` are of the same broker.

        Raises:
            LogDirOfflineError: a log dir cannot be listed, or its ``meta.properties`` cannot be read.
            CheckpointError: its ``meta.properties`` is larger than any such file.
        """
        elsewhere = {name: other for other in others if other.exists() for name in _current(other)}
        return cls(
            log_dir,
            identity=read_meta_properties_text(log_dir),
            has_metadata=(log_dir / METADATA_DIRECTORY).exists(),
            by_name=_current(log_dir) if log_dir.exists() else {},
            elsewhere=elsewhere,
            stage=stage,
        )

    def topic_id(self, name: TopicPartition) -> UUID | None:
        """Return the topic id of the directory; None without a directory or an id."""
        directory = self.by_name.get(name)
        return None if directory is None else directory.topic_id

    def lineage(self, name: TopicPartition, topic_id: UUID) -> Lineage:
        """Return the leader epochs of the directory if it is of this topic id; empty without such a directory.

        A file that is missing or damaged counts as empty: then the tier alone tells the epochs.
        """
        directory = self.by_name.get(name)
        if directory is None or directory.topic_id != topic_id:
            return Lineage()
        try:
            return read_lineage(directory.path)
        except MissingArtefactError:
            return Lineage()
        except LogError as error:
            log.warning("leader_epochs_not_used", partition=str(name), problem=str(error))
            return Lineage()

    def has_records(self, name: TopicPartition) -> bool:
        """Return True if a log file of the directory has bytes that no restore with this stage has put there.

        Raises:
            StateDirError: the journal of a restore cannot be read, or is damaged.
            OSError: the directory or the stage cannot be read.
        """
        directory = self.by_name.get(name)
        if directory is None or not any(file.stat().st_size for file in directory.path.glob("*.log")):
            return False
        return self.stage is None or not has_restored(self.stage, directory.path)


def stage_beside(log_dir: Path) -> Path:
    """Return the directory beside ``log_dir`` in which a restore does its work."""
    absolute = log_dir.absolute()
    return absolute.with_name(absolute.name + _STAGE_SUFFIX)


def _current(log_dir: Path) -> dict[TopicPartition, PartitionDirectory]:
    found = list_log_dir(log_dir).partitions
    return {each.topic_partition: each for each in found if each.kind is DirectoryKind.CURRENT}
