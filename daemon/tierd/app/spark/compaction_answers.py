"""Answers of the pipeline's commands, and the pipeline in the status. Pure."""

from dataclasses import asdict

from pydantic import JsonValue

from tierd.pipeline import PipelineScheduler, PreparedRun, RunProgress, report_json
from tierd.serve import CompactionPlan, PlannedWork, SkippedPartition


def pipeline_facts(scheduler: PipelineScheduler) -> dict[str, JsonValue]:
    """Return the section ``pipeline`` of the status."""
    current, last = scheduler.current, scheduler.last
    return {
        "running": None if current is None else _progress_json(current),
        "last_run": None if last is None else report_json(last),
        "next_begin_ms": scheduler.next_begin_ms,
    }


def _progress_json(progress: RunProgress) -> dict[str, JsonValue]:
    progress.refresh()
    return {
        "run_id": progress.run_id,
        "trigger": progress.trigger,
        "began_ms": progress.began_ms,
        "stage": progress.stage,
        "done": progress.done,
        "total": progress.total,
        **asdict(progress.tally),
    }


def plan_answer(prepared: PreparedRun) -> CompactionPlan:
    """Return what a run would do, and why not more."""
    return CompactionPlan(
        planned=tuple(
            PlannedWork(
                partition=str(work.partition.topic_partition),
                kind=work.kind.value,
                groups=len(work.groups),
                segments=sum(len(work.group_inputs(number)) for number in range(len(work.groups))),
                bytes=sum(
                    segment.size_bytes for number in range(len(work.groups)) for segment in work.group_inputs(number)
                ),
                first_dirty_offset=work.first_dirty_offset,
                end_offset=work.round_end_offset - 1,
            )
            for work in prepared.order.partitions
        ),
        skipped=tuple(
            SkippedPartition(partition=str(each.partition.topic_partition), reason=each.reason)
            for each in prepared.skipped
        ),
    )
