"""Page of runs, drills, deletions and cost."""

from tests.serve.page.page_values import MARKUP, NOW_MS
from tierd.cost import Cost, CostReport, RequestClass, TopicCost
from tierd.model import TopicPartition
from tierd.pipeline import RunReport
from tierd.pipeline.running.run_history import RunOutcome
from tierd.restore import DrilledPartition, DrillOutcome
from tierd.serve import MOST_DELETIONS, PastWork
from tierd.serve.page.runs_page import render_runs
from tierd.tiering import LedgerEntry


def run(outcome: RunOutcome, *problems: str) -> RunReport:
    return RunReport(
        run_id="r", trigger="schedule", attempt=1, began_ms=NOW_MS - 65_000, ended_ms=NOW_MS, outcome=outcome,
        problems=problems,
    )  # fmt: skip


def deletion(step: str, reason: str = "retention_time", *, topic: str = "orders") -> LedgerEntry:
    return LedgerEntry(
        time_ms=NOW_MS, step=step, partition=f"{topic}-0", topic_id="x", segment_id="s", start_offset=0, end_offset=9,
        size_bytes=2048, reason=reason, detail=f"why {MARKUP}", broker_id=1,
    )  # fmt: skip


def test_empty_past_says_so_in_every_section() -> None:
    html = render_runs(PastWork(), None)
    for text in ("No run of the pipeline yet", "No drill yet", "No deletion", "The cost is being computed"):
        assert text in html


def test_failed_run_has_its_problems_and_their_section() -> None:
    html = render_runs(PastWork(runs=(run(RunOutcome.TIMED_OUT, "too slow"), run(RunOutcome.SUCCEEDED))), None)
    assert "timed out" in html
    assert "1 min 5 s" in html
    assert "too slow" in html
    assert html.count('href="/help/tierdpipelinefails"') == 1


def test_drill_that_is_no_proof_has_problem_and_remedy() -> None:
    drill = DrilledPartition(
        run_id="r", trigger="command", partition="orders-0", topic_id="x", began_ms=NOW_MS, ended_ms=NOW_MS,
        outcome=DrillOutcome.FAILED, problem="no manifest", remedy="run tierd verify",
    )  # fmt: skip
    html = render_runs(PastWork(drills=(drill,)), None)
    assert "no manifest; run tierd verify" in html
    assert 'href="/topics/orders/0"' in html
    assert 'href="/help/tierddrillfails"' in html


def test_deletions_have_reasons_and_only_those_that_are_stuck_lead_to_help() -> None:
    entries = (deletion("deleted"), deletion("retained", "start_offset"), deletion("deleted", topic=MARKUP))
    html = render_runs(PastWork(deletions=entries), TopicPartition("orders", 0))
    assert "start offset" in html
    assert html.count('href="/help/tierddeletesnothing"') == 1
    assert "<h2>Deletions of orders-0</h2>" in html
    assert "Deletions of all partitions" in html
    assert MARKUP not in html


def test_deletions_are_a_bounded_number() -> None:
    html = render_runs(PastWork(deletions=(deletion("deleted"),) * 5000), None)
    assert f"The last {MOST_DELETIONS} steps" in html
    assert len(html) < 200_000


def test_cost_has_topics_and_sums() -> None:
    topic = TopicCost("orders", {RequestClass.PUT: 5}, 1 << 20, 0, 1 << 30, Cost(1.0, 0.5), Cost(3.0, 1.25))
    html = render_runs(PastWork(cost=CostReport("EUR", 24, (topic,))), None)
    assert "All topics: 1.50 EUR in the past, 4.25 a month." in html
    assert "1 of 1 topics, the dearest first, in EUR, over 24 hours" in html
    assert "No use is recorded yet" in render_runs(PastWork(cost=CostReport("EUR", 0, ())), None)


def test_file_that_cannot_be_read_is_named() -> None:
    assert "the disk did not answer" in render_runs(PastWork(problems=("the disk did not answer",)), None)
