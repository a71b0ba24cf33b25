"""Tier: metadata of one partition, changed by the commands of a transcript."""

from dataclasses import replace
from uuid import UUID

from tests.fakes.remote_segments import FINISHED, PARTITION, SESSION, segment, step
from tests.transcripts.transcript import TranscriptError
from tests.transcripts.units import show_offsets
from tierd.metadata import Claim, PartitionRow, PartitionView
from tierd.model import (
    Lineage,
    OffsetRange,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SoftDelete,
    TopicIdPartition,
)


class Tier:
    """``PartitionView`` with every change that a transcript makes to it."""

    def __init__(self, partition: TopicIdPartition = PARTITION) -> None:
        """Begin with an empty tier."""
        self.view = PartitionView(
            partition, PartitionRow(topic=partition.topic, revision=1, claim=Claim(5, 1, SESSION))
        )
        self._copies = 0

    def begin(
        self, offsets: OffsetRange, epochs: Lineage, *, size_bytes: int, newest_ms: int, now_ms: int
    ) -> RemoteLogSegmentMetadata:
        """Begin a copy; without ``epochs`` all of it is of leader epoch 0."""
        starts = {entry.epoch: entry.start_offset for entry in epochs.entries} or 0
        self._copies += 1
        begun = segment(
            offsets.start,
            offsets.end,
            starts,
            size_bytes=size_bytes,
            partition=self.view.partition,
            segment_id=UUID(int=self._copies),
        )
        begun = replace(begun, max_timestamp_ms=newest_ms, event_timestamp_ms=now_ms)
        self.view = self.view.with_added(begun).view
        return begun

    def finish(self, metadata: RemoteLogSegmentMetadata, *, now_ms: int) -> None:
        """Finish a copy: readers find it from now on."""
        self._step(metadata, FINISHED, now_ms=now_ms)

    def begin_deletion(self, metadata: RemoteLogSegmentMetadata, soft_delete: SoftDelete, *, now_ms: int) -> None:
        """Begin a deletion that can be undone until its grace is over."""
        self._step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, now_ms=now_ms, soft_delete=soft_delete)

    def remove(self, metadata: RemoteLogSegmentMetadata, *, now_ms: int) -> None:
        """Delete a segment to the end."""
        if metadata.state is not RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
            self._step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_STARTED, now_ms=now_ms)
        self._step(metadata, RemoteLogSegmentState.DELETE_SEGMENT_FINISHED, now_ms=now_ms)

    def undelete(self, metadata: RemoteLogSegmentMetadata, log_start_offset: int | None, *, now_ms: int) -> None:
        """Undelete a segment whose deletion has begun."""
        update = step(metadata, FINISHED, event_timestamp_ms=now_ms)
        self.view = self.view.with_undeleted(update, log_start_offset=log_start_offset).view

    def move_log_start(self, offset: int) -> None:
        """Move the log start forward."""
        self.view = self.view.with_log_start_offset(offset).view

    def note_compacted(self, offset: int) -> None:
        """Note that the partition is clean up to ``offset``."""
        self.view = self.view.with_compacted_to(offset).view

    def at(self, offsets: OffsetRange) -> RemoteLogSegmentMetadata:
        """Return the row of those offsets."""
        for metadata in self.view.list():
            if shown(metadata) == show_offsets(offsets):
                return metadata
        raise TranscriptError(f"no segment {show_offsets(offsets)} is in the tier")

    def _step(
        self,
        metadata: RemoteLogSegmentMetadata,
        state: RemoteLogSegmentState,
        *,
        now_ms: int,
        soft_delete: SoftDelete | None = None,
    ) -> None:
        update = replace(step(metadata, state, event_timestamp_ms=now_ms), soft_delete=soft_delete)
        self.view = self.view.with_updated(update).view


def shown(metadata: RemoteLogSegmentMetadata) -> str:
    """Return the offsets of a segment: its name in transcripts."""
    return f"{metadata.start_offset}-{metadata.end_offset}"
