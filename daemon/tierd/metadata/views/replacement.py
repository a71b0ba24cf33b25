"""Conditions under which an output takes the place of its inputs, so that readers find the same offsets as before.

::

    inputs   FINISHED ──────────► DELETE_STARTED, soft, "replaced"     ┐ one batch: readers see
    output   STARTED  ──────────► FINISHED                             ┘ the inputs or the output

A condition that does not hold is an error before anything changes, and leaves everything as it was.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from tierd.errors import (
    InvalidMetadataError,
    InvalidSegmentTransitionError,
    RefusedError,
    RemoteResourceNotFoundError,
    TierErrorCode,
)
from tierd.metadata.views import epoch_state
from tierd.metadata.views.partition_lookups import NO_STATE, PartitionLookups
from tierd.model import OffsetRange, RemoteLogSegmentMetadata, RemoteLogSegmentState, SoftDelete, uuid_to_text

_FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
_DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
_START_AGAIN = "nothing to do: the next run begins with what is there then"


def is_replaced_already(
    view: PartitionLookups, output: RemoteLogSegmentMetadata, inputs: Sequence[RemoteLogSegmentMetadata]
) -> bool:
    """Return True if this very replacement has happened: the batch was applied, and the request is repeated."""
    present = view.segments.get(output.segment.id)
    if present is None or _lasting(present) != _lasting(output):
        return False
    return all((now := view.segments.get(each.segment.id)) is None or now.state is _DELETING for each in inputs)


def require_replaceable(
    view: PartitionLookups,
    output: RemoteLogSegmentMetadata,
    inputs: Sequence[RemoteLogSegmentMetadata],
    soft_delete: SoftDelete,
) -> None:
    """Raise unless ``output`` may be finished in the place of ``inputs``.

    Raises:
        InvalidMetadataError: the request contradicts itself, or what the output was begun as.
        RemoteResourceNotFoundError: the output was never begun.
        InvalidSegmentTransitionError: the output is finished already, or goes.
        RefusedError: an input is not what it was, or no reader finds it any more.
    """
    _require_sound_request(view, output, inputs, soft_delete)
    present = view.segments.get(output.segment.id)
    if present is None:
        if output.segment.id in view.tombstones:
            raise InvalidSegmentTransitionError(f"{output.segment} is deleted, cannot become {_FINISHED.name}")
        raise RemoteResourceNotFoundError(f"{output.segment}: no such segment was added")
    if present.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        raise InvalidSegmentTransitionError(f"{output.segment} is {present.state.name}: it can replace nothing")
    if _begun_as(output) != _begun_as(present):
        raise InvalidMetadataError(f"{output.segment}: offsets, epochs or origin are not those that it was begun with")
    for each in inputs:
        _require_unchanged(view, each)
    _require_covered(output, inputs)
    _require_later(present, inputs)


def require_log_start(view: PartitionLookups, output: RemoteLogSegmentMetadata, planned: int) -> None:
    """Raise where the log start was moved back to below ``planned``: what hid older records may lack in ``output``.

    Raises:
        RefusedError: records before those that the output was made of are readable again.
    """
    if (view.log_start_offset or 0) < planned:
        raise RefusedError(
            f"{output.segment}: the log starts at offset {view.log_start_offset} by now, and began at {planned} when "
            "its inputs were chosen",
            remedy=_START_AGAIN,
            code=TierErrorCode.INPUTS_CHANGED,
        )


def require_lookups_kept(
    view: PartitionLookups,
    output: RemoteLogSegmentMetadata,
    inputs: Sequence[RemoteLogSegmentMetadata],
    changes: Sequence[epoch_state.EpochChange],
) -> None:
    """Raise unless each lookup afterwards finds the segment that it found before, or ``output``.

    Kafka's algorithm (``strict_kafka_compat``) leaves holes where another copy overlaps: a segment that finishes takes
    the place of a longer one with the same start, and a shorter one that begins inside it hides its end.

    Raises:
        RefusedError: no lookup would find some of the offsets any more.
    """
    gone = {each.segment.id for each in inputs}
    for change in changes:
        state, range_of = view.epochs.get(change.epoch, NO_STATE), partial(view.range_in, change.epoch)
        before = state.answers(output.start_offset, output.end_offset, range_of=range_of)
        for offsets, found in before:
            after = change.state.answers(offsets.start, offsets.end, range_of=range_of)
            allowed = {output.segment.id} if found in gone else {found, output.segment.id}
            kept = [present for present, now in after if now in allowed]
            if not _are_covered(offsets, kept):
                raise RefusedError(
                    f"{output.segment}: no lookup would find some of the offsets {offsets.start}-{offsets.end} of "
                    f"epoch {change.epoch}, which {uuid_to_text(found)} answers for",
                    remedy=_START_AGAIN,
                    code=TierErrorCode.INPUTS_CHANGED,
                )


def _are_covered(offsets: OffsetRange, ascending: Sequence[OffsetRange]) -> bool:
    first = offsets.start
    for each in ascending:
        if each.start <= first <= each.end:
            first = each.end + 1
    return first > offsets.end


def rows_after(
    output: RemoteLogSegmentMetadata, inputs: Sequence[RemoteLogSegmentMetadata], soft_delete: SoftDelete
) -> tuple[RemoteLogSegmentMetadata, ...]:
    """Return the rows that the replacement writes; the event of all of them is that of the output."""
    gone = (
        replace(
            each,
            state=_DELETING,
            event_timestamp_ms=output.event_timestamp_ms,
            broker_id=output.broker_id,
            soft_delete=soft_delete,
        )
        for each in inputs
    )
    return (output, *gone)


def _require_sound_request(
    view: PartitionLookups,
    output: RemoteLogSegmentMetadata,
    inputs: Sequence[RemoteLogSegmentMetadata],
    soft_delete: SoftDelete,
) -> None:
    if output.state is not _FINISHED or output.soft_delete is not None:
        raise InvalidMetadataError(f"{output.segment} is {output.state.name}, an output becomes {_FINISHED.name}")
    if not soft_delete.is_replaced:
        raise InvalidMetadataError(f"inputs of {output.segment} go because they are replaced, not {soft_delete.reason}")
    ids = {output.segment.id, *(each.segment.id for each in inputs)}
    if not inputs or len(ids) != len(inputs) + 1:
        raise InvalidMetadataError(f"{output.segment} replaces nothing, itself, or a segment twice")
    if any(each.segment.topic_id_partition != view.partition for each in inputs):
        raise InvalidMetadataError(f"{output.segment} replaces a segment that is not of {view.partition}")
    if view.delete_state is not None:
        raise InvalidMetadataError(f"{view.partition} is {view.delete_state.name}: nothing of it is replaced")


def _require_unchanged(view: PartitionLookups, expected: RemoteLogSegmentMetadata) -> None:
    present = view.segments.get(expected.segment.id)
    if present is None:
        problem = "is gone"
    elif present.state is not _FINISHED:
        problem = f"is {present.state.name} by now"
    elif present != expected:
        problem = "has other metadata by now"
    elif not view.is_readable(present):
        problem = "is found by no reader any more, since another copy covers it"
    else:
        return
    raise RefusedError(
        f"{expected.segment}, which was to be replaced, {problem}",
        remedy=_START_AGAIN,
        code=TierErrorCode.INPUTS_CHANGED,
    )


def _require_covered(output: RemoteLogSegmentMetadata, inputs: Sequence[RemoteLogSegmentMetadata]) -> None:
    """Raise unless inputs without a gap and the output have the same offsets, each input's in the same epochs."""
    reached = first = min(each.start_offset for each in inputs)
    for each in sorted(inputs, key=lambda each: each.start_offset):
        if each.start_offset > reached:
            raise InvalidMetadataError(f"{output.segment}: no input has offsets {reached} to {each.start_offset - 1}")
        reached = max(reached, each.end_offset + 1)
    if (output.start_offset, output.end_offset) != (first, reached - 1):
        what = f"{output.segment} has offsets {output.start_offset}-{output.end_offset}"
        raise InvalidMetadataError(f"{what}, its inputs {first}-{reached - 1}")
    spans = {span.epoch: span for span in epoch_state.ranges_of(output)}
    for span in chain.from_iterable(map(epoch_state.ranges_of, inputs)):
        mine = spans.get(span.epoch)
        if span.first <= span.last and (mine is None or span.first < mine.first or mine.last < span.last):
            what = f"{output.segment} does not have offsets {span.first}-{span.last} of epoch {span.epoch}"
            raise InvalidMetadataError(f"{what}, which one of its inputs has")


def _require_later(begun: RemoteLogSegmentMetadata, inputs: Sequence[RemoteLogSegmentMetadata]) -> None:
    """Raise unless the output was begun after the last event of its inputs (docs/decisions/0019)."""
    newest = max(inputs, key=_age)
    if _age(begun) <= _age(newest):
        raise InvalidMetadataError(
            f"{begun.segment} was begun in leader epoch {begun.leader_epoch} at {begun.event_timestamp_ms}, not after "
            f"{newest.segment}, which it replaces: leader epoch {newest.leader_epoch}, {newest.event_timestamp_ms}",
            remedy="look at this host's clock; the next run begins anew",
        )


def _age(metadata: RemoteLogSegmentMetadata) -> tuple[int, int]:
    return metadata.leader_epoch, metadata.event_timestamp_ms


def _begun_as(metadata: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    """Return the fields that a finish must not change."""
    return (
        metadata.segment,
        metadata.start_offset,
        metadata.end_offset,
        metadata.segment_leader_epochs,
        metadata.leader_epoch,
        metadata.session_id,
    )


def _lasting(metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    """Return the metadata without the time and the broker of its event."""
    return replace(metadata, event_timestamp_ms=0, broker_id=0)
