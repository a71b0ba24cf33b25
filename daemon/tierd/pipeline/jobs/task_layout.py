"""Division of an order's work into Spark tasks. Values only.

::

    inputs of all partitions     s0 s1 s2 | s0 s1 | s0 ...
    splits, one task each        [s0 s1][s2 | s0 s1][s0 ...     what is read together when keys are looked for
    buckets of keys              0 1 2 3 4 5 ...                a large partition has many, a small one a share of one
    groups, one task each        [s0 s1][s2]| [s0 s1]| [s0 ...  numbered through all partitions
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tierd.model import RemoteLogSegmentMetadata
from tierd.pipeline.planning import PartitionWork, WorkOrder

BUCKET_OFFSETS: Final = 2 << 20  # whose keys are together in one worker's memory: 48 MiB of them, a few times
MAX_BUCKETS: Final = 4096
_MIN_SPLIT_BYTES: Final = 8 << 20
_MAX_SPLIT_BYTES: Final = 256 << 20
_SPLITS_PER_CORE: Final = 4
WAVE_BYTES_PER_CORE: Final = 64 << 20
MAX_WAVE_GROUPS: Final = 256


@dataclass(frozen=True, slots=True, order=True)
class GroupPlace:
    """Place of a group: its partition's index in the order, and its place in that partition's groups."""

    index: int
    group: int


@dataclass(frozen=True, slots=True, order=True)
class InputPlace:
    """Place of a segment: its partition's index in the order, and its place in that partition's inputs."""

    index: int
    segment: int


@dataclass(frozen=True, slots=True)
class BucketRange:
    """Buckets that one partition's keys go to: ``count`` of them, from ``first`` on."""

    first: int
    count: int


@dataclass(frozen=True, slots=True)
class InputSplit:
    """Inputs that one task reads, in the order of the partitions and of their offsets."""

    inputs: tuple[InputPlace, ...]
    size_bytes: int


def group_places(order: WorkOrder) -> tuple[GroupPlace, ...]:
    """Return every group of the order; the place of a group in the result is its number."""
    return tuple(GroupPlace(work.index, group) for work in order.partitions for group in range(len(work.groups)))


def cut_splits(works: Iterable[PartitionWork], *, parallelism: int) -> tuple[InputSplit, ...]:
    """Cut the inputs into splits of about one size, several per core, within fixed limits of bytes."""
    inputs = [(InputPlace(work.index, at), row.size_bytes) for work in works for at, row in enumerate(work.inputs)]
    total = sum(size for _, size in inputs)
    limit = min(max(total // (parallelism * _SPLITS_PER_CORE), _MIN_SPLIT_BYTES), _MAX_SPLIT_BYTES)
    splits: list[InputSplit] = []
    taken: list[InputPlace] = []
    taken_bytes = 0
    for place, size_bytes in inputs:
        if taken and taken_bytes + size_bytes > limit:
            splits.append(InputSplit(tuple(taken), taken_bytes))
            taken, taken_bytes = [], 0
        taken.append(place)
        taken_bytes += size_bytes
    return (*splits, InputSplit(tuple(taken), taken_bytes)) if taken else tuple(splits)


def bucket_count(works: Iterable[PartitionWork], *, parallelism: int) -> int:
    """Return the number of buckets that the keys of all partitions are spread over."""
    offsets = sum(input_offsets(work.inputs) for work in works)
    return min(max(-(-offsets // BUCKET_OFFSETS), parallelism), MAX_BUCKETS)


def bucket_ranges(works: Iterable[PartitionWork], buckets: int) -> dict[int, BucketRange]:
    """Share the buckets among partitions in proportion to offsets; small neighbours share a bucket."""
    sizes = {work.index: input_offsets(work.inputs) for work in works}
    total = max(sum(sizes.values()), 1)
    ranges: dict[int, BucketRange] = {}
    before = 0
    for index, size in sizes.items():
        first = min(before * buckets // total, buckets - 1)
        last = min((before + size) * buckets // total, buckets - 1)
        ranges[index] = BucketRange(first, last - first + 1)
        before += size
    return ranges


def input_bytes(inputs: Iterable[RemoteLogSegmentMetadata]) -> int:
    """Return the bytes of the inputs' logs."""
    return sum(row.size_bytes for row in inputs)


def input_offsets(inputs: Iterable[RemoteLogSegmentMetadata]) -> int:
    """Return the number of offsets from the inputs' starts to their ends, which bounds the number of records."""
    return sum(row.end_offset - row.start_offset + 1 for row in inputs)


def total_bytes(works: Iterable[PartitionWork]) -> int:
    """Return the bytes of all inputs of some partitions."""
    return sum(input_bytes(work.inputs) for work in works)


def cut_waves(
    sizes: Sequence[tuple[GroupPlace, int]], *, parallelism: int, wave_bytes: int = WAVE_BYTES_PER_CORE
) -> list[tuple[GroupPlace, ...]]:
    """Cut groups into the sets that are rewritten by one job, in order.

    A wave has a group for every core, up to ``MAX_WAVE_GROUPS``, except for the last wave. Small groups are taken
    together until they are worth a job, so that commits come early and scratch files are few.

    Args:
        sizes: each group and the bytes of its inputs.
        parallelism: number of tasks that run at once.
        wave_bytes: bytes per core that a wave may read.
    """
    waves: list[tuple[GroupPlace, ...]] = []
    taken: list[GroupPlace] = []
    taken_bytes = 0
    for place, size_bytes in sizes:
        is_full = len(taken) >= parallelism and taken_bytes + size_bytes > wave_bytes * parallelism
        if is_full or len(taken) >= MAX_WAVE_GROUPS:
            waves.append(tuple(taken))
            taken, taken_bytes = [], 0
        taken.append(place)
        taken_bytes += size_bytes
    return [*waves, tuple(taken)] if taken else waves
