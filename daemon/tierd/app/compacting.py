"""``tierd compact``: by the daemon, which owns the claims, else by this process; and what past runs did."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue

from tierd.app.pipeline import Pipeline, build_pipeline, require_pipeline
from tierd.app.pipeline_answers import pipeline_facts, plan_json
from tierd.app.standing_in import standing_in
from tierd.config import TierdConfig
from tierd.errors import DaemonUnreachableError, PipelineError
from tierd.model import TopicPartition
from tierd.pipeline import RunHistory, find_spark, report_json
from tierd.serve import request

_LOOK_S: Final = 1.0
Facts = dict[str, JsonValue]
Tell = Callable[[str], None]


async def plan_compaction(config: TierdConfig, config_file: Path, names: Sequence[TopicPartition]) -> Facts:
    """Return what a run would do now to these partitions, none for all that are led here, and why not more.

    Raises:
        UnknownPartitionError: one of them is not led here.
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        TierError: the plan could not be made.
    """
    with contextlib.suppress(DaemonUnreachableError):
        answer = await request(config.state_dir, "compact", [str(name) for name in names], options={"dry_run": True})
        return cast("Facts", answer)
    async with standing_in(config, config_file) as (engine, tiering):
        return plan_json(await build_pipeline(engine, tiering, config_file).run.plan(list(names) or None))


async def compact(config: TierdConfig, config_file: Path, names: Sequence[TopicPartition], *, tell: Tell) -> Facts:
    """Do one run and return its result; ``tell`` is called with reports of progress.

    A cancellation ends a run of this process, and its open outputs are given up. A run of the daemon continues.

    Raises:
        PipelineBusyError: a run is under way.
        UnknownPartitionError: one of the partitions is not led here.
        AlreadyRunningError: a daemon holds the state directory and does not answer.
        DaemonUnreachableError: the daemon went away during the run.
        SparkMissingError: pyspark or Java is missing or too old.
        TierError: the run could not begin.
    """
    answer: Facts | None = None
    with contextlib.suppress(DaemonUnreachableError):
        answer = cast("Facts", await request(config.state_dir, "compact", [str(name) for name in names]))
    if answer is not None:  # if the daemon ends now, its run ends too, and no other run is begun
        return await _watched(config.state_dir, str(answer["run_id"]), tell)
    await find_spark(config.pipeline.java_home)
    async with standing_in(config, config_file) as (engine, tiering):
        await require_pipeline(engine)
        pipeline = build_pipeline(engine, tiering, config_file)
        pipeline.candidates.require_led(list(names) or None)
        return await _run_here(pipeline, names, tell)


def past_runs(config: TierdConfig) -> list[JsonValue]:
    """Return the runs of the history, the oldest first. It blocks.

    Raises:
        StateDirError: the history cannot be read.
    """
    return [report_json(report) for report in RunHistory(config.state_dir).read()]


async def _run_here(pipeline: Pipeline, names: Sequence[TopicPartition], tell: Tell) -> Facts:
    telling = asyncio.create_task(_tell_regularly(pipeline, tell), name="progress")
    try:
        return report_json(await pipeline.scheduler.run_now(list(names) or None))
    finally:
        telling.cancel()
        await asyncio.wait({telling})


async def _tell_regularly(pipeline: Pipeline, tell: Tell) -> None:
    while True:
        _tell_progress(pipeline_facts(pipeline.scheduler), tell)
        await asyncio.sleep(_LOOK_S)


async def _watched(state_dir: Path, run_id: str, tell: Tell) -> Facts:
    """Look at the daemon's run until it has ended."""
    while True:
        status = cast("Facts", await request(state_dir, "status"))
        facts = cast("Facts", status["pipeline"])
        running, last = cast("Facts | None", facts["running"]), cast("Facts | None", facts["last_run"])
        if last is not None and last["run_id"] == run_id:
            return last
        if running is None or running["run_id"] != run_id:  # another one may have been begun and ended since
            return await asyncio.to_thread(_remembered, state_dir, run_id)
        _tell_progress(facts, tell)
        await asyncio.sleep(_LOOK_S)


def _remembered(state_dir: Path, run_id: str) -> Facts:
    for report in reversed(RunHistory(state_dir).read()):
        if report.run_id == run_id:
            return report_json(report)
    raise PipelineError(f"the daemon knows no run {run_id}", remedy="see tierd compact --history")


def _tell_progress(facts: Facts, tell: Tell) -> None:
    running = cast("Facts | None", facts["running"])
    if running is None:
        return
    total = int(str(running["total"]))
    share = f" {100 * int(str(running['done'])) // total} %" if total else ""
    tell(f"{running['stage']}{share}, {running['groups_replaced']} groups replaced")
