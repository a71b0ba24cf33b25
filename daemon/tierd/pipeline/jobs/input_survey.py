"""InputSurvey: reads what has to be read before groups are rewritten, and decides the prospect of each group."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import structlog
from pyspark import RDD, Accumulator, SparkContext

from tierd.pipeline.jobs.job_progress import JobProgress, Stage
from tierd.pipeline.jobs.key_shuffle import (
    ByteCounts,
    Context,
    GroupRows,
    SplitRead,
    collect_notes,
    no_offsets,
    shuffled_offsets,
    survey_groups,
)
from tierd.pipeline.jobs.prospects import (
    Prospect,
    audit_prospects,
    compaction_prospects,
    erasure_prospects,
    merge_prospects,
)
from tierd.pipeline.jobs.scanning import InputNote, audit_split, find_erased
from tierd.pipeline.jobs.spark_errors import spark_errors
from tierd.pipeline.jobs.task_layout import GroupPlace, InputPlace, cut_splits, group_places, total_bytes
from tierd.pipeline.planning import PartitionWork, WorkKind, WorkOrder

log = structlog.get_logger()

T = TypeVar("T")


class InputSurvey:
    """Survey of the inputs of an order, which reads them once, as far as the kinds of work need it."""

    def __init__(
        self,
        spark: SparkContext,
        context: Context,
        order: WorkOrder,
        progress: JobProgress,
        *,
        buckets: int,
        fetched: Accumulator[int],
    ) -> None:
        self._spark = spark
        self._context = context
        self._order = order
        self._progress = progress
        self._buckets = buckets
        self._fetched = fetched
        self._places = group_places(order)

    def run(self) -> "tuple[RDD[GroupRows], dict[GroupPlace, Prospect]]":
        """Return the latest offsets from which groups are rewritten, and the prospect of each group.

        Raises:
            PipelineError: Spark failed.
        """
        prospects: dict[GroupPlace, Prospect] = {}
        for work in works_of(self._order, WorkKind.MERGE):
            prospects |= merge_prospects(work)
        if audited := works_of(self._order, WorkKind.AUDIT):
            findings = self._notes(Stage.AUDIT, audited, audit_split)
            for work in audited:
                prospects |= audit_prospects(work, [note for note in findings if note.place.index == work.index])
        if erased := works_of(self._order, WorkKind.ERASE):
            notes = self._notes(Stage.ERASURE, erased, find_erased)
            for work in erased:
                prospects |= erasure_prospects(work, [note for note in notes if note.place.index == work.index])
        compacted = works_of(self._order, WorkKind.COMPACT)
        if not compacted:
            return no_offsets(self._spark, max(len(self._places), 1)), prospects
        offsets = self._shuffle(compacted)
        surveyed = self._survey(offsets, compacted)
        for work in compacted:
            prospects |= compaction_prospects(work, *surveyed)
        return offsets, prospects

    def _counts(self) -> ByteCounts:
        return ByteCounts(read=self._spark.accumulator(0), fetched=self._fetched)

    def _notes(self, stage: Stage, works: Sequence[PartitionWork], read: SplitRead[T]) -> list[T]:
        counts = self._counts()
        self._progress.begin(stage, total_bytes(works), lambda: counts.read.value)
        splits = cut_splits(works, parallelism=self._spark.defaultParallelism)
        with spark_errors(self._spark, stage):
            return collect_notes(self._spark, read, self._context, splits, counts)

    def _shuffle(self, works: Sequence[PartitionWork]) -> "RDD[GroupRows]":
        counts = self._counts()
        self._progress.begin(Stage.KEYS, total_bytes(works), lambda: counts.read.value)
        numbers = {place: number for number, place in enumerate(self._places)}
        return shuffled_offsets(
            self._spark,
            self._context,
            cut_splits(works, parallelism=self._spark.defaultParallelism),
            counts,
            buckets=self._buckets,
            first_numbers={work.index: numbers[GroupPlace(work.index, 0)] for work in works},
            groups=len(self._places),
        )

    def _survey(
        self, offsets: "RDD[GroupRows]", works: Sequence[PartitionWork]
    ) -> tuple[dict[InputPlace, InputNote], dict[GroupPlace, int]]:
        """Run both shuffles; return a note of every input, and the number of latest records in every group."""
        indices = {work.index for work in works}
        numbers = [number for number, place in enumerate(self._places) if place.index in indices]
        with spark_errors(self._spark, Stage.KEYS):
            surveys = survey_groups(self._spark, offsets, numbers)
        found = (note for survey in surveys for note in survey.notes)
        notes = {note.place: note for note in sorted(found, key=lambda note: note.problem is not None)}
        self._log_unused_hashes(notes.values())
        return notes, {self._places[survey.number]: survey.latest for survey in surveys}

    def _log_unused_hashes(self, notes: Iterable[InputNote]) -> None:
        for note in notes:
            if note.hashes_problem is not None:
                segment = self._order.partitions[note.place.index].inputs[note.place.segment].segment
                log.warning("key_hashes_not_used", segment=str(segment), problem=note.hashes_problem)


def works_of(order: WorkOrder, kind: WorkKind) -> list[PartitionWork]:
    """Return the works of ``kind`` that have a group."""
    return [work for work in order.partitions if work.kind is kind and work.groups]
