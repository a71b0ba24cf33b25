"""SegmentRow: the type of a segment's metadata inside a JSON document, by the codec of the metadata store."""

from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

from tierd.errors import InvalidMetadataError, MetadataDecodeError
from tierd.metadata import decode_segment, encode_segment
from tierd.model import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    uuid_from_text,
    uuid_to_text,
)


def _encoded(metadata: RemoteLogSegmentMetadata) -> list[str | int]:
    """Return topic id, topic, partition, segment id, and the value of the segment's row in the metadata store."""
    partition = metadata.segment.topic_id_partition
    ids = (uuid_to_text(partition.topic_id), partition.topic, partition.partition, uuid_to_text(metadata.segment.id))
    return [*ids, encode_segment(metadata).decode()]


def _decoded(value: object) -> RemoteLogSegmentMetadata:
    if isinstance(value, RemoteLogSegmentMetadata):
        return value
    match value:
        case [str(topic_id), str(topic), int(partition), str(segment_id), str(row)]:
            place = TopicIdPartition(uuid_from_text(topic_id), topic, partition)
            return _row(RemoteLogSegmentId(place, uuid_from_text(segment_id)), row)
        case _:
            raise ValueError("not a segment: topic id, topic, partition, segment id and row")


def _row(segment: RemoteLogSegmentId, row: str) -> RemoteLogSegmentMetadata:
    try:
        return decode_segment(str(segment), row.encode(), segment)[0]
    except (MetadataDecodeError, InvalidMetadataError) as error:
        raise ValueError(str(error)) from error


SegmentRow = Annotated[RemoteLogSegmentMetadata, PlainSerializer(_encoded), PlainValidator(_decoded)]
"""Segment metadata; fields of a later tierd are dropped, for leader and job are of one version."""
