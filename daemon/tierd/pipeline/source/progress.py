"""How far a micro-batch goes. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from tierd.model import TopicPartition
from tierd.pipeline.source.splits import OffsetSpan

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Admission:
    """What a micro-batch may hold at most; None: no limit.

    Attributes:
        max_offsets: over all partitions.
        max_bytes: stored bytes over all partitions, about.
    """

    max_offsets: int | None = None
    max_bytes: int | None = None

    @property
    def is_unlimited(self) -> bool:
        """Whether everything is admitted."""
        return self.max_offsets is None and self.max_bytes is None


def admitted(
    spans: Mapping[TopicPartition, OffsetSpan], starts: Offsets, limits: Admission
) -> dict[TopicPartition, int]:
    """Where the next micro-batch ends in each partition, exclusive; each gets its share of what is waiting.

    A partition in which something waits goes on by one offset at least, so that every query comes to its end.

    Args:
        spans: what waits.
        starts: where the batch begins; partitions without a span stay there.
        limits: of the batch.
    """
    waiting = {name: span for name, span in spans.items() if span.end_offset > starts[name]}
    offsets = sum(span.end_offset - starts[name] for name, span in waiting.items())
    size = sum(span.size_bytes for span in waiting.values())
    shares = [1.0]
    if limits.max_offsets is not None and offsets:
        shares.append(limits.max_offsets / offsets)
    if limits.max_bytes is not None and size:
        shares.append(limits.max_bytes / size)
    share = min(shares)
    ends = dict(starts)
    for name, span in waiting.items():
        count = span.end_offset - starts[name]
        ends[name] = starts[name] + (count if share >= 1 else max(int(count * share), 1))
    return ends
