"""``tierd compact``: by the daemon, which owns the claims, else by this process."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tierd.app.engine.compose import standing_in
from tierd.app.engine.deployment import Deployment
from tierd.app.spark.build_pipeline import Pipeline, build_pipeline, require_pipeline, require_spark
from tierd.app.spark.compaction_answers import pipeline_facts, plan_answer
from tierd.errors import PipelineError
from tierd.model import TopicPartition
from tierd.pipeline import RunHistory, report_json
from tierd.serve import (
    COMPACT,
    STATUS,
    CompactionPlan,
    CompactRequest,
    JsonObject,
    PipelineSummary,
    RunBegun,
    StatusRequest,
    ask,
    ask_or_run,
)
from tierd.tasks import end_tasks

_POLL_INTERVAL_S: Final = 1.0


async def plan_compaction(deployment: Deployment, names: Sequence[TopicPartition]) -> CompactionPlan:
    """Return what a run would do now with these partitions, and why not more; none means all that are led here.

    Raises:
        UnknownPartitionError: one of them is not led here.
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        TierError: the plan could not be made.
    """

    async def plan_here() -> CompactionPlan:
        async with standing_in(deployment) as (engine, tiering):
            return plan_answer(await build_pipeline(engine, tiering).run.plan(list(names) or None))

    request = CompactRequest(partitions=tuple(names), dry_run=True)
    answer = await ask_or_run(deployment.state_dir, COMPACT, request, plan_here)
    if isinstance(answer, RunBegun):
        raise PipelineError("the daemon began a run instead of planning one", remedy="see tierd status")
    return answer


async def compact(
    deployment: Deployment, names: Sequence[TopicPartition], *, on_progress: Callable[[str], None]
) -> JsonObject:
    """Have one run done and return its report; ``on_progress`` is called with the progress.

    Cancelled, a run of this process ends and abandons what it began; a run of the daemon goes on.

    Raises:
        PipelineBusyError: a run is under way.
        UnknownPartitionError: one of the partitions is not led here.
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        DaemonUnreachableError: the daemon went away during the run.
        SparkMissingError: pyspark or Java is missing or too old.
        TierError: the run could not begin.
    """

    async def run_here() -> JsonObject:
        await require_spark(deployment)
        async with standing_in(deployment) as (engine, tiering):
            await require_pipeline(engine)
            pipeline = build_pipeline(engine, tiering)
            pipeline.candidates.require_led(list(names) or None)
            return await _run_here(pipeline, names, on_progress)

    match await ask_or_run(deployment.state_dir, COMPACT, CompactRequest(partitions=tuple(names)), run_here):
        case RunBegun(run_id=run_id):
            # A daemon that goes away from now on takes the run with it: this process begins no other.
            return await _watched(deployment.state_dir, str(run_id), on_progress)
        case CompactionPlan():
            raise PipelineError("the daemon planned a run instead of beginning one", remedy="see tierd status")
        case report:
            return report


async def _run_here(
    pipeline: Pipeline, names: Sequence[TopicPartition], on_progress: Callable[[str], None]
) -> JsonObject:
    reporting = asyncio.create_task(_report_regularly(pipeline, on_progress), name="progress")
    try:
        return report_json(await pipeline.scheduler.run_now(list(names) or None))
    finally:
        await end_tasks([reporting])


async def _report_regularly(pipeline: Pipeline, on_progress: Callable[[str], None]) -> None:
    while True:
        _report_stage(
            PipelineSummary.model_validate({"enabled": False, **pipeline_facts(pipeline.scheduler)}), on_progress
        )
        await asyncio.sleep(_POLL_INTERVAL_S)


async def _watched(state_dir: Path, run_id: str, on_progress: Callable[[str], None]) -> JsonObject:
    """Ask the daemon for the progress of a run until the run has ended; return its report."""
    while True:
        pipeline = (await ask(state_dir, STATUS, StatusRequest())).pipeline
        if pipeline is None:
            raise PipelineError("the daemon's status has no pipeline", remedy="see tierd compact --history")
        running, last = pipeline.running, pipeline.last_run
        if last is not None and last.run_id == run_id:
            return last.to_json()
        if running is None or running.run_id != run_id:  # another run may have begun and ended since
            return await asyncio.to_thread(_remembered, state_dir, run_id)
        _report_stage(pipeline, on_progress)
        await asyncio.sleep(_POLL_INTERVAL_S)


def _remembered(state_dir: Path, run_id: str) -> JsonObject:
    for report in reversed(RunHistory(state_dir).read()):
        if report.run_id == run_id:
            return report_json(report)
    raise PipelineError(f"the daemon knows no run {run_id}", remedy="see tierd compact --history")


def _report_stage(pipeline: PipelineSummary, on_progress: Callable[[str], None]) -> None:
    running = pipeline.running
    if running is None:
        return
    share = f" {100 * running.done // running.total} %" if running.total else ""
    on_progress(f"{running.stage}{share}, {running.groups_replaced} groups replaced")
