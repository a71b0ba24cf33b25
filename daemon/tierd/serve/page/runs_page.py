"""Page of past work: runs of the pipeline, drills, deletions with their reasons, and cost."""

from typing import Final

from tierd.cost import CostReport, RequestClass, TopicCost
from tierd.model import TopicPartition
from tierd.pipeline import RunReport
from tierd.restore import DrilledPartition
from tierd.serve.page.markup import (
    Html,
    duration_text,
    element,
    joined,
    link,
    moment,
    number_columns,
    number_text,
    path_of,
    section,
    table,
    text_columns,
)
from tierd.serve.page.operations_page import Anchor, help_link
from tierd.serve.page.page_frame import RUNS_PATH
from tierd.serve.page.page_sources import PastWork
from tierd.serve.page.problems import PageProblem, render_problem, render_problems
from tierd.sizes import human_size
from tierd.tiering import LedgerEntry

MOST_RUNS: Final = 50
MOST_DRILLS: Final = 50
MOST_DELETIONS: Final = 200
_MOST_TOPICS: Final = 100
_RUN_COLUMNS: Final = (
    *text_columns("Ended", "Outcome"),
    *number_columns("Took"),
    *text_columns("Begun by"),
    *number_columns("Partitions", "Groups replaced", "Before", "After"),
    *text_columns("Why"),
)
_DRILL_COLUMNS: Final = (
    *text_columns("Ended", "Partition", "Outcome"),
    *number_columns("Took", "Size", "Through offset"),
    *text_columns("Why"),
)
_DELETION_COLUMNS: Final = (
    *text_columns("When", "Partition", "Step"),
    *number_columns("First offset", "Last offset", "Size"),
    *text_columns("Reason", "Why"),
)
_COST_COLUMNS: Final = (
    *text_columns("Topic"),
    *number_columns("Stored", "Uploaded", "Downloaded", "Puts", "Gets", "Past", "A month"),
)


def render_runs(past: PastWork, partition: TopicPartition | None) -> Html:
    """Return the content of the page; deletions are those of ``partition``, None for all."""
    return joined(
        (
            render_problems([PageProblem(text, Anchor.PROBLEMS) for text in past.problems]),
            section("Compaction and audit", _runs(past.runs)),
            section("Restore drills", _drills(past.drills)),
            section("Deletions" if partition is None else f"Deletions of {partition}", _deletions(past, partition)),
            section("Cost", _cost(past.cost)),
        )
    )


def _runs(runs: tuple[RunReport, ...]) -> Html:
    if not runs:
        return element("p", "No run of the pipeline yet.", class_="quiet")
    shown = runs[:MOST_RUNS]
    classes = ["bad" if run.outcome.is_problem else "" for run in shown]
    return table(f"The last {len(shown):,} runs", _RUN_COLUMNS, map(_run_cells, shown), classes=classes)


def _run_cells(run: RunReport) -> tuple[str, ...]:
    why: str = "; ".join(run.problems)
    return (
        moment(run.ended_ms),
        run.outcome.value.replace("_", " "),
        duration_text((run.ended_ms - run.began_ms) / 1000),
        run.trigger,
        number_text(run.tally.partitions),
        number_text(run.tally.groups_replaced),
        human_size(run.tally.bytes_before),
        human_size(run.tally.bytes_after),
        render_problem(PageProblem(why, Anchor.PIPELINE_FAILS)) if run.outcome.is_problem else why,
    )


def _drills(drills: tuple[DrilledPartition, ...]) -> Html:
    if not drills:
        return element("p", "No drill yet. ", help_link(Anchor.DRILLS, "how to schedule one"), class_="quiet")
    shown = drills[:MOST_DRILLS]
    classes = ["" if drill.outcome.is_proof else "bad" for drill in shown]
    return table(
        f"The last {len(shown):,} drilled partitions", _DRILL_COLUMNS, map(_drill_cells, shown), classes=classes
    )


def _drill_cells(drill: DrilledPartition) -> tuple[str, ...]:
    why = "; ".join(filter(None, (drill.problem, drill.remedy)))
    return (
        moment(drill.ended_ms),
        _partition_link(drill.partition),
        drill.outcome.value,
        duration_text((drill.ended_ms - drill.began_ms) / 1000),
        human_size(drill.size_bytes),
        number_text(drill.end_offset - 1),
        "" if drill.outcome.is_proof else render_problem(PageProblem(why, Anchor.DRILL_FAILS)),
    )


def _deletions(past: PastWork, partition: TopicPartition | None) -> Html:
    every = element("p", link(RUNS_PATH, "Deletions of all partitions")) if partition is not None else Html("")
    if not past.deletions:
        return joined((element("p", "No deletion.", class_="quiet"), every))
    shown = past.deletions[:MOST_DELETIONS]
    classes = [{"failed": "bad", "retained": "soon"}.get(entry.step, "") for entry in shown]
    caption = f"The last {len(shown):,} steps; tierd deletions has all"
    return joined((every, table(caption, _DELETION_COLUMNS, map(_deletion_cells, shown), classes=classes)))


def _deletion_cells(entry: LedgerEntry) -> tuple[str, ...]:
    is_stuck = entry.step in ("failed", "retained")
    return (
        moment(entry.time_ms),
        _partition_link(entry.partition),
        entry.step,
        number_text(entry.start_offset),
        number_text(entry.end_offset),
        human_size(entry.size_bytes),
        entry.reason.replace("_", " "),
        render_problem(PageProblem(entry.detail, Anchor.DELETES_NOTHING)) if is_stuck else entry.detail,
    )


def _cost(report: CostReport | None) -> Html:
    if report is None:
        return element("p", "The cost is being computed: load this page again.", class_="quiet")
    if not report.topics:
        return element("p", "No use is recorded yet: the daemon records its use once an hour.", class_="quiet")
    shown = report.topics[:_MOST_TOPICS]
    caption = (
        f"{len(shown):,} of {len(report.topics):,} topics, the dearest first, in {report.currency}, over "
        f"{report.hours:,} hours; a month is 730 hours at their pace"
    )
    sums = f"All topics: {report.past.total:.2f} {report.currency} in the past, {report.month.total:.2f} a month."
    return joined((element("p", sums), table(caption, _COST_COLUMNS, map(_cost_cells, shown))))


def _cost_cells(topic: TopicCost) -> tuple[str, ...]:
    return (
        link(path_of("topics", topic.topic), topic.topic) if topic.topic else "(none)",
        human_size(topic.stored_bytes),
        human_size(topic.uploaded_bytes),
        human_size(topic.downloaded_bytes),
        number_text(topic.requests.get(RequestClass.PUT, 0)),
        number_text(topic.requests.get(RequestClass.GET, 0)),
        f"{topic.past.total:.2f}",
        f"{topic.month.total:.2f}",
    )


def _partition_link(name: str) -> str:
    topic, dash, number = name.rpartition("-")
    return link(path_of("topics", topic, number), name) if dash and topic else name
