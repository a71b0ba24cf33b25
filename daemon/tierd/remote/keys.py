"""Segment identities to object keys, and back (DESIGN 4).

::

    <prefix>/<cluster id>/<topic>-<topic id>/<partition>/<20-digit start offset>-<segment id>
        .{log,indexes,manifest,tombstone}
    <prefix>/<cluster id>/tierd.json

Ids are in Kafka's 22-character form. Both a topic name and an id may contain dashes, so names are cut by length.
"""

import re
from dataclasses import dataclass
from typing import Self
from uuid import UUID

from tierd.errors import RemoteFormatError
from tierd.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, uuid_from_text, uuid_to_text

LOG_SUFFIX = ".log"
INDEXES_SUFFIX = ".indexes"
MANIFEST_SUFFIX = ".manifest"
TOMBSTONE_SUFFIX = ".tombstone"

_PLAIN = b"\x01"
_ENCRYPTED = b"\x02"
_MAX_PREFIX_BYTES = 127  # Kafka's default limit for custom metadata is 128 bytes
_SEGMENT_NAME = re.compile(r"(?P<start>\d{20})-(?P<id>[A-Za-z0-9_-]{22})\.(?:log|indexes|manifest|tombstone)")
_TOPIC_FOLDER = re.compile(r"(?P<topic>.+)-(?P<id>[A-Za-z0-9_-]{22})")


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """What a segment's object key tells. ``topic_id`` is in Kafka's 22-character form."""

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    segment_id: UUID


@dataclass(frozen=True, slots=True)
class ObjectKeyFactory:
    """Keys below one prefix of one cluster. An empty ``prefix`` puts the cluster id first.

    Raises:
        ValueError: the prefix is longer than custom metadata may carry, or begins or ends with a slash.
    """

    prefix: str
    cluster_id: str

    def __post_init__(self) -> None:
        if len(self.prefix.encode()) > _MAX_PREFIX_BYTES:
            raise ValueError(f"key prefix {self.prefix!r} is longer than {_MAX_PREFIX_BYTES} bytes")
        if self.prefix.startswith("/") or self.prefix.endswith("/"):
            raise ValueError(f"key prefix {self.prefix!r} must neither begin nor end with a slash")

    @property
    def root(self) -> str:
        """What every key of this cluster begins with, a slash at the end included."""
        return f"{self.prefix}/{self.cluster_id}/" if self.prefix else f"{self.cluster_id}/"

    @property
    def tier_identity(self) -> str:
        """Key of the object that says which metadata store owns the prefix."""
        return f"{self.root}tierd.json"

    def partition_prefix(self, partition: TopicIdPartition) -> str:
        """What every key of the partition begins with, a slash at the end included."""
        return f"{self.root}{partition.topic}-{uuid_to_text(partition.topic_id)}/{partition.partition}/"

    def segment(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
        """Key of one of a segment's objects."""
        return self.object(metadata.segment, metadata.start_offset, suffix)

    def object(self, segment: RemoteLogSegmentId, start_offset: int, suffix: str) -> str:
        """Key of one of the objects of a segment that begins at ``start_offset``."""
        partition = self.partition_prefix(segment.topic_id_partition)
        return f"{partition}{start_offset:020d}-{uuid_to_text(segment.id)}{suffix}"

    def custom_metadata(self, *, is_encrypted: bool = False) -> bytes:
        """The prefix in the form that is recorded with every segment, and whether the segment must be encrypted.

        The metadata store is trusted more than the bucket: who can write to the bucket alone cannot put a plain segment
        in the place of an encrypted one.
        """
        return (_ENCRYPTED if is_encrypted else _PLAIN) + self.prefix.encode()

    def for_custom_metadata(self, custom_metadata: bytes | None) -> Self:
        """The factory under which a segment was stored; this one when nothing was recorded.

        Raises:
            RemoteFormatError: the bytes are of a later version, or not ours.
        """
        if custom_metadata is None:
            return self
        if custom_metadata[:1] not in {_PLAIN, _ENCRYPTED}:
            raise RemoteFormatError(
                f"custom metadata {custom_metadata[:16]!r} is not of a version that this tierd knows",
                remedy="use the tierd version that copied the segment, or a newer one",
            )
        return type(self)(custom_metadata[1:].decode(), self.cluster_id)

    def parse(self, key: str) -> SegmentKey | None:
        """What ``key`` tells when it is a segment's object below this factory's root; otherwise None."""
        if not key.startswith(self.root):
            return None
        parts = key.removeprefix(self.root).split("/")
        if len(parts) != 3:
            return None
        topic, segment = _TOPIC_FOLDER.fullmatch(parts[0]), _SEGMENT_NAME.fullmatch(parts[2])
        if not (topic and segment and parts[1].isascii() and parts[1].isdigit()):
            return None
        try:
            segment_id = uuid_from_text(segment["id"])
        except ValueError:
            return None
        return SegmentKey(topic["topic"], topic["id"], int(parts[1]), int(segment["start"]), segment_id)


def must_be_encrypted(custom_metadata: bytes | None) -> bool:
    """Whether a segment was recorded as encrypted."""
    return custom_metadata is not None and custom_metadata.startswith(_ENCRYPTED)
