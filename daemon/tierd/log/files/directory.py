"""Names of replica directories, and the replicas that a log dir holds (log-format 1.1)."""

import errno
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Final
from uuid import UUID

from tierd.errors import (
    LogDirOfflineError,
    LogError,
    MissingArtefactError,
    PartitionNameError,
    SegmentChangedError,
)
from tierd.log.files.checkpoints import PARTITION_METADATA, read_topic_id
from tierd.model import TopicIdPartition, TopicPartition

# Kafka's own, and no partition: the index cache of its tiering, and the log of its metadata.
INDEX_CACHE = "remote-log-index-cache"
CLUSTER_METADATA = "__cluster_metadata"

_MAX_NAME = 255  # of a file

_SUFFIXED = re.compile(r"(?P<partition>\S+-\S+)\.\S+(?P<suffix>-delete|-future|-stray)")


class DirectoryKind(Enum):
    """State of a replica directory, as a broker writes it into the suffix of the directory's name."""

    CURRENT = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


def parse_directory_name(name: str) -> tuple[TopicPartition, DirectoryKind]:
    """Parse partition and kind from the name of a directory (Kafka: UnifiedLog.parseTopicPartitionName).

    The topic of a ``-delete`` or ``-stray`` directory may be cut short: never identify a topic by it.

    Raises:
        PartitionNameError: the name is of no such form.
    """
    kind = next((k for k in DirectoryKind if k.value and name.endswith(k.value)), DirectoryKind.CURRENT)
    if kind is DirectoryKind.CURRENT:
        return TopicPartition.parse(name), kind
    match = _SUFFIXED.fullmatch(name)
    if match is None:
        raise PartitionNameError(
            f"{name!r} is not <topic>-<partition>.<id>{kind.value}", remedy="name it as a broker names its directories"
        )
    # everything from the last dot on goes; the id may itself hold no dot, so the greedy match ended there
    return TopicPartition.parse(match["partition"]), kind


def directory_name(partition: TopicPartition, kind: DirectoryKind, *, directory_id: str = "") -> str:
    """Return the name of a directory of ``kind``; ``directory_id`` is 32 hex digits, and None for a current one.

    The topic of a ``-delete`` and a ``-stray`` directory is cut so that the name fits a file system, that of a
    ``-future`` one is not (Kafka: UnifiedLog.logDeleteDirName, logStrayDirName, logFutureDirName).
    """
    if kind is DirectoryKind.CURRENT:
        return f"{partition.topic}-{partition.partition}"
    rest = f"-{partition.partition}.{directory_id}{kind.value}"
    topic = partition.topic
    return (topic if kind is DirectoryKind.FUTURE else topic[: max(0, _MAX_NAME - len(rest))]) + rest


@dataclass(frozen=True, slots=True)
class PartitionDirectory:
    """Directory of one replica. ``inode`` distinguishes a directory from a later one with the same name."""

    path: Path
    topic_partition: TopicPartition
    topic_id: UUID | None
    kind: DirectoryKind
    inode: int

    @property
    def partition(self) -> TopicIdPartition:
        """Return the identity of the replica.

        Raises:
            MissingArtefactError: ``partition.metadata`` is not there yet.
        """
        if self.topic_id is None:
            raise MissingArtefactError(
                f"{self.path / PARTITION_METADATA}: missing, so the topic id is not known",
                remedy="a broker writes it with the first append; restore it, or let the broker load the log dir",
            )
        return TopicIdPartition(self.topic_id, self.topic_partition.topic, self.topic_partition.partition)


@dataclass(frozen=True, slots=True)
class KnownDirectory:
    """A replica's directory, with its modification time in ns at the last scan.

    A directory with this inode and this time is the same one: a later directory with its name and inode is younger.
    """

    directory: PartitionDirectory
    mtime_ns: int

    def is_still(self, status: os.stat_result) -> bool:
        """Return True if ``status`` is of this directory, with no file renamed, made or removed in it since."""
        return status.st_ino == self.directory.inode and status.st_mtime_ns == self.mtime_ns


_NOTHING_KNOWN: Mapping[str, KnownDirectory] = MappingProxyType({})
_OF_ANY_DISK: Final = frozenset({"lost+found", ".lock"})


@dataclass(frozen=True, slots=True)
class LogDirListing:
    """The replicas of one log dir by name, and the directories that are no replicas: (name, reason).

    ``is_blank``: True for a directory without any file of a broker, as an unmounted or wiped disk leaves it.
    """

    log_dir: Path
    partitions: tuple[PartitionDirectory, ...]
    ignored: tuple[tuple[str, str], ...]
    is_blank: bool = False


def list_log_dir(log_dir: Path, *, known: Mapping[str, KnownDirectory] = _NOTHING_KNOWN) -> LogDirListing:
    """List the replicas of a log dir. Blocking. Kafka's own two directories are left out without a word.

    Args:
        log_dir: the directory.
        known: by name; the file that identifies a replica is not read again while its directory has not changed.

    Raises:
        LogDirOfflineError: the log dir cannot be listed.
    """
    partitions: list[PartitionDirectory] = []
    ignored: list[tuple[str, str]] = []
    try:
        with os.scandir(log_dir) as entries:
            found = [(entry.name, _directory_status(entry)) for entry in entries]
    except OSError as error:
        raise LogDirOfflineError(
            f"log dir {log_dir}: {error.strerror or error}", remedy="check the disk, the mount and who may read it"
        ) from error
    directories = sorted((name, status) for name, status in found if status)
    for name, status in directories:
        if (before := known.get(name)) is not None and before.is_still(status):
            partitions.append(before.directory)
            continue
        try:
            identified = _identify(log_dir / name, status.st_ino)
        except LogDirOfflineError as error:
            if _is_io_error(error):
                raise
            ignored.append((name, str(error)))
        except LogError as error:
            ignored.append((name, str(error)))
        else:
            if identified is not None:
                partitions.append(identified)
    is_blank = all(name in _OF_ANY_DISK for name, _ in found)
    return LogDirListing(log_dir, tuple(partitions), tuple(ignored), is_blank)


def identify_directory(path: Path) -> PartitionDirectory | None:
    """Look at one directory of a log dir. Blocking. None when it is one of Kafka's own that hold no partition.

    Raises:
        PartitionNameError: its name is no partition's.
        CheckpointError: its ``partition.metadata`` cannot be understood.
        SegmentChangedError: it is not there.
        LogDirOfflineError: it cannot be read.
    """
    try:
        inode = path.stat().st_ino
    except FileNotFoundError as error:
        raise SegmentChangedError(f"{path}: not there") from error
    except OSError as error:
        raise LogDirOfflineError(f"{path}: {error.strerror or error}") from error
    return _identify(path, inode)


def _identify(path: Path, inode: int) -> PartitionDirectory | None:
    if path.name == INDEX_CACHE:
        return None
    topic_partition, kind = parse_directory_name(path.name)
    if topic_partition.topic == CLUSTER_METADATA:
        return None
    try:
        topic_id = read_topic_id(path)
    except MissingArtefactError:
        topic_id = None
    return PartitionDirectory(path, topic_partition, topic_id, kind, inode)


def _directory_status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the status of a directory, or of the directory that a link leads to; None for other files.

    Not ``entry.inode()``: on overlay file systems and mount points that is another number than ``stat`` gives.
    """
    try:
        return entry.stat() if entry.is_dir() else None
    except FileNotFoundError:
        return None


def _is_io_error(error: LogError) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO


def partition_fields(directory: Path) -> dict[str, str]:
    """Return ``partition`` and ``log_dir`` of a partition directory of any kind.

    Every log event of a partition has these fields, so that one search finds all events of the partition.
    """
    try:
        partition = str(parse_directory_name(directory.name)[0])
    except PartitionNameError:
        partition = directory.name
    return {"partition": partition, "log_dir": str(directory.parent)}
