"""ClusterSnapshot: what a restore needs to know of a snapshot of the cluster metadata (DESIGN 13, trap 5).

A snapshot has the records from which a controller makes its state: no record of something that is gone is in it::

    control batch: snapshot header, then for a quorum that may change: version of KRaft (5), voters (6)
    data batches:  value = frame version varint 1 | kind varint | version varint | fields of the kind
                       0 broker      id int32 | …
                       2 topic       name compact string | topic id uuid
                       3 partition   number int32 | topic id uuid | replicas, in sync, leaving, joining: compact int32
                                     | leader int32 | leader epoch int32 | partition epoch int32 | …
                      15 producer ids  broker id int32 | broker epoch int64 | next producer id int64
                      27 controller  id int32 | …
    control batch: snapshot footer
"""

import re
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final
from uuid import UUID

from tierd.errors import CorruptRecordError, InvalidRecordError
from tierd.log import ControlRecordType, RecordBatch, iter_batches
from tierd.restore.catalogue.record_fields import RecordFields

_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_FRAME_VERSION: Final = 1


class MetadataRecordKind(IntEnum):
    """Kind of a metadata record; the others are not read."""

    BROKER = 0
    TOPIC = 2
    PARTITION = 3
    PRODUCER_IDS = 15
    CONTROLLER = 27


@dataclass(frozen=True, slots=True)
class RegisteredPartition:
    """Partition as the controller knew it.

    Attributes:
        replicas: node ids, the preferred leader first.
        leader_epoch: epoch of the last leader.
    """

    replicas: tuple[int, ...]
    leader_epoch: int


@dataclass(slots=True, kw_only=True)
class ClusterSnapshot:
    """Content of a snapshot of the cluster metadata.

    Attributes:
        name: of its file.
        end_offset: of the metadata log, exclusive.
        epoch: of the quorum.
        controllers: node ids of the quorum: its voters, or where the snapshot does not name them, the controllers that
            have registered.
        brokers: node ids of registered brokers.
        topics: names by topic id.
        partitions: by topic id and number.
        next_producer_id: smallest producer id that no broker was given yet.
    """

    name: str
    end_offset: int
    epoch: int
    controllers: set[int] = field(default_factory=set)
    brokers: set[int] = field(default_factory=set)
    topics: dict[UUID, str] = field(default_factory=dict)
    partitions: dict[tuple[UUID, int], RegisteredPartition] = field(default_factory=dict)
    next_producer_id: int = 0


def parse_cluster_snapshot(name: str, content: bytes) -> ClusterSnapshot:
    """Return what a snapshot says; blocking for a large one.

    Args:
        name: of its file, ``<end offset>-<epoch>.checkpoint``.
        content: the whole file.

    Raises:
        CorruptRecordError: it is damaged, is cut off, or has another form than Kafka 3.9 and 4.x write.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise CorruptRecordError(name, 0, "the name is not that of a snapshot")
    snapshot = ClusterSnapshot(name=name, end_offset=int(found[1]), epoch=int(found[2]))
    voters: set[int] = set()
    end, is_whole = 0, False
    for batch in iter_batches(content, name=name):
        end = batch.end_position
        for record in batch.checked().records():
            if batch.is_control:
                is_whole = _follow_control(batch, record.key, record.value, voters) or is_whole
            elif record.value is not None:
                _follow(snapshot, batch, record.value)
    if end != len(content) or not is_whole:
        raise CorruptRecordError(name, end, "the snapshot is cut off")
    snapshot.controllers = voters or snapshot.controllers
    return snapshot


def _follow_control(batch: RecordBatch, key: bytes | None, value: bytes | None, voters: set[int]) -> bool:
    """Note the voters of a control record, and return True for the footer of the snapshot."""
    key_fields = _fields(batch, key or b"")
    key_fields.number(">h")
    kind = key_fields.number(">h")
    if kind == ControlRecordType.KRAFT_VOTERS:
        voters.clear()
        voters.update(_voters(_fields(batch, value or b"")))
    return kind == ControlRecordType.SNAPSHOT_FOOTER


def _voters(fields: RecordFields) -> list[int]:
    """Read the voters of a quorum that may change (KIP-853)."""
    fields.number(">h")
    found = []
    for _ in range(fields.unsigned_varint() - 1):
        found.append(fields.number(">i"))
        fields.uuid()  # directory id
        for _ in range(fields.unsigned_varint() - 1):  # addresses: name, host, port
            fields.compact_text()
            fields.compact_text()
            fields.number(">H")
            list(fields.tagged())
        fields.number(">h")  # the versions of KRaft that the voter knows, from and to
        fields.number(">h")
        list(fields.tagged())
        list(fields.tagged())
    return found


def _follow(snapshot: ClusterSnapshot, batch: RecordBatch, value: bytes) -> None:
    fields = _fields(batch, value)
    if (frame := fields.unsigned_varint()) != _FRAME_VERSION:
        raise InvalidRecordError(batch.name, batch.position, f"frame version {frame} of a metadata record")
    kind = fields.unsigned_varint()
    fields.unsigned_varint()  # later versions of a record add fields behind those that are read here
    match kind:
        case MetadataRecordKind.BROKER:
            snapshot.brokers.add(fields.number(">i"))
        case MetadataRecordKind.CONTROLLER:
            snapshot.controllers.add(fields.number(">i"))
        case MetadataRecordKind.TOPIC:
            topic = fields.compact_text()
            snapshot.topics[fields.uuid()] = topic
        case MetadataRecordKind.PARTITION:
            number, topic_id, replicas = fields.number(">i"), fields.uuid(), fields.compact_numbers()
            for _ in ("in sync", "leaving", "joining"):
                fields.compact_numbers()
            fields.number(">i")  # the leader
            snapshot.partitions[topic_id, number] = RegisteredPartition(replicas, fields.number(">i"))
        case MetadataRecordKind.PRODUCER_IDS:
            fields.number(">i")
            fields.number(">q")
            snapshot.next_producer_id = fields.number(">q")


def _fields(batch: RecordBatch, data: bytes) -> RecordFields:
    return RecordFields(data, lambda problem: InvalidRecordError(batch.name, batch.position, problem))
