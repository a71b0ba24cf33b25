"""UnfinishedSegmentUpload: an upload that was begun and not ended, and whose it seems to be."""

from typing import NamedTuple, Self
from uuid import UUID

from tierd.remote.keys import SegmentKey
from tierd.remote.object_store import UnfinishedUpload


class UnfinishedSegmentUpload(NamedTuple):
    """An unfinished upload below our prefix; the ids are None where the key is not that of a segment's object."""

    upload: UnfinishedUpload
    topic_id: str | None
    segment_id: UUID | None
    partition: int | None = None

    @classmethod
    def of(cls, upload: UnfinishedUpload, key: SegmentKey | None) -> Self:
        """The upload, with what its parsed key tells."""
        if key is None:
            return cls(upload, None, None)
        return cls(upload, key.topic_id, key.segment_id, key.partition)
