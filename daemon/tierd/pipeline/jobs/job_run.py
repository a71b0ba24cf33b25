"""JobRun: does the driver's part of an order, from the keys to the last commit. The driver's memory holds no keys."""

import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import Final

import structlog
from pyspark import RDD, SparkContext

from tierd.errors import PipelineError
from tierd.pipeline.access import TierAccess
from tierd.pipeline.committing import LeaderClient
from tierd.pipeline.jobs.input_survey import InputSurvey, works_of
from tierd.pipeline.jobs.job_progress import JobProgress, Stage
from tierd.pipeline.jobs.key_shuffle import Context, GroupRows, rewrite_groups
from tierd.pipeline.jobs.outcomes import (
    Changed,
    CommitOrder,
    FailedGroup,
    Refused,
    RewriteOutcome,
    Settled,
    UnchangedGroup,
    WrittenGroup,
)
from tierd.pipeline.jobs.prospects import Rewrite
from tierd.pipeline.jobs.run_context import RunContext
from tierd.pipeline.jobs.spark_errors import spark_errors
from tierd.pipeline.jobs.task_layout import (
    GroupPlace,
    bucket_count,
    bucket_ranges,
    cut_waves,
    group_places,
    input_bytes,
)
from tierd.pipeline.jobs.tasks import GroupTask
from tierd.pipeline.pipeline_errors import LeaderChannelError
from tierd.pipeline.planning import WorkKind, WorkOrder

log = structlog.get_logger()

_WAVES_AT_ONCE: Final = 2  # while the last task of one wave ends, tasks of the next wave use the other cores


class JobRun:
    """Driver's part of one order.

    Args:
        spark: the session; it is not stopped.
        leader: gets the outcome of every group, those of a partition in order.
        access: to the tier, for executors.
        order: the order to carry out.
        progress: is set to the progress of the run.
    """

    def __init__(
        self, spark: SparkContext, leader: LeaderClient, access: TierAccess, order: WorkOrder, progress: JobProgress
    ) -> None:
        self._spark = spark
        self._leader = leader
        self._order = order
        self._progress = progress
        self._numbers = {place: number for number, place in enumerate(group_places(order))}
        self._commit_order = CommitOrder(self._numbers)
        self._report_lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        compacted = works_of(order, WorkKind.COMPACT)
        buckets = bucket_count(compacted, parallelism=spark.defaultParallelism)
        self._context: Context = spark.broadcast(
            RunContext(access=access, order=order, buckets=bucket_ranges(compacted, buckets))
        )
        self._fetched = spark.accumulator(0)
        self._input_survey = InputSurvey(spark, self._context, order, progress, buckets=buckets, fetched=self._fetched)

    @property
    def fetched_bytes(self) -> int:
        """Return the bytes that tasks have fetched from the store so far: logs, indexes and manifests."""
        return self._fetched.value

    def run(self) -> Mapping[str, int]:
        """Rewrite the groups that have to be rewritten, and return the number of groups by outcome.

        A group that cannot be rewritten is reported to the leader, and others go on.

        Raises:
            LeaderChannelError: the leader is gone, which abandons the outputs that were begun.
            PipelineError: Spark failed where the inputs are read, so that nothing was done.
        """
        offsets, prospects = self._input_survey.run()
        due: dict[GroupPlace, Rewrite] = {}
        for place, prospect in sorted(prospects.items()):
            if isinstance(prospect, Rewrite):
                due[place] = prospect
            else:
                self._settle(place, prospect)
        self._rewrite_all(offsets, due)
        return self._counts

    def _rewrite_all(self, offsets: "RDD[GroupRows]", due: Mapping[GroupPlace, Rewrite]) -> None:
        sizes = [(place, self._size_bytes(place)) for place in due]
        self._progress.begin(Stage.REWRITE, sum(size for _, size in sizes))
        waves = cut_waves(sizes, parallelism=self._spark.defaultParallelism)
        with ThreadPoolExecutor(_WAVES_AT_ONCE, thread_name_prefix="wave") as threads:
            begun = [threads.submit(self._rewrite_wave, offsets, {p: due[p] for p in wave}) for wave in waves]
            try:
                for wave in as_completed(begun):
                    wave.result()
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise

    def _rewrite_wave(self, offsets: "RDD[GroupRows]", wave: Mapping[GroupPlace, Rewrite]) -> None:
        """Rewrite the groups of a wave; a group that may stay as it is gets a first try before its output is begun."""
        tries = {
            place: GroupTask(place, rewrite.open_producers, None, rewrite.unread_from, rewrite.latest)
            for place, rewrite in wave.items()
        }
        sure = {place: task for place, task in tries.items() if wave[place].is_certain}
        outcomes = self._begin_and_rewrite(offsets, sure)
        outcomes |= self._rewrite(offsets, {place: task for place, task in tries.items() if place not in sure})
        changed = {place: tries[place] for place, outcome in outcomes.items() if isinstance(outcome, Changed)}
        outcomes |= self._begin_and_rewrite(offsets, changed)
        for place, outcome in outcomes.items():
            assert not isinstance(outcome, Changed), "its output was begun"
            self._settle(place, outcome)

    def _begin_and_rewrite(
        self, offsets: "RDD[GroupRows]", tasks: Mapping[GroupPlace, GroupTask]
    ) -> dict[GroupPlace, RewriteOutcome]:
        outcomes: dict[GroupPlace, RewriteOutcome] = {}
        begun: dict[GroupPlace, GroupTask] = {}
        for index in sorted({place.index for place in tasks}):
            groups = sorted(place.group for place in tasks if place.index == index)
            try:
                answer = self._leader.begin(index, groups)
            except LeaderChannelError:
                raise
            except PipelineError as error:
                outcomes |= {GroupPlace(index, group): FailedGroup(str(error)) for group in groups}
                continue
            for output in answer.outputs:
                place = GroupPlace(index, output.group)
                begun[place] = replace(tasks[place], output=output)
            outcomes |= {GroupPlace(index, refused.group): Refused(refused.reason) for refused in answer.refused}
        return outcomes | self._rewrite(offsets, begun)

    def _rewrite(
        self, offsets: "RDD[GroupRows]", tasks: Mapping[GroupPlace, GroupTask]
    ) -> dict[GroupPlace, RewriteOutcome]:
        """Run the tasks; if Spark gives up, run each by itself, so that only the group that ends a worker fails."""
        if not tasks:
            return {}
        numbered = {self._numbers[place]: task for place, task in tasks.items()}
        try:
            with spark_errors(self._spark, Stage.REWRITE):
                return dict(rewrite_groups(self._spark, offsets, self._context, numbered, self._fetched))
        except PipelineError as error:
            log.warning("spark_gave_up", groups=len(tasks), problem=str(error))
            if len(tasks) == 1:
                return {place: FailedGroup(str(error)) for place in tasks}
        one_by_one: dict[GroupPlace, RewriteOutcome] = {}
        for place, task in tasks.items():
            one_by_one |= self._rewrite(offsets, {place: task})
        return one_by_one

    def _settle(self, place: GroupPlace, outcome: Settled) -> None:
        """Report the outcome of a group to the leader, and the outcomes that waited for it."""
        with self._report_lock:
            for due, settled in self._commit_order.settle(place, outcome):
                self._counts[self._report(due, settled)] += 1
                self._progress.advance(self._size_bytes(due))

    def _report(self, place: GroupPlace, outcome: Settled) -> str:
        try:
            return self._report_to_leader(place, outcome)
        except LeaderChannelError:
            raise
        except PipelineError as error:  # the leader could not take the outcome: at the end it abandons what is open
            log.warning("group_failed", index=place.index, group=place.group, problem=str(error))
            return "groups_failed"

    def _report_to_leader(self, place: GroupPlace, outcome: Settled) -> str:
        """Report an outcome to the leader, and return the name under which it is counted."""
        of_group = log.bind(partition=str(self._order.partitions[place.index].partition), group=place.group)
        match outcome:
            case UnchangedGroup(counts):
                self._leader.unchanged(place.index, place.group, counts)
                return "groups_unchanged"
            case FailedGroup(problem):
                of_group.warning("group_failed", problem=problem)
                self._leader.failed(place.index, place.group, problem)
                return "groups_failed"
            case Refused(reason):
                of_group.warning("group_refused", reason=reason)
                return "groups_refused"
            case WrittenGroup(output, manifest, counts, erased):
                places = self._order.partitions[place.index].erased_places(erased)
                verdict = self._leader.written(output, manifest, counts, erased=places)
                if not verdict.committed:
                    of_group.warning("group_refused", reason=verdict.reason)
                    return "groups_refused"
                of_group.info("group_committed", **counts)
                return "groups_committed"

    def _size_bytes(self, place: GroupPlace) -> int:
        return input_bytes(self._order.partitions[place.index].group_inputs(place.group))
