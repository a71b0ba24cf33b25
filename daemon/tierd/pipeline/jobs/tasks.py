"""Rewrite of one group by one task: the inputs are read from the store, the output is written to the store."""

import errno
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from tierd.errors import BatchTooLargeError, PipelineError, TierError
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.pipeline.access import OpenTier
from tierd.pipeline.jobs.outcomes import Changed, FailedGroup, RewriteOutcome, UnchangedGroup, WrittenGroup
from tierd.pipeline.jobs.run_context import RunContext, scratch_directory
from tierd.pipeline.jobs.scanning import UNREAD_ADVICE, InputNote, OffsetBlock, input_log
from tierd.pipeline.jobs.task_layout import GroupPlace
from tierd.pipeline.planning import Output, PartitionWork
from tierd.pipeline.rewriting import KeyHashing, OffsetSet, RewriteStatistics, RewrittenSegment, rewrite_group

_BLOCKS_AT_ONCE: Final = 64  # 8 MiB of offsets


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Work of a task on one group.

    Attributes:
        open_producers: producers whose transactions are open where the group begins.
        output: None for a first try, which only finds out if the output would differ.
        unread_from: base offset of the partition's first batch that cannot be opened; None without any.
        latest: number of records that are the latest of their keys, as the survey has found. A worker whose task was
            killed reads to the end of a broken pipe, as if its rows ended there.
    """

    place: GroupPlace
    open_producers: frozenset[int]
    output: Output | None
    unread_from: int | None = None
    latest: int = 0


def rewrite(
    context: RunContext,
    task: GroupTask,
    rows: Iterable[OffsetBlock | InputNote],
    note_fetched: Callable[[int], object],
) -> RewriteOutcome:
    """Rewrite a group and store its output, unless the task has no output, or it would equal its only input.

    A failure is returned as the outcome of the group. The scratch file is gone when this returns.
    """
    scratch = scratch_directory(os.environ["SPARK_LOCAL_DIRS"])
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tierd-", dir=scratch) as directory,
            context.opened_tier(note_fetched) as tier,
        ):
            return _rewrite(context, task, rows, tier, Path(directory) / "output.log")
    except BatchTooLargeError as error:  # the rules do not cover this batch: a person decides if keys are to be erased
        return FailedGroup(f"{error}: {UNREAD_ADVICE}" if context.work(task.place).erased_keys else str(error))
    except TierError as error:
        return FailedGroup(str(error))
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return FailedGroup(f"no space is left for the output in {scratch}, Spark's local directory")
        return FailedGroup(f"{type(error).__name__}: {error}")


def _rewrite(
    context: RunContext, task: GroupTask, rows: Iterable[OffsetBlock | InputNote], tier: OpenTier, log: Path
) -> RewriteOutcome:
    inputs = context.work(task.place).group_inputs(task.place.group)
    latest = _latest(context, task, rows)
    segment = rewrite_group(
        [input_log(tier, metadata) for metadata in inputs],
        replace(context.rules(task.place), unread_from=task.unread_from),
        latest,
        base_offset=inputs[0].start_offset,
        output=log,
        input_snapshot=tier.read_index(inputs[-1], IndexType.PRODUCER_SNAPSHOT),
        input_epochs=tier.read_index(inputs[-1], IndexType.LEADER_EPOCH),
        open_producers=task.open_producers,
        hashing=_hashing(context, task),
    )
    if len(inputs) == 1 and segment.statistics.is_unchanged:
        return UnchangedGroup(_reported_counts(segment.statistics))
    if task.output is None:
        return Changed()
    metadata = finished(task.output.metadata, segment)
    manifest = tier.stage(metadata, segment.data, key_seed=task.output.key_seed)
    return WrittenGroup(task.output, manifest, asdict(segment.statistics), dict(segment.erased))


def _hashing(context: RunContext, task: GroupTask) -> KeyHashing | None:
    """Return what hashes the keys of the output; None where no later run reads hashes, or for a first try."""
    work = context.work(task.place)
    if task.output is None or not work.is_of_latest:
        return None
    return KeyHashing(context.order.secret, base_offset=work.group_inputs(task.place.group)[0].start_offset)


def _reported_counts(statistics: RewriteStatistics) -> Mapping[str, int]:
    """Return the reported counts of a group that stays as it is."""
    return {"batches_unread": statistics.batches_unread} if statistics.batches_unread else {}


def finished(metadata: RemoteLogSegmentMetadata, segment: RewrittenSegment) -> RemoteLogSegmentMetadata:
    """Return the output's metadata with the true size, largest timestamp and ``txn_index_empty``.

    If no batch of the output has a timestamp, the largest one of the inputs stays: -1 would be older than any
    retention.
    """
    return replace(
        metadata,
        size_bytes=segment.data.log_checksums.size_bytes,
        max_timestamp_ms=metadata.max_timestamp_ms if segment.max_timestamp_ms < 0 else segment.max_timestamp_ms,
        txn_index_empty=segment.txn_index_empty,
    )


def _latest(context: RunContext, task: GroupTask, rows: Iterable[OffsetBlock | InputNote]) -> OffsetSet | None:
    """Return the offsets that are the latest of their keys; None for work that compacts nothing.

    Raises:
        PipelineError: not all keys are known, since an input could not be read, or rows are missing. A read that Spark
            repeats, and that then fails, can leave more records the latest of their keys; nothing leaves fewer.
    """
    place, work = task.place, context.work(task.place)
    if not work.compacts:
        return None
    inputs = work.group_inputs(place.group)
    start_offset = inputs[0].start_offset
    latest = OffsetSet.of(start_offset, inputs[-1].end_offset + 1, np.empty(0, dtype=np.int64))
    blocks = (row.offsets(start_offset) for row in _blocks(work, place, rows))
    arrived = 0
    while some := tuple(islice(blocks, _BLOCKS_AT_ONCE)):
        arrived += sum(map(len, some))
        latest.union_in_place(np.concatenate(some))
    if arrived < task.latest:
        raise PipelineError(
            f"{arrived} of {task.latest} latest records have arrived at the task",
            remedy="the group stays as it was; the next run tries again",
        )
    return latest


def _blocks(work: PartitionWork, place: GroupPlace, rows: Iterable[OffsetBlock | InputNote]) -> Iterator[OffsetBlock]:
    """Yield the blocks; raise ``PipelineError`` at a note that an input of the group could not be read."""
    for row in rows:
        if isinstance(row, OffsetBlock):
            yield row
        elif row.problem and work.group_of(row.place.segment) == place.group:
            raise PipelineError(row.problem, remedy="the group stays as it was; the next run tries again")
