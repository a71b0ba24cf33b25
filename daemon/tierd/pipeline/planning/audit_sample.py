"""Choice of the segments that a run audits: a sample of all readable ones, drawn anew each time. Pure."""

import math
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final
from uuid import UUID

from tierd.model import RemoteLogSegmentMetadata
from tierd.pipeline.planning.proposal import Candidate
from tierd.pipeline.planning.work_order import Group, PartitionWork, WorkKind

_LEAST_BYTES: Final = 64 << 10  # requests, manifest and indexes, however small the log is


def audit_works(
    candidates: Iterable[Candidate],
    *,
    max_bytes: int,
    but: Container[UUID],
    random: Callable[[], float],
    first_index: int,
) -> list[PartitionWork]:
    """Return the audit of a sample: one work per partition, one group per segment, numbered from ``first_index``.

    A segment is chosen by its size, so that every byte of the tier has the same chance. The first segment is taken
    whatever its size, since otherwise a segment larger than ``max_bytes`` would never be audited. Later segments that
    do not fit are passed over.

    Args:
        candidates: partitions that may be audited.
        max_bytes: bytes of the logs together; 0 for no audit. A small segment counts as 64 KiB.
        but: ids of segments that are left out.
        random: returns a number in [0, 1).
        first_index: index of the first work in the order.
    """
    if not max_bytes:
        return []
    found = [
        (place, metadata)
        for place, candidate in enumerate(candidates)
        for metadata in _readable(candidate)
        if metadata.segment.id not in but
    ]
    found.sort(key=lambda each: _sampling_key(each[1], random))
    sample: dict[int, list[RemoteLogSegmentMetadata]] = {}
    left_bytes = max_bytes
    for place, metadata in found:
        cost = max(metadata.size_bytes, _LEAST_BYTES)
        if cost <= left_bytes or not sample:
            sample.setdefault(place, []).append(metadata)
            left_bytes -= cost
    return [_work(sample[place], first_index + number) for number, place in enumerate(sorted(sample))]


def _readable(candidate: Candidate) -> Iterator[RemoteLogSegmentMetadata]:
    """Yield the segments of which readers take at least a part, one per start offset."""
    chain = candidate.chain()
    yield from chain.segments
    begins = {metadata.start_offset for metadata in chain.segments}
    for metadata in {readable.metadata.start_offset: readable.metadata for readable in chain.elsewhere}.values():
        if metadata.start_offset not in begins:
            yield metadata


def _sampling_key(metadata: RemoteLogSegmentMetadata, random: Callable[[], float]) -> float:
    """Return a random sort key; its ascending order is a choice by size without replacement (Efraimidis, Spirakis)."""
    return -math.log(1.0 - random()) / max(metadata.size_bytes, _LEAST_BYTES)


def _work(segments: list[RemoteLogSegmentMetadata], index: int) -> PartitionWork:
    inputs = tuple(sorted(segments, key=lambda metadata: metadata.start_offset))
    return PartitionWork(
        index=index,
        partition=inputs[0].segment.topic_id_partition,
        kind=WorkKind.AUDIT,
        inputs=inputs,
        groups=tuple(Group(place, place) for place in range(len(inputs))),
        first_dirty_offset=inputs[0].start_offset,
        round_end_offset=max(metadata.end_offset for metadata in inputs) + 1,
        delete_retention_ms=0,
        producer_snapshot=b"",
    )
