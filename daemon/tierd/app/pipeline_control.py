"""PipelineControl: the pipeline inside a running daemon: its task, what the control socket asks of it, its end."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence

import structlog
from pydantic import JsonValue

from tierd.app.erasing import erasure_handlers
from tierd.app.pipeline import Pipeline
from tierd.app.pipeline_answers import pipeline_facts, plan_json
from tierd.errors import PipelineBusyError, TierError
from tierd.model import TopicPartition
from tierd.pipeline import RunReport
from tierd.serve import OptionsHandler

log = structlog.get_logger()


class PipelineControl:
    """Owns the tasks of the pipeline; they live in the daemon's group."""

    def __init__(self, pipeline: Pipeline, group: asyncio.TaskGroup, *, enabled: bool) -> None:
        """``enabled``: whether runs begin by the timetable; those that are asked for begin anyway."""
        self._pipeline = pipeline
        self._group = group
        self._enabled = enabled
        self._asked: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run by the timetable until ``stop`` is called or this is cancelled; runs that are under way end then."""
        lasting = [asyncio.create_task(self._pipeline.erasures.run(), name="erasures")]
        if self._enabled:
            lasting.append(asyncio.create_task(self._pipeline.scheduler.run(), name="scheduled runs"))
        try:
            stopping = asyncio.create_task(self._stopping.wait(), name="stop of the pipeline")
            await asyncio.wait({*lasting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            for task in lasting:
                if task.done():
                    task.result()  # it never ends by itself: an error of ours
        finally:
            ending = lasting if self._asked is None else [*lasting, self._asked]
            for task in ending:
                task.cancel()
            await asyncio.wait(ending)

    def stop(self) -> None:
        """End the run that is under way and begin none any more; ``run`` returns when that is done."""
        self._stopping.set()

    def facts(self) -> dict[str, JsonValue]:
        """What the status says of it."""
        return {"enabled": self._enabled, **pipeline_facts(self._pipeline.scheduler)}

    def handlers(self) -> Mapping[str, OptionsHandler]:
        """What the control socket can ask."""
        return {"compact": self._compact, **erasure_handlers(self._pipeline)}

    async def _compact(self, names: Sequence[str], options: Mapping[str, JsonValue]) -> JsonValue:
        """Begin a run, whose progress the status tells, or say what it would do."""
        partitions = [TopicPartition.parse(name) for name in names] or None
        scheduler = self._pipeline.scheduler
        if options.get("dry_run"):
            return plan_json(await self._pipeline.run.plan(partitions))
        if scheduler.current is not None or self._stopping.is_set():
            raise PipelineBusyError("a run is under way, or the daemon is stopping", remedy="tierd status shows it")
        self._pipeline.candidates.require_led(partitions)
        self._asked = self._group.create_task(
            _logged(scheduler.run_now(partitions)), name="run that somebody asked for"
        )
        await asyncio.sleep(0)  # it has an id once it has begun
        current = scheduler.current
        return {"run_id": None if current is None else current.run_id}


async def _logged(run: Coroutine[object, object, RunReport]) -> None:
    """An error here concerns nobody but who asked, and whoever asked is not waiting."""
    try:
        await run
    except TierError as error:
        log.error("run_failed", problem=str(error), remedy=error.remedy)  # noqa: TRY400 - no bug
