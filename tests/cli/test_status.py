import pytest

from tierd.cli.commands.status import LastRunFacts, PipelineFacts, RunningFacts, pipeline_line

AT_MS = 1_795_300_000_000  # 2026-11-21 22:26:40
RUNNING = RunningFacts(stage="rewriting", done=1, total=4, groups_replaced=3, groups_failed=0)
LAST = LastRunFacts(outcome="nothing_due", ended_ms=AT_MS)


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        (
            PipelineFacts(enabled=True, running=RUNNING, last_run=LAST, next_begin_ms=AT_MS),
            "pipeline: rewriting 25 %, 3 groups replaced, 0 failed",
        ),
        (
            PipelineFacts(enabled=True, running=None, last_run=LAST, next_begin_ms=AT_MS + 60_000),
            "pipeline: last run nothing due at 2026-11-21 22:26 UTC, next at 2026-11-21 22:27 UTC",
        ),
        (
            PipelineFacts(enabled=True, running=None, last_run=None, next_begin_ms=AT_MS),
            "pipeline: next at 2026-11-21 22:26 UTC",
        ),
        (PipelineFacts(enabled=False, running=None, last_run=None, next_begin_ms=None), ""),
    ],
    ids=["running", "resting", "never ran", "not enabled"],
)
def test_the_pipeline_is_told_in_a_line(facts: PipelineFacts, line: str) -> None:
    assert pipeline_line(facts) == line


def test_a_stage_of_which_nobody_knows_the_length_has_no_share() -> None:
    running = RunningFacts(stage="starting", done=0, total=0, groups_replaced=0, groups_failed=0)

    assert (
        pipeline_line(PipelineFacts(enabled=True, running=running, last_run=None, next_begin_ms=None))
        == "pipeline: starting, 0 groups replaced, 0 failed"
    )
