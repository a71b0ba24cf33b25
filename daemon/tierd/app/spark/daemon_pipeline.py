"""The pipeline inside a running daemon: its task, its verbs of the control socket, its end."""

import asyncio
from collections.abc import Coroutine

import structlog
from pydantic import JsonValue

from tierd.app.spark.build_pipeline import Pipeline
from tierd.app.spark.compaction_answers import pipeline_facts, plan_answer
from tierd.app.spark.erasure_verbs import erasure_handlers
from tierd.errors import PipelineBusyError, TierError
from tierd.pipeline import RunReport
from tierd.serve import COMPACT, CompactionPlan, CompactRequest, RunBegun, VerbHandler
from tierd.tasks import end_tasks

log = structlog.get_logger()


class DaemonPipeline:
    """Owner of the pipeline's tasks, which live in the daemon's group."""

    def __init__(self, pipeline: Pipeline, group: asyncio.TaskGroup, *, enabled: bool) -> None:
        """Begin runs by the timetable only if ``enabled``; a run that a person asks for begins in either case."""
        self._pipeline = pipeline
        self._group = group
        self._enabled = enabled
        self._asked: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run by the timetable until ``stop`` is called or the call is cancelled; a run under way is ended then."""
        lasting = [asyncio.create_task(self._pipeline.erasures.run(), name="erasures")]
        if self._enabled:
            lasting.append(asyncio.create_task(self._pipeline.scheduler.run(), name="scheduled runs"))
        stopping = asyncio.create_task(self._stopping.wait(), name="stop of the pipeline")
        try:
            await asyncio.wait({*lasting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in lasting:
                if task.done():
                    task.result()  # the task ended by itself, which is a bug: raise its error
        finally:
            asked = [] if self._asked is None else [self._asked]
            await end_tasks([stopping, *lasting, *asked])

    def stop(self) -> None:
        """End the run that is under way and begin no other; ``run`` returns once the run has ended."""
        self._stopping.set()

    def facts(self) -> dict[str, JsonValue]:
        """Return the section ``pipeline`` of the status."""
        return {"enabled": self._enabled, **pipeline_facts(self._pipeline.scheduler)}

    def handlers(self) -> tuple[VerbHandler, ...]:
        """Return the handlers of the pipeline's verbs."""
        return (COMPACT.handled_by(self.compact), *erasure_handlers(self._pipeline))

    async def compact(self, request: CompactRequest) -> CompactionPlan | RunBegun:
        """Begin a run, whose progress the status shows, or return the plan of a run.

        Raises:
            PipelineBusyError: a run is under way, or the daemon is stopping.
            UnknownPartitionError: one of the partitions is not led here.
        """
        partitions = list(request.partitions) or None
        scheduler = self._pipeline.scheduler
        if request.dry_run:
            return plan_answer(await self._pipeline.run.plan(partitions))
        if scheduler.current is not None or self._stopping.is_set():
            raise PipelineBusyError("a run is under way, or the daemon is stopping", remedy="tierd status shows it")
        self._pipeline.candidates.require_led(partitions)
        self._asked = self._group.create_task(_logged(scheduler.run_now(partitions)), name="run by request")
        await asyncio.sleep(0)  # the run has an id once it has begun
        current = scheduler.current
        return RunBegun(run_id=None if current is None else current.run_id)


async def _logged(run: Coroutine[object, object, RunReport]) -> None:
    """Await ``run`` and log its failure: the client that asked for the run does not wait for it."""
    try:
        await run
    except TierError as error:
        log.error("run_failed", problem=str(error), remedy=error.remedy)  # noqa: TRY400 - no bug
