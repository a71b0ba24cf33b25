"""Changes of a partition's epochs by an event: one change for each epoch that the segments of the event mention."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from tierd.metadata.views import epoch_state
from tierd.metadata.views.epoch_state import EpochChange, EpochRange, RemoteLogLeaderEpochState
from tierd.metadata.views.partition_lookups import NO_STATE, PartitionLookups
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState


def begun(view: PartitionLookups, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[EpochChange, ...]:
    """Return the changes when copies begin."""
    return tuple(
        epoch_state.started(view.epochs.get(epoch, NO_STATE), epoch, *ids)
        for epoch, ids in _ids_by_epoch(segments).items()
    )


def stepped(
    view: PartitionLookups, metadata: RemoteLogSegmentMetadata, target: RemoteLogSegmentState
) -> tuple[EpochChange, ...]:
    """Return the changes when a segment takes a step to any state but the first."""
    return tuple(
        _stepped(view, metadata.segment.id, target, span, view.epochs.get(span.epoch, NO_STATE))
        for span in epoch_state.ranges_of(metadata)
    )


def replaced(
    view: PartitionLookups, output: RemoteLogSegmentMetadata, inputs: Sequence[RemoteLogSegmentMetadata]
) -> tuple[EpochChange, ...]:
    """Return the changes when the deletion of ``inputs`` begins and ``output`` is finished, in one step."""
    spans = {span.epoch: span for span in epoch_state.ranges_of(output)}
    gone = _ids_by_epoch(inputs)
    return tuple(
        epoch_state.replaced(
            view.epochs.get(epoch, NO_STATE),
            epoch,
            inputs=gone.get(epoch, ()),
            output=(output.segment.id, spans[epoch]) if epoch in spans else None,
            range_of=partial(view.range_in, epoch),
            strict_kafka_compat=view.strict_kafka_compat,
        )
        for epoch in sorted(spans.keys() | gone.keys())
    )


def applied(view: PartitionLookups, changes: Sequence[EpochChange]) -> Mapping[int, RemoteLogLeaderEpochState]:
    """Return the epochs after ``changes``, without those whose state holds nothing that must be kept."""
    epochs = {**view.epochs, **{change.epoch: change.state for change in changes}}
    for change in changes:
        if change.state.is_blank():
            del epochs[change.epoch]
    return epochs


def _ids_by_epoch(segments: Sequence[RemoteLogSegmentMetadata]) -> Mapping[int, list[UUID]]:
    by_epoch: defaultdict[int, list[UUID]] = defaultdict(list)
    for metadata in segments:
        for entry in metadata.segment_leader_epochs:
            by_epoch[entry.epoch].append(metadata.segment.id)
    return by_epoch


def _stepped(
    view: PartitionLookups,
    segment_id: UUID,
    target: RemoteLogSegmentState,
    span: EpochRange,
    state: RemoteLogLeaderEpochState,
) -> EpochChange:
    match target:
        case RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
            return epoch_state.finished(
                state,
                segment_id,
                span,
                range_of=partial(view.range_in, span.epoch),
                strict_kafka_compat=view.strict_kafka_compat,
            )
        case RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
            return epoch_state.delete_started(state, segment_id, span)
        case _:
            return epoch_state.delete_finished(state, segment_id, span)
