"""Tiers for planning, described by the sizes and ages of their segments."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from tests.fakes.remote_segments import FINISHED, PARTITION, SESSION, segment, step
from tierd.metadata import Claim, PartitionRow, PartitionView
from tierd.model import Lineage, RemoteLogSegmentMetadata, TopicIdPartition
from tierd.pipeline.planning import Candidate, CleaningPolicy, Proposal, Skipped, plan_partition

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
COMPACTED = CleaningPolicy(compacts=True)


def remote(
    start: int,
    end: int,
    *,
    epochs: Mapping[int, int] | int = 0,
    size: int = 100,
    newest_ms: int = 1,
    partition: TopicIdPartition = PARTITION,
) -> RemoteLogSegmentMetadata:
    """Return a segment of offsets ``start`` to ``end``, both inclusive, whose copy is finished."""
    begun = segment(start, end, epochs, size_bytes=size, partition=partition)
    return replace(begun, max_timestamp_ms=newest_ms, state=FINISHED)


def tier(*sizes: int, records: int = 10, newest_ms: Iterable[int] = ()) -> list[RemoteLogSegmentMetadata]:
    """Return neighbours of ``records`` offsets each, with those sizes."""
    ages = list(newest_ms) or [1] * len(sizes)
    return [
        remote(number * records, number * records + records - 1, size=size, newest_ms=ages[number])
        for number, size in enumerate(sizes)
    ]


def view_of(
    segments: Iterable[RemoteLogSegmentMetadata],
    *,
    log_start: int | None = None,
    compacted_to: int | None = None,
    partition: TopicIdPartition = PARTITION,
) -> PartitionView:
    """Return the metadata after these segments were copied one after the other."""
    row = PartitionRow(
        topic=partition.topic,
        revision=1,
        claim=Claim(5, 1, SESSION),
        log_start_offset=log_start,
        compacted_to=compacted_to,
    )
    view = PartitionView(partition, row)
    for metadata in segments:
        begun = replace(metadata, state=type(metadata.state).COPY_SEGMENT_STARTED)
        view = view.with_added(begun).view
        view = view.with_updated(step(begun, metadata.state)).view if metadata.state is not begun.state else view
    return view


def candidate(
    segments: Iterable[RemoteLogSegmentMetadata],
    policy: CleaningPolicy = COMPACTED,
    *,
    lineage: Iterable[tuple[int, int]] = (),
    log_start: int | None = None,
    compacted_to: int | None = None,
    erased_keys: frozenset[bytes] = frozenset(),
    searched: frozenset[UUID] = frozenset(),
    partition: TopicIdPartition = PARTITION,
) -> Candidate:
    """Return a partition with that tier."""
    view = view_of(segments, log_start=log_start, compacted_to=compacted_to, partition=partition)
    return Candidate(view=view, lineage=Lineage.of(lineage), policy=policy, erased_keys=erased_keys, searched=searched)


def planned(found: Candidate, *, now_ms: int = NOW_MS, last_stable_offset: int | None = None) -> Proposal:
    """Return the proposal for a candidate that is not skipped."""
    plan = plan_partition(found, now_ms=now_ms, last_stable_offset=last_stable_offset)
    assert isinstance(plan, Proposal), plan
    return plan


def skipped(found: Candidate, *, now_ms: int = NOW_MS, last_stable_offset: int | None = None) -> str:
    """Return the reason to skip a candidate."""
    plan = plan_partition(found, now_ms=now_ms, last_stable_offset=last_stable_offset)
    assert isinstance(plan, Skipped), plan
    return plan.reason


def other_partition(number: int) -> TopicIdPartition:
    """Return a partition of another topic."""
    return TopicIdPartition(UUID(int=100 + number), f"topic-{number}", 0)
