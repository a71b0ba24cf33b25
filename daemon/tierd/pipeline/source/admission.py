"""End of a micro-batch. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from tierd.model import TopicPartition
from tierd.pipeline.source.splits import QuerySpan

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Admission:
    """Limits of a micro-batch; None: no limit.

    Attributes:
        max_offsets: over all partitions.
        max_bytes: stored bytes over all partitions, about.
    """

    max_offsets: int | None = None
    max_bytes: int | None = None

    @property
    def is_unlimited(self) -> bool:
        """Return True if everything is admitted."""
        return self.max_offsets is None and self.max_bytes is None


def admitted(
    spans: Mapping[TopicPartition, QuerySpan], starts: Offsets, limits: Admission
) -> dict[TopicPartition, int]:
    """Return the end of the next micro-batch in each partition, exclusive; each gets its share of what is waiting.

    A partition with waiting offsets moves on by one offset at least, so that every query comes to its end.

    Args:
        spans: ranges that wait.
        starts: begin of the batch by partition; partitions without a span stay there.
        limits: of the batch.
    """
    waiting = {name: span for name, span in spans.items() if span.end_offset > starts[name]}
    offsets = sum(span.end_offset - starts[name] for name, span in waiting.items())
    share_of_offsets = _share(limits.max_offsets, offsets)
    share_of_bytes = _share(limits.max_bytes, sum(span.size_bytes for span in waiting.values()))
    ends = dict(starts)
    for name, span in waiting.items():
        start = starts[name]
        by_offsets = start + int((span.end_offset - start) * share_of_offsets)
        ends[name] = max(min(by_offsets, _end_of_bytes(span, share_of_bytes)), start + 1)
    return ends


def _share(limit: int | None, waiting: int) -> float:
    return 1.0 if limit is None or limit >= waiting else limit / waiting


def _end_of_bytes(span: QuerySpan, share: float) -> int:
    """Return the offset at which the first ``share`` of a span's bytes ends, whatever share of the offsets it is."""
    left_bytes = span.size_bytes * share
    for part in span.parts:
        if part.size_bytes > left_bytes:
            return part.start_offset + int((part.end_offset - part.start_offset) * left_bytes / part.size_bytes)
        left_bytes -= part.size_bytes
    return span.end_offset
