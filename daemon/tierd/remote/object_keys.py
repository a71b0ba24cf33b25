"""Segment identities to object keys, and back (DESIGN 4).

::

    <prefix>/<cluster id>/<topic>-<topic id>/<partition>/<20-digit start offset>-<segment id>
        .{log,indexes,manifest,tombstone}
    <prefix>/<cluster id>/<topic>-<topic id>/<partition>/log-start.json
    <prefix>/<cluster id>/tierd.json
    <prefix>/<cluster id>/erasures/<request id>.json
    <prefix>/<cluster id>/catalogue/...                        (catalogue_keys.py)

Ids are in Kafka's 22-character form. Both a topic name and an id may contain dashes, so names are cut by length.

A file system takes 255 bytes for one part of a path, and a topic name of more than 232 characters is longer than that
with its id. Such a name is cut in two parts (decision 29)::

    <prefix>/<cluster id>/<first 200 characters>/<the others>-<topic id>/<partition>/...

Earlier versions of tierd wrote the name in one part: such keys stay readable (``is_spelled_out``).
"""

import re
from dataclasses import dataclass, replace
from typing import NamedTuple
from uuid import UUID

from tierd.errors import RemoteFormatError
from tierd.model import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, uuid_from_text, uuid_to_text
from tierd.remote.catalogue_keys import CatalogueKeys

LOG_SUFFIX = ".log"
INDEXES_SUFFIX = ".indexes"
MANIFEST_SUFFIX = ".manifest"
TOMBSTONE_SUFFIX = ".tombstone"
LOG_START_NAME = "log-start.json"

_PLAIN = b"\x01"
_ENCRYPTED = b"\x02"
_PLAIN_CUT = b"\x03"
_ENCRYPTED_CUT = b"\x04"
_SPELLED_OUT = frozenset({_PLAIN, _ENCRYPTED})
_CUT = frozenset({_PLAIN_CUT, _ENCRYPTED_CUT})
_MAX_FOLDER_BYTES = 255  # of a part of a path; topic names are ASCII
_ID_LENGTH = 22
_HEAD_LENGTH = 200
_MAX_PREFIX_BYTES = 127  # Kafka's default limit for custom metadata is 128 bytes
# Only what a key is made as is parsed: another spelling of an id or a number would be a second key of the same segment.
_ID = "[A-Za-z0-9_-]{21}[AQgw]"  # the last character has two bits of the id's 128
_SEGMENT_NAME = re.compile(rf"(?P<start>[0-9]{{20}})-(?P<id>{_ID})\.(?:log|indexes|manifest|tombstone)")
_PARTITION = re.compile("0|[1-9][0-9]{0,9}")
_PARTITIONS_END = 2**31
_TOPIC_FOLDER = re.compile(rf"(?P<topic>[^/]+)-(?P<id>{_ID})")
_CUT_TOPIC_FOLDER = re.compile(rf"(?P<head>[^/]{{{_HEAD_LENGTH}}})/(?P<tail>[^/]+)-(?P<id>{_ID})")
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # of a file name that is not UTF-8


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """Identity of a segment, parsed from its object key.

    Attributes:
        topic_id: in Kafka's 22-character form.
        is_spelled_out: the key has the name of a long topic in one part, as earlier versions of tierd wrote it.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    segment_id: UUID
    is_spelled_out: bool = False


@dataclass(frozen=True, slots=True)
class ObjectKeyFactory:
    """Keys below one prefix of one cluster. An empty ``prefix`` puts the cluster id first.

    Attributes:
        spells_out: write the names of long topics in one part, as earlier versions did; other keys are the same.

    Raises:
        ValueError: the prefix is longer than custom metadata may carry, or begins or ends with a slash.
    """

    prefix: str
    cluster_id: str
    spells_out: bool = False

    def __post_init__(self) -> None:
        if len(self.prefix.encode()) > _MAX_PREFIX_BYTES:
            raise ValueError(f"key prefix {self.prefix!r} is longer than {_MAX_PREFIX_BYTES} bytes")
        if self.prefix.startswith("/") or self.prefix.endswith("/"):
            raise ValueError(f"key prefix {self.prefix!r} must neither begin nor end with a slash")

    @property
    def root(self) -> str:
        """Return the beginning of every key of this cluster, with the slash at its end."""
        return f"{self.prefix}/{self.cluster_id}/" if self.prefix else f"{self.cluster_id}/"

    @property
    def tier_identity(self) -> str:
        """Return the key of the object that names the metadata store that owns the prefix."""
        return f"{self.root}tierd.json"

    @property
    def erasure_reports(self) -> str:
        """Return the beginning of the key of every report of an erasure, with the slash at its end."""
        return f"{self.root}erasures/"

    def erasure_report(self, request_id: UUID) -> str:
        """Return the key of the report of a request to erase keys."""
        return f"{self.erasure_reports}{uuid_to_text(request_id)}.json"

    def parse_erasure_report(self, key: str) -> UUID | None:
        """Return the request whose report ``key`` holds, below this factory's root; otherwise None."""
        name = key.removeprefix(self.erasure_reports)
        try:
            request_id = uuid_from_text(name.removesuffix(".json"))
        except ValueError:
            return None
        return request_id if self.erasure_report(request_id) == key else None

    @property
    def catalogue(self) -> CatalogueKeys:
        """Return the keys of the objects of the catalogue: topics, positions, nodes."""
        return CatalogueKeys(f"{self.root}catalogue/")

    def belongs_to_tier(self, key: str) -> bool:
        """Return True if ``key`` is an object of the tier itself, and of no segment."""
        if key == self.tier_identity or key.startswith(self.erasure_reports):
            return True
        return self.catalogue.parse(key) is not None

    def partition_prefix(self, partition: TopicIdPartition) -> str:
        """Return the beginning of every key of the partition, with the slash at its end."""
        return f"{self.topic_prefix(partition.topic)}{uuid_to_text(partition.topic_id)}/{partition.partition}/"

    def topic_prefixes(self, topic: str) -> tuple[str, ...]:
        """Return the beginnings of the keys of a topic, up to its id, one for each form of such keys."""
        return tuple(form.topic_prefix(topic) for form in self.forms(topic))

    def forms(self, topic: str) -> "tuple[ObjectKeyFactory, ...]":
        """Return the factories of every form that keys of a topic may have below this prefix."""
        cut = replace(self, spells_out=False)
        return (cut, replace(self, spells_out=True)) if _is_long(topic) else (cut,)

    def form_of(self, key: SegmentKey) -> "ObjectKeyFactory":
        """Return the factory that writes keys in the form of ``key``, which was parsed."""
        return replace(self, spells_out=key.is_spelled_out)

    def topic_prefix(self, topic: str) -> str:
        """Return the beginning of every key of a topic, up to its id."""
        if self.spells_out or not _is_long(topic):
            return f"{self.root}{topic}-"
        return f"{self.root}{topic[:_HEAD_LENGTH]}/{topic[_HEAD_LENGTH:]}-"

    def log_start(self, partition: TopicIdPartition) -> str:
        """Return the key of the log start record of the partition."""
        return f"{self.partition_prefix(partition)}{LOG_START_NAME}"

    def segment(self, metadata: RemoteLogSegmentMetadata, suffix: str) -> str:
        """Return the key of one of a segment's objects."""
        return self.object(metadata.segment, metadata.start_offset, suffix)

    def object(self, segment: RemoteLogSegmentId, start_offset: int, suffix: str) -> str:
        """Return the key of one of the objects of a segment that begins at ``start_offset``."""
        partition = self.partition_prefix(segment.topic_id_partition)
        return f"{partition}{start_offset:020d}-{uuid_to_text(segment.id)}{suffix}"

    def custom_metadata(self, topic: str, *, is_encrypted: bool = False) -> bytes:
        """Return the prefix, the form of keys and the mark of encryption, as they are recorded with every segment.

        The metadata store is trusted more than the bucket: a writer of the bucket alone cannot put a plain segment in
        the place of an encrypted one.
        """
        if _is_long(topic) and not self.spells_out:
            return (_ENCRYPTED_CUT if is_encrypted else _PLAIN_CUT) + self.prefix.encode()
        return (_ENCRYPTED if is_encrypted else _PLAIN) + self.prefix.encode()

    def for_custom_metadata(self, custom_metadata: bytes | None, topic: str) -> "ObjectKeyFactory":
        """Return the factory under which a segment of ``topic`` was stored; this one when nothing was recorded.

        Raises:
            RemoteFormatError: the bytes are of a later version of tierd, or of another program.
        """
        if custom_metadata is None:
            return self
        version = custom_metadata[:1]
        is_long = _is_long(topic)
        if version not in (_SPELLED_OUT | _CUT if is_long else _SPELLED_OUT):
            raise RemoteFormatError(
                f"custom metadata {custom_metadata[:16]!r} is not of a version that this tierd knows",
                remedy="use the tierd version that copied the segment, or a newer one",
            )
        spells_out = is_long and version in _SPELLED_OUT
        return ObjectKeyFactory(custom_metadata[1:].decode(), self.cluster_id, spells_out)

    def parse(self, key: str) -> SegmentKey | None:
        """Return the identity in the key of a segment's object below this factory's root; None for other keys.

        ``object`` of the same form makes the same key of that identity.
        """
        if not key.startswith(self.root):
            return None
        parts = key.removeprefix(self.root).rsplit("/", 2)
        if len(parts) != 3:
            return None
        topic, partition, segment = _topic_of(parts[0]), _partition_of(parts[1]), _SEGMENT_NAME.fullmatch(parts[2])
        if topic is None or partition is None or segment is None:
            return None
        is_spelled_out = _is_long(topic.name) and "/" not in parts[0]
        segment_id = uuid_from_text(segment["id"])
        return SegmentKey(topic.name, topic.id, partition, int(segment["start"]), segment_id, is_spelled_out)

    def parse_log_start(self, key: str) -> TopicIdPartition | None:
        """Return the partition whose log start ``key`` holds, below this factory's root; otherwise None."""
        parts = key.removeprefix(self.root).rsplit("/", 2) if key.startswith(self.root) else []
        if len(parts) != 3 or parts[2] != LOG_START_NAME:
            return None
        topic, number = _topic_of(parts[0]), _partition_of(parts[1])
        if topic is None or number is None:
            return None
        partition = TopicIdPartition(uuid_from_text(topic.id), topic.name, number)
        return partition if self.log_start(partition) == key else None


class _TopicFolder(NamedTuple):
    name: str
    id: str


def _partition_of(folder: str) -> int | None:
    number = int(folder) if _PARTITION.fullmatch(folder) else _PARTITIONS_END
    return number if number < _PARTITIONS_END else None


def _topic_of(folder: str) -> _TopicFolder | None:
    if _HALF_CHARACTER.search(folder):
        return None
    if whole := _TOPIC_FOLDER.fullmatch(folder):
        return _TopicFolder(whole["topic"], whole["id"])
    if cut := _CUT_TOPIC_FOLDER.fullmatch(folder):
        name = cut["head"] + cut["tail"]
        return _TopicFolder(name, cut["id"]) if _is_long(name) else None
    return None


def _is_long(topic: str) -> bool:
    """Return True if a topic's name and id are longer than a part of a path may be."""
    return len(topic) + 1 + _ID_LENGTH > _MAX_FOLDER_BYTES


def must_be_encrypted(custom_metadata: bytes | None) -> bool:
    """Return True if a segment was recorded as encrypted."""
    return custom_metadata is not None and custom_metadata.startswith((_ENCRYPTED, _ENCRYPTED_CUT))
