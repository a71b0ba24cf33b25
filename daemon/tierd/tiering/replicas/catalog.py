"""Changes of the set of partitions: listings of log dirs compared with the known set. Decisions only."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tierd.log import DirectoryKind, PartitionDirectory
from tierd.model import TopicIdPartition


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """Difference between the listings of the log dirs and the known replicas.

    Attributes:
        appeared: replicas seen for the first time; a topic created again under its name is one, by its id.
        moved: replicas whose directory is another one now: renamed, or moved between log dirs.
        vanished: replicas that no healthy log dir holds any more.
        unidentified: directories without a topic id yet; something in them has to change first.
    """

    appeared: tuple[PartitionDirectory, ...]
    moved: tuple[PartitionDirectory, ...]
    vanished: tuple[TopicIdPartition, ...]
    unidentified: tuple[PartitionDirectory, ...]


def catalog_change(
    known: Mapping[TopicIdPartition, PartitionDirectory],
    found: Iterable[PartitionDirectory],
    *,
    offline: Collection[Path],
    unreadable: Collection[Path] = (),
    wants: Callable[[str], bool],
) -> CatalogChange:
    """Compare the listings of the log dirs with the known replicas.

    Args:
        known: the directory of every replica that is followed.
        found: all directories of the log dirs that could be listed.
        offline: log dirs that could not be listed; the replicas known there stay known.
        unreadable: directories that exist and could not be identified this time; the replicas known there stay known.
        wants: returns True if a topic is tiered.
    """
    current = [d for d in found if d.kind is DirectoryKind.CURRENT and wants(d.topic_partition.topic)]
    by_partition: dict[TopicIdPartition, PartitionDirectory] = {}
    for directory in current:
        if directory.topic_id is None:
            continue
        partition = directory.partition
        # Two directories of one replica: the one we know wins, else the first.
        if partition not in by_partition or _same(known.get(partition), directory):
            by_partition[partition] = directory
    unidentified = tuple(d for d in current if d.topic_id is None)
    doubtful = {*unreadable, *(directory.path for directory in unidentified)}

    def is_gone(partition: TopicIdPartition, directory: PartitionDirectory) -> bool:
        if partition in by_partition:
            return False
        in_doubt = directory.path.parent in offline or directory.path in doubtful
        return not (in_doubt and wants(partition.topic))

    return CatalogChange(
        appeared=tuple(d for p, d in by_partition.items() if p not in known),
        moved=tuple(d for p, d in by_partition.items() if p in known and not _same(known[p], d)),
        vanished=tuple(p for p, directory in known.items() if is_gone(p, directory)),
        unidentified=unidentified,
    )


def _same(one: PartitionDirectory | None, other: PartitionDirectory) -> bool:
    return one is not None and one.path == other.path and one.inode == other.inode
