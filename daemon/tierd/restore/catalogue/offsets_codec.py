"""Codec of the records of ``__consumer_offsets``; kio lacks these schemas (DESIGN 13, trap 10).

Numbers are big-endian. A string is an ``int16`` length and UTF-8; a compact string is an unsigned varint of the length
plus one, and UTF-8::

    key    version int16
           0, 1:  group string | topic string | partition int32
           2:     group string                                           metadata of a group; the value is not read
           3 …:   keys of other coordinators (up to 23 in Kafka 4.3)     not read

    value  version int16                                                 no value: the key is gone
           0, 2:  offset int64 | metadata string | commit time int64
           1:     offset int64 | metadata string | commit time int64 | expire time int64
           3:     offset int64 | leader epoch int32 | metadata string | commit time int64
           4:     offset int64 | leader epoch int32 | metadata compact string | commit time int64
                  | tagged fields: 0: topic id uuid
"""

from typing import Final, NamedTuple
from uuid import UUID

from tierd.model import TopicPartition
from tierd.restore.catalogue.record_fields import RecordFields

_NO_UUID: Final = UUID(int=0)
_LAST_VALUE_VERSION: Final = 4
_TOPIC_ID_TAG: Final = 0


class OffsetsRecordError(ValueError):
    """Bytes that are no record of ``__consumer_offsets`` that this tierd knows."""


class OffsetCommitKey(NamedTuple):
    """Key of a committed offset."""

    group: str
    partition: TopicPartition


class GroupMetadataKey(NamedTuple):
    """Key of the metadata of a group."""

    group: str


class OtherKey(NamedTuple):
    """Key of another kind, which is not read."""

    version: int


OffsetsKey = OffsetCommitKey | GroupMetadataKey | OtherKey


class OffsetCommitValue(NamedTuple):
    """Value of a committed offset.

    Attributes:
        offset: the next offset that the group reads.
        leader_epoch: -1 where the commit had none.
        metadata: the client's text.
        expire_ms: time from which the commit does not count; None where the retention of the brokers decides.
        topic_id: of the partition; None where the commit had none.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int
    expire_ms: int | None = None
    topic_id: UUID | None = None


def decode_key(key: bytes | None) -> OffsetsKey:
    """Return the key of a record.

    Raises:
        OffsetsRecordError: no key, a negative version, or bytes that end too early.
    """
    if key is None:
        raise OffsetsRecordError("the record has no key")
    fields = RecordFields(key, OffsetsRecordError)
    version = fields.number(">h")
    if version < 0:
        raise OffsetsRecordError(f"version {version} of a key")
    match version:
        case 0 | 1:
            group, topic, partition = fields.text(), fields.text(), fields.number(">i")
            if not topic or partition < 0:
                raise OffsetsRecordError(f"a commit for partition {partition} of topic {topic!r}")
            return OffsetCommitKey(group, TopicPartition(topic, partition))
        case 2:
            return GroupMetadataKey(fields.text())
        case _:
            return OtherKey(version)


def decode_commit(value: bytes) -> OffsetCommitValue:
    """Return the value of a committed offset.

    Raises:
        OffsetsRecordError: an unknown version, or bytes that end too early.
    """
    fields = RecordFields(value, OffsetsRecordError)
    version = fields.number(">h")
    if not 0 <= version <= _LAST_VALUE_VERSION:
        raise OffsetsRecordError(f"version {version} of a committed offset")
    offset = fields.number(">q")
    leader_epoch = fields.number(">i") if version >= 3 else -1
    metadata = fields.compact_text() if version >= 4 else fields.text()
    committed_ms = fields.number(">q")
    expire_ms = fields.number(">q") if version == 1 else -1
    topic_id = _topic_id(fields) if version >= 4 else None
    if offset < 0:
        raise OffsetsRecordError(f"committed offset {offset}")
    return OffsetCommitValue(
        offset, leader_epoch, metadata, committed_ms, None if expire_ms == -1 else expire_ms, topic_id
    )


def _topic_id(fields: RecordFields) -> UUID | None:
    """Read the tagged fields, and return the topic id among them."""
    found = None
    for tag, content in fields.tagged():
        if tag == _TOPIC_ID_TAG:
            if len(content) != 16:
                raise OffsetsRecordError(f"a topic id of {len(content)} bytes")
            found = UUID(bytes=content)
    return None if found == _NO_UUID else found
