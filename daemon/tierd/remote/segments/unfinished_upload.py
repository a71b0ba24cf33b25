"""UnfinishedSegmentUpload: an upload that was begun and not ended, with the partition and segment of its key."""

from typing import NamedTuple, Self
from uuid import UUID

from tierd.model import uuid_to_text
from tierd.remote.object_keys import ObjectKeyFactory
from tierd.remote.object_store import UnfinishedUpload


class UnfinishedSegmentUpload(NamedTuple):
    """Unfinished upload below our prefix.

    Attributes:
        upload: as the store lists it.
        topic_id: in Kafka's form; None where the key is not that of an object of a partition.
        segment_id: None where the object is a log start, or ``topic_id`` is None.
        partition: None where ``topic_id`` is.
    """

    upload: UnfinishedUpload
    topic_id: str | None
    segment_id: UUID | None
    partition: int | None = None

    @classmethod
    def of(cls, upload: UnfinishedUpload, keys: ObjectKeyFactory) -> Self:
        """Return the upload with what its key tells."""
        if (key := keys.parse(upload.key)) is not None:
            return cls(upload, key.topic_id, key.segment_id, key.partition)
        if (partition := keys.parse_log_start(upload.key)) is not None:
            return cls(upload, uuid_to_text(partition.topic_id), None, partition.partition)
        return cls(upload, None, None)
