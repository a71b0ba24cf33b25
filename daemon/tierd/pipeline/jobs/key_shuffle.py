"""Spark jobs of a run: two shuffles of packed blocks, whose result is read to rewrite the groups, audits and searches.

Blocks instead of rows: 10 million keys shuffled as rows of a data frame took over three times as long. The result of
both shuffles stays on the executors' disks as long as the RDD lives, so that groups can be rewritten some at a time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pyspark import RDD, Accumulator, Broadcast, SparkContext

from tierd.pipeline.jobs.key_blocks import KeyBlock
from tierd.pipeline.jobs.outcomes import RewriteOutcome
from tierd.pipeline.jobs.run_context import RunContext
from tierd.pipeline.jobs.scanning import InputNote, OffsetBlock, join_bucket, scan_split
from tierd.pipeline.jobs.task_layout import GroupPlace, InputSplit
from tierd.pipeline.jobs.tasks import GroupTask, rewrite

GroupRows = tuple[int, Iterable[tuple[int, OffsetBlock | InputNote]]]
Context = Broadcast[RunContext]
T = TypeVar("T")
SplitRead = Callable[[RunContext, InputSplit, Callable[[int], object]], Iterator[T]]


@dataclass(frozen=True, slots=True)
class ByteCounts:
    """Counters to which tasks add; a task that Spark runs again counts again.

    Attributes:
        read: bytes of the splits that a pass has read.
        fetched: bytes that all passes have fetched from the store.
    """

    read: Accumulator[int]
    fetched: Accumulator[int]


@dataclass(frozen=True, slots=True)
class GroupSurvey:
    """Findings of both shuffles about group ``number``.

    Attributes:
        latest: number of its records that are the latest of their keys.
        notes: notes of inputs of its partition: of all of them with the partition's first group, else of inputs of the
            group that could not be read.
    """

    number: int
    latest: int
    notes: tuple[InputNote, ...]


def shuffled_offsets(
    spark: SparkContext,
    context: Context,
    splits: Sequence[InputSplit],
    counts: ByteCounts,
    *,
    buckets: int,
    first_numbers: Mapping[int, int],
    groups: int,
) -> "RDD[GroupRows]":
    """Return the latest offsets of every group with its number, as one RDD partition per group. Nothing runs yet.

    Args:
        spark: the session.
        context: of the run.
        splits: all inputs whose keys count.
        counts: of the pass.
        buckets: number of buckets that the keys are spread over.
        first_numbers: the number of each partition's first group.
        groups: number of groups in the order.
    """
    rows = spark.parallelize(splits, max(len(splits), 1)).flatMap(partial(_read, scan_split, context, counts))
    joined = rows.partitionBy(buckets, _same).mapPartitions(partial(_join, context, dict(first_numbers)))
    return joined.partitionBy(groups, _same).mapPartitionsWithIndex(_numbered, preservesPartitioning=True)


def no_offsets(spark: SparkContext, groups: int) -> "RDD[GroupRows]":
    """Return the RDD of ``shuffled_offsets`` without any offsets, for groups that are rewritten whatever their keys."""
    empty: RDD[tuple[int, OffsetBlock | InputNote]] = spark.parallelize([], groups)
    return empty.mapPartitionsWithIndex(_numbered, preservesPartitioning=True)


def collect_notes(
    spark: SparkContext, read: SplitRead[T], context: Context, splits: Sequence[InputSplit], counts: ByteCounts
) -> list[T]:
    """Return what ``read`` finds in all inputs of the splits, and count their bytes."""
    return spark.parallelize(splits, len(splits)).flatMap(partial(_read, read, context, counts)).collect()


def survey_groups(spark: SparkContext, offsets: "RDD[GroupRows]", numbers: Sequence[int]) -> list[GroupSurvey]:
    """Run both shuffles and return the findings about each group."""
    return spark.runJob(offsets, _survey, numbers)


def rewrite_groups(
    spark: SparkContext,
    offsets: "RDD[GroupRows]",
    context: Context,
    tasks: Mapping[int, GroupTask],
    fetched: Accumulator[int],
) -> list[tuple[GroupPlace, RewriteOutcome]]:
    """Run one task per group, by its number, return the outcomes, and count the fetched bytes in ``fetched``."""
    return spark.runJob(offsets, partial(_rewrite, context, dict(tasks), fetched), sorted(tasks))


def _same(number: int) -> int:
    return number


def _read(read: SplitRead[T], context: Context, counts: ByteCounts, split: InputSplit) -> Iterator[T]:
    yield from read(context.value, split, counts.fetched.add)
    counts.read.add(split.size_bytes)


def _join(
    context: Context, first_numbers: Mapping[int, int], rows: Iterable[tuple[int, KeyBlock | InputNote]]
) -> Iterator[tuple[int, OffsetBlock | InputNote]]:
    return join_bucket(context.value, first_numbers, rows)


def _numbered(number: int, rows: Iterable[tuple[int, OffsetBlock | InputNote]]) -> Iterator[GroupRows]:
    yield number, rows


def _survey(groups: Iterable[GroupRows]) -> Iterator[GroupSurvey]:
    for number, rows in groups:
        latest, notes = 0, []
        for _, row in rows:
            if isinstance(row, InputNote):
                notes.append(row)
            else:
                latest += row.count
        yield GroupSurvey(number, latest, tuple(notes))


def _rewrite(
    context: Context, tasks: Mapping[int, GroupTask], fetched: Accumulator[int], groups: Iterable[GroupRows]
) -> Iterator[tuple[GroupPlace, RewriteOutcome]]:
    for number, rows in groups:
        task = tasks[number]
        yield task.place, rewrite(context.value, task, (row for _, row in rows), fetched.add)
