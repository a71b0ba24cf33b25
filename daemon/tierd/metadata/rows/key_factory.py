"""MetadataKeyFactory: the ordered text keys of a metadata store (remote-tiering 7.3).

::

    v1/<cluster>/store                                             identity of this store
    v1/<cluster>/tier/<hash of key prefix>                         that this store has made a tier its own
    v1/<cluster>/moving                                            that an import or a rebuild fills this store
    v1/<cluster>/lease/<name>                                      which process does something, and until when
    v1/<cluster>/erasure/<request id>                              keys whose records are to go, and how far that is
    v1/<cluster>/groups/<hash of group id>                         which daemon coordinates a consumer group
    v1/<cluster>/group-static/<hash of group id>/<hash of id>      one static member of the group, by its instance id
    v1/<cluster>/group-offsets/<hash of group id>/<topic id>/<partition>       one committed offset of the group
    v1/<cluster>/partitions/<topic id>/<partition>                 that the partition exists, and its topic's name
    v1/<cluster>/deleting/<topic id>/<partition>                   that the partition is being deleted, and how far
    v1/<cluster>/deleted/<topic id>/<partition>                    that the partition was deleted, and when
    v1/<cluster>/<topic id>/<partition>/row                        who owns the partition, and its revision
    v1/<cluster>/<topic id>/<partition>/seg/<segment id>           one segment, or its tombstone
    v1/<cluster>/<topic id>/<partition>/ep/<epoch>/at/<offset>     the segment that a lookup finds from this offset on
    v1/<cluster>/<topic id>/<partition>/ep/<epoch>/highest         the largest offset ever finished in the epoch
    v1/<cluster>/<topic id>/<partition>/ep/<epoch>/un/<segment id> a segment that only listing finds

Every prefix that is scanned ends in a slash, so partition 1 is never taken for 10. Numbers have a fixed width, so that
their byte order is their order. A topic's name is data: it is user-chosen, and its id is the identity. The ids of
groups and of their static members are user-chosen too, and may be of any length: keys have hashes of these ids.
"""

import hashlib
import re
from typing import Final
from uuid import UUID

from tierd.errors import InvalidMetadataError, MetadataDecodeError
from tierd.model import TopicIdPartition, uuid_from_text, uuid_to_text

_ROOT: Final = re.compile(r"([!-~]{1,63}/)?")
_CLUSTER_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class MetadataKeyFactory:
    """Factory of the keys of one cluster; several clusters may share a store.

    Args:
        cluster_id: of Kafka's cluster.
        root: begins every key, such as ``tierd/``, in a store that other programs write to as well.

    Raises:
        InvalidMetadataError: a cluster id that is not 1 to 64 of ``A-Z a-z 0-9 . _ -``.
        ValueError: a root that is not empty and does not end in a slash, or is longer than 64 characters.
    """

    def __init__(self, cluster_id: str, *, root: str = "") -> None:
        if not _ROOT.fullmatch(root):
            raise ValueError(f"root {root!r} cannot begin a key: at most 64 printable characters, a slash at the end")
        if not _CLUSTER_ID.fullmatch(cluster_id):
            raise InvalidMetadataError(
                f"cluster id {cluster_id!r} cannot be part of a key",
                remedy="set cluster_id to 1-64 letters, digits, dots, dashes or underscores",
            )
        self.cluster_id = cluster_id
        self.all_prefix = f"{root}v1/{cluster_id}/"
        """Prefix of every key of this cluster."""
        self.store_key = f"{self.all_prefix}store"
        """Key of the random identity of the store."""
        self.moving_key = f"{self.all_prefix}moving"
        """Key of a row that is there while an import or a rebuild is not complete."""
        self.key_secret_key = f"{self.all_prefix}key-secret"
        """Key of the secret under which the pipeline hashes the keys of records."""
        self.tier_prefix = f"{self.all_prefix}tier/"
        """One row per tier that this store has made its own."""
        self.erasure_prefix = f"{self.all_prefix}erasure/"
        """One row per request to erase keys, those that came to their end too."""
        self.groups_prefix = f"{self.all_prefix}groups/"
        """One row per consumer group of the read endpoint."""
        self.index_prefix = f"{self.all_prefix}partitions/"
        """One small row per partition, so that listing partitions does not read their segments."""
        self.deleting_prefix = f"{self.all_prefix}deleting/"
        """One small row per partition whose remote data is being deleted."""
        self.deleted_prefix = f"{self.all_prefix}deleted/"
        """One small row per partition whose row is all that is left of it."""

    def tier(self, key_prefix: str) -> str:
        """Return the key that makes the tier under ``key_prefix``, which may hold any character, this store's own."""
        return f"{self.tier_prefix}{_hash(key_prefix)}"

    def lease(self, name: str) -> str:
        """Return the key of the lease of that name."""
        return f"{self.all_prefix}lease/{name}"

    def erasure(self, request_id: UUID) -> str:
        """Return the key of one request to erase keys."""
        return f"{self.erasure_prefix}{uuid_to_text(request_id)}"

    def group(self, group: str) -> str:
        """Return the key of the row that carries the claim on a consumer group; its batches expect that row."""
        return f"{self.groups_prefix}{_hash(group)}"

    def group_static_prefix(self, group: str) -> str:
        """Return the prefix of the rows of a consumer group's static members."""
        return f"{self.all_prefix}group-static/{_hash(group)}/"

    def group_static(self, group: str, instance_id: str) -> str:
        """Return the key of one static member of a consumer group."""
        return f"{self.group_static_prefix(group)}{_hash(instance_id)}"

    def group_offsets_prefix(self, group: str) -> str:
        """Return the prefix of the rows of a consumer group's committed offsets."""
        return f"{self.all_prefix}group-offsets/{_hash(group)}/"

    def group_offset(self, group: str, topic_id: UUID, partition: int) -> str:
        """Return the key of the offset that a consumer group has committed for one partition."""
        return f"{self.group_offsets_prefix(group)}{uuid_to_text(topic_id)}/{partition:010d}"

    def partition_prefix(self, partition: TopicIdPartition) -> str:
        """Return the prefix of every key of the partition, its index row excepted."""
        return f"{self.all_prefix}{_suffix(partition)}/"

    def index(self, partition: TopicIdPartition) -> str:
        """Return the key of the row that says that the partition exists."""
        return f"{self.index_prefix}{_suffix(partition)}"

    def deleting(self, partition: TopicIdPartition) -> str:
        """Return the key of the row that says that the partition is being deleted."""
        return f"{self.deleting_prefix}{_suffix(partition)}"

    def deleted(self, partition: TopicIdPartition) -> str:
        """Return the key of the row that says that the partition was deleted."""
        return f"{self.deleted_prefix}{_suffix(partition)}"

    def row(self, partition: TopicIdPartition) -> str:
        """Return the key of the row that carries the claim; every batch has a precondition on that row."""
        return f"{self.partition_prefix(partition)}row"

    def segment(self, partition: TopicIdPartition, segment_id: UUID) -> str:
        """Return the key of the row of one segment."""
        return f"{self.partition_prefix(partition)}seg/{uuid_to_text(segment_id)}"

    def epoch_reference(self, partition: TopicIdPartition, epoch: int, first_offset: int) -> str:
        """Return the key of the reference to the segment that a lookup finds from ``first_offset`` on.

        Each reference is a row of its own, so that events stay small.
        """
        return f"{self.partition_prefix(partition)}ep/{epoch:010d}/at/{first_offset:020d}"

    def epoch_unreferenced(self, partition: TopicIdPartition, epoch: int, segment_id: UUID) -> str:
        """Return the key that says that the segment mentions the epoch, yet no lookup finds the segment."""
        return f"{self.partition_prefix(partition)}ep/{epoch:010d}/un/{uuid_to_text(segment_id)}"

    def epoch_highest(self, partition: TopicIdPartition, epoch: int) -> str:
        """Return the key of the largest offset ever finished in the epoch; its row outlives the segments."""
        return f"{self.partition_prefix(partition)}ep/{epoch:010d}/highest"


def partition_named_by(key: str, *, prefix: str, topic: str) -> TopicIdPartition:
    """Return the partition that ``key``, an index key below ``prefix``, is about; its value has the name of the topic.

    Raises:
        MetadataDecodeError: the key is of no partition.
    """
    topic_id, _, number = key.removeprefix(prefix).partition("/")
    try:
        return TopicIdPartition(uuid_from_text(topic_id), topic, int(number))
    except ValueError as error:
        raise MetadataDecodeError(f"{key}: {error}", remedy="restore the store from a backup") from error


def _hash(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=16).hexdigest()


def _suffix(partition: TopicIdPartition) -> str:
    return f"{uuid_to_text(partition.topic_id)}/{partition.partition:010d}"
