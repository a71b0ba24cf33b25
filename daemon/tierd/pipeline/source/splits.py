"""Division of ranges of offsets into tasks of about the same size. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tierd.log import AbortedTransaction
from tierd.metadata import ReadableRange
from tierd.model import TopicPartition
from tierd.pipeline.source.local_tail import LocalTail


@dataclass(frozen=True, slots=True)
class Part:
    """Offsets ``[start_offset, end_offset)`` that lie in one place.

    Attributes:
        source: the remote segment that holds them, or the local log.
        size_bytes: bytes to be fetched for them, about.
    """

    source: ReadableRange | LocalTail
    start_offset: int
    end_offset: int
    size_bytes: int

    def cut(self, start_offset: int, end_offset: int) -> "Part":
        """Return the part in a narrower range, its size in proportion."""
        start, end = max(self.start_offset, start_offset), min(self.end_offset, end_offset)
        share = (end - start) / (self.end_offset - self.start_offset)
        return Part(self.source, start, end, round(self.size_bytes * share))


@dataclass(frozen=True, slots=True)
class Split:
    """Work of one task: exactly the records with an offset in ``[start_offset, end_offset)``. Picklable.

    Attributes:
        parts: locations of the records, ascending.
        aborted: every aborted transaction that touches the records, where only committed records are wanted.
    """

    name: TopicPartition
    start_offset: int
    end_offset: int
    parts: tuple[Part, ...]
    aborted: tuple[AbortedTransaction, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Return the bytes to be fetched, about."""
        return sum(part.size_bytes for part in self.parts)


@dataclass(frozen=True, slots=True)
class QuerySpan:
    """Range of one partition that a query reads: ``[start_offset, end_offset)``, and its locations, ascending."""

    name: TopicPartition
    start_offset: int
    end_offset: int
    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """Return the bytes to be fetched, about."""
        return sum(part.size_bytes for part in self.parts)


def plan_splits(
    spans: Sequence[QuerySpan], *, target_bytes: int, min_splits: int | None, max_records: int | None
) -> list[Split]:
    """Cut ``spans`` so that no task has much more to do than another.

    Args:
        spans: ranges to be read; an empty one gives no task.
        target_bytes: bytes that a task should fetch, about.
        min_splits: least number of tasks, where there are enough offsets.
        max_records: offsets that a task may have at most.
    """
    spans = [span for span in spans if span.parts]
    total = sum(span.size_bytes for span in spans)
    splits: list[Split] = []
    for span in spans:
        count = -(-span.size_bytes // target_bytes)
        if min_splits is not None:
            share = span.size_bytes / total if total else 1 / len(spans)
            count = max(count, -int(-min_splits * share // 1))
        splits += _cut(span, max(count, 1), max_records)
    return splits


def _cut(span: QuerySpan, count: int, max_records: int | None) -> Iterator[Split]:
    places = [span.parts[0].start_offset, *_places(span.parts, count), span.parts[-1].end_offset]
    for start, end in pairwise(sorted(set(places))):
        step = end - start if max_records is None else max_records
        for first in range(start, end, step):
            last = min(first + step, end)
            parts = tuple(p.cut(first, last) for p in span.parts if p.start_offset < last and p.end_offset > first)
            if parts:
                yield Split(span.name, first, last, parts)


def _places(parts: Iterable[Part], count: int) -> Iterator[int]:
    """Yield the offsets at which ``parts`` come apart into ``count`` pieces of one size."""
    weighed = [(part, max(part.size_bytes, 1)) for part in parts]
    share = sum(weight for _, weight in weighed) / count
    before, wanted = 0.0, share
    for part, weight in weighed:
        while wanted <= before + weight:
            within = (wanted - before) / weight * (part.end_offset - part.start_offset)
            yield part.start_offset + round(within)
            wanted += share
        before += weight
