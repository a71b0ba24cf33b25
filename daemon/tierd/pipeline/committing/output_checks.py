"""Conditions under which an output may take the place of its inputs. Decisions over plain values."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tierd.metadata import Claim, PartitionView
from tierd.model import (
    EpochEntry,
    IndexType,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    uuid_to_text,
)
from tierd.remote import SegmentManifest

_GROWTH: Final = 4  # a legacy message without key and value has 26 bytes, in a batch of its own 68
_SLACK_BYTES: Final = 1 << 20


def output_epochs(inputs: Sequence[RemoteLogSegmentMetadata]) -> tuple[EpochEntry, ...]:
    """Return the lineage of neighbouring inputs together.

    Raises:
        ValueError: an input has an epoch below the last one of its neighbour.
    """
    entries: list[EpochEntry] = []
    for metadata in inputs:
        for entry in metadata.segment_leader_epochs:
            if entries and entry.epoch < entries[-1].epoch:
                raise ValueError(f"{metadata.segment} goes back from leader epoch {entries[-1].epoch} to {entry.epoch}")
            if not entries or entry.epoch > entries[-1].epoch:
                entries.append(entry)
    return tuple(entries)


def begun_output(
    segment: RemoteLogSegmentId, inputs: Sequence[RemoteLogSegmentMetadata], claim: Claim, *, now_ms: int
) -> RemoteLogSegmentMetadata:
    """Return the row of an output that begins under ``claim``, without custom metadata.

    Size, largest timestamp and ``txn_index_empty`` are provisional. The row's event is later than those of the inputs,
    because a rebuild ignores an output that is older than its inputs.

    Raises:
        ValueError: the leader epochs of the inputs go back.
    """
    newest_ms = max(metadata.event_timestamp_ms for metadata in inputs)
    return RemoteLogSegmentMetadata(
        segment=segment,
        start_offset=inputs[0].start_offset,
        end_offset=inputs[-1].end_offset,
        max_timestamp_ms=max(metadata.max_timestamp_ms for metadata in inputs),
        broker_id=claim.broker_id,
        event_timestamp_ms=max(now_ms, newest_ms + 1),
        size_bytes=sum(metadata.size_bytes for metadata in inputs),
        segment_leader_epochs=output_epochs(inputs),
        leader_epoch=claim.leader_epoch,
        session_id=claim.session_id,
    )


def finished_output(
    begun: RemoteLogSegmentMetadata, manifest: SegmentManifest, *, now_ms: int
) -> RemoteLogSegmentMetadata:
    """Return the row of an output that is committed; its event is not before that of the begun row."""
    return replace(
        manifest.completed(begun),
        state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        event_timestamp_ms=max(now_ms, begun.event_timestamp_ms),
    )


def inputs_problem(
    view: PartitionView, inputs: Sequence[RemoteLogSegmentMetadata], *, planned_log_start: int = 0
) -> str | None:
    """Return why the inputs can no longer be replaced; None when they can.

    ``planned_log_start``: log start when the inputs of a compaction were chosen.
    """
    log_start = view.log_start_offset or 0
    if log_start < planned_log_start:
        return f"the log starts at offset {log_start} by now: older records are back, which the output may not hide"
    if inputs[-1].end_offset < log_start:
        return f"the log starts at offset {log_start} by now: the inputs expire"
    for metadata in inputs:
        present = view.segment(metadata.segment.id)
        if present is None:
            return f"{metadata.segment} is gone"
        if present != metadata:
            return f"{metadata.segment} is {present.state.name} by now, or has other metadata"
        if not view.is_readable(present):
            return f"{metadata.segment} is found by no reader any more"
    return None


def output_problem(
    begun: RemoteLogSegmentMetadata, inputs: Sequence[RemoteLogSegmentMetadata], manifest: SegmentManifest
) -> str | None:
    """Return in what a manifest contradicts the begun row or its inputs; None when it fits."""
    partition = begun.segment.topic_id_partition
    expected: dict[str, object] = {
        "topic": partition.topic,
        "topic_id": uuid_to_text(partition.topic_id),
        "partition": partition.partition,
        "segment_id": uuid_to_text(begun.segment.id),
        "start_offset": begun.start_offset,
        "end_offset": begun.end_offset,
        "segment_leader_epochs": tuple((entry.epoch, entry.start_offset) for entry in begun.segment_leader_epochs),
        "leader_epoch": begun.leader_epoch,
        "session_id": str(begun.session_id),
        "copy_started_ms": begun.event_timestamp_ms,
        "replaces": (),
    }
    for name, value in expected.items():
        if (found := getattr(manifest, name)) != value:
            return f"the manifest has {name} {found!r}, the output was begun with {value!r}"
    return _impossible(inputs, manifest)


def _impossible(inputs: Sequence[RemoteLogSegmentMetadata], manifest: SegmentManifest) -> str | None:
    size_bytes, newest_ms = sum(m.size_bytes for m in inputs), max(m.max_timestamp_ms for m in inputs)
    if manifest.size_bytes > _GROWTH * size_bytes + _SLACK_BYTES:
        return f"{manifest.size_bytes} bytes cannot have come of {size_bytes}"
    if manifest.max_timestamp_ms > newest_ms:
        return f"a record of {manifest.max_timestamp_ms} is newer than the newest of the inputs, {newest_ms}"
    offsets = manifest.end_offset - manifest.start_offset + 1
    if (manifest.batch_count == 0) != (manifest.size_bytes == 0) or manifest.record_count > offsets:
        return f"{manifest.record_count} records in {manifest.batch_count} batches of {manifest.size_bytes} bytes"
    transactions = manifest.index(IndexType.TRANSACTION)
    if manifest.txn_index_empty and transactions is not None and transactions.size_bytes:
        return "it says that no transaction was aborted, and has an index of such"
    return None
