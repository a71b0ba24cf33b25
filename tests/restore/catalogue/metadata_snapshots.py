"""Snapshots of the cluster metadata as controllers write them."""

import struct
from collections.abc import Mapping, Sequence
from uuid import UUID

from tests.restore.catalogue.offsets_log import unsigned_varint
from tierd.log import BatchBuilder, ControlRecordType, NewRecord, encode_batch
from tierd.model import TopicIdPartition

NAME = "00000000000000000420-0000000007.checkpoint"
_NO_TAGS = b"\x00"


def compact(value: str) -> bytes:
    """Return a compact string."""
    encoded = value.encode()
    return unsigned_varint(len(encoded) + 1) + encoded


def numbers(values: Sequence[int]) -> bytes:
    """Return a compact array of ``int32``."""
    return unsigned_varint(len(values) + 1) + b"".join(struct.pack(">i", each) for each in values)


def metadata_record(kind: int, fields: bytes, *, version: int = 0, frame: int = 1) -> bytes:
    """Return the value of a metadata record."""
    return unsigned_varint(frame) + unsigned_varint(kind) + unsigned_varint(version) + fields


def broker(node_id: int) -> bytes:
    """Return the registration of a broker, with more fields than are read."""
    return metadata_record(0, struct.pack(">i", node_id) + bytes(16) + struct.pack(">q", 5) + b"\x01\x01" + _NO_TAGS)


def controller(node_id: int) -> bytes:
    """Return the registration of a controller."""
    return metadata_record(27, struct.pack(">i", node_id) + bytes(16) + b"\x00\x01\x01" + _NO_TAGS)


def topic(name: str, topic_id: UUID) -> bytes:
    """Return a topic."""
    return metadata_record(2, compact(name) + topic_id.bytes + _NO_TAGS)


def partition(number: int, topic_id: UUID, *, replicas: Sequence[int], leader_epoch: int, version: int = 1) -> bytes:
    """Return a partition, all of whose replicas are in sync."""
    fields = struct.pack(">i", number) + topic_id.bytes + numbers(replicas) + numbers(replicas) + numbers(()) + b"\x00"
    fields += struct.pack(">iii", replicas[0], leader_epoch, 3)
    if version >= 1:
        fields += unsigned_varint(len(replicas) + 1) + bytes(16) * len(replicas)
    return metadata_record(3, fields + _NO_TAGS, version=version)


def producer_ids(next_producer_id: int) -> bytes:
    """Return the smallest producer id that was not given to a broker."""
    return metadata_record(15, struct.pack(">iqq", 1, 5, next_producer_id) + _NO_TAGS)


def voter(node_id: int) -> bytes:
    """Return a voter of a quorum that may change, with one address."""
    address = compact("CONTROLLER") + compact("localhost") + struct.pack(">H", 9093) + _NO_TAGS
    versions = struct.pack(">hh", 0, 1) + _NO_TAGS
    return struct.pack(">i", node_id) + bytes(16) + unsigned_varint(2) + address + versions + _NO_TAGS


def control_batch(records: Sequence[tuple[ControlRecordType, bytes]], *, base_offset: int) -> bytes:
    """Return a batch of control records."""
    builder = BatchBuilder(base_offset=base_offset, is_control=True, leader_epoch=7)
    for kind, value in records:
        builder.append_control(kind, value, timestamp_ms=1)
    return builder.build()


def snapshot_of(records: Sequence[bytes], *, voters: Sequence[int] = (), has_footer: bool = True) -> bytes:
    """Return a snapshot with these metadata records, in two batches."""
    header = [(ControlRecordType.SNAPSHOT_HEADER, struct.pack(">hq", 0, 1) + _NO_TAGS)]
    if voters:
        header.append((ControlRecordType.KRAFT_VERSION, struct.pack(">hh", 0, 1) + _NO_TAGS))
        value = struct.pack(">h", 0) + unsigned_varint(len(voters) + 1) + b"".join(map(voter, voters)) + _NO_TAGS
        header.append((ControlRecordType.KRAFT_VOTERS, value))
    content, offset = control_batch(header, base_offset=0), len(header)
    middle = max(len(records) // 2, 1)
    for some in (records[:middle], records[middle:]):
        if some:
            content += encode_batch([NewRecord(None, each, 1) for each in some], base_offset=offset, leader_epoch=7)
            offset += len(some)
    if has_footer:
        footer = [(ControlRecordType.SNAPSHOT_FOOTER, struct.pack(">h", 0) + _NO_TAGS)]
        content += control_batch(footer, base_offset=offset)
    return content


def cluster_snapshot(
    partitions: Mapping[TopicIdPartition, Sequence[int]],
    *,
    controllers: Sequence[int] = (1,),
    brokers: Sequence[int] = (1,),
    voters: Sequence[int] = (),
    leader_epoch: int = 0,
    next_producer_id: int = 0,
) -> bytes:
    """Return the snapshot of a cluster with these replicas of partitions."""
    topics = {each.topic_id: each.topic for each in partitions}
    records = [controller(each) for each in controllers] + [broker(each) for each in brokers]
    records += [topic(name, topic_id) for topic_id, name in topics.items()]
    records += [
        partition(each.partition, each.topic_id, replicas=replicas, leader_epoch=leader_epoch)
        for each, replicas in partitions.items()
    ]
    if next_producer_id:
        records.append(producer_ids(next_producer_id))
    return snapshot_of(records, voters=voters)
