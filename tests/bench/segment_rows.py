"""Rows of a partition with many finished segments, made without a manager: a million of them take seconds."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

from tierd.metadata import Claim, MetadataKeyFactory, PartitionRow, serde
from tierd.model import (
    EpochEntry,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)

CLUSTER_ID, BROKER_ID, EPOCH = "bench", 1, 3
SESSION = UUID(int=0x5E55)
KEYS = MetadataKeyFactory(CLUSTER_ID)
RECORDS = 1000  # of a segment


def partition_number(number: int) -> TopicIdPartition:
    """Return one of many partitions of a topic."""
    return TopicIdPartition(UUID(int=7), "bench", number)


def started_segment(partition: TopicIdPartition, number: int) -> RemoteLogSegmentMetadata:
    """Return the segment ``number`` of a partition, whose copy has begun."""
    start = number * RECORDS
    return RemoteLogSegmentMetadata(
        segment=RemoteLogSegmentId(partition, UUID(int=(partition.partition << 64) + number + 1)),
        start_offset=start,
        end_offset=start + RECORDS - 1,
        max_timestamp_ms=1_700_000_000_000 + number,
        broker_id=BROKER_ID,
        event_timestamp_ms=1_700_000_000_000 + number,
        size_bytes=1 << 30,
        segment_leader_epochs=(EpochEntry(EPOCH, start),),
        leader_epoch=EPOCH,
        session_id=SESSION,
        custom_metadata=b"\x01tier",
        txn_index_empty=True,
    )


def finished(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    """Return the same segment after the end of its copy."""
    return replace(metadata, state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED)


def partition_rows(partition: TopicIdPartition, segments: int) -> Iterator[tuple[str, bytes]]:
    """Return keys and values of the partition, in no order."""
    row = PartitionRow(topic=partition.topic, revision=1, claim=Claim(EPOCH, BROKER_ID, SESSION), log_start_offset=0)
    yield KEYS.index(partition), serde.encode_topic(partition.topic)
    yield KEYS.row(partition), serde.encode_row(row)
    for number in range(segments):
        metadata = finished(started_segment(partition, number))
        yield KEYS.segment(partition, metadata.segment.id), serde.encode_segment(metadata)
        yield (
            KEYS.epoch_reference(partition, EPOCH, metadata.start_offset),
            serde.encode_reference(metadata.segment.id),
        )
    yield KEYS.epoch_highest(partition, EPOCH), serde.encode_highest(segments * RECORDS - 1)
