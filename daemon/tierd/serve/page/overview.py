"""Overview: what is proven, what is at risk, and what needs a person first."""

from collections.abc import Iterator
from typing import Final

from tierd.serve.control_answers import EndpointSummary, PipelineSummary
from tierd.serve.page.markup import (
    Html,
    duration_text,
    element,
    facts,
    joined,
    link,
    moment,
    number_columns,
    number_text,
    paragraphs,
    path_of,
    section,
    table,
    text_columns,
)
from tierd.serve.page.operations_page import Anchor, help_link
from tierd.serve.page.page_frame import OVERVIEW_PATH, RUNS_PATH
from tierd.serve.page.page_query import ListQuery, page_of
from tierd.serve.page.problems import PageProblem, partition_problem, render_problem, render_problems, snapshot_problems
from tierd.serve.page.rate_series import RateSeries
from tierd.serve.page.sparkline import render_sparkline
from tierd.serve.status_lines import by_urgency, drill_line, endpoint_line, push_lines, unprotected_line
from tierd.serve.status_snapshot import StatusSnapshot, lag_seconds
from tierd.sizes import human_size
from tierd.tiering import PartitionStatus

_MAX_GROUPS: Final = 50
_SERVICES: Final = {"object_store": "object store", "metadata_store": "metadata store", "kafka": "brokers"}
_WITHOUT_RISK: Final = "every record of the led partitions is in the tier or on a standby"
_LATE_S: Final = 6 * 3600.0  # the threshold of the alert TierdFallsBehind
_STALE_PROOF_MS: Final = 30 * 86_400_000  # that of TierdProofIsOld
_URGENT: Final = {"quarantined": "bad", "waiting": "soon", "paused": "soon", "loading": "soon"}
_COLUMNS: Final = (
    *text_columns("Partition", "State"),
    *number_columns(
        "Epoch", "In the tier up to", "High watermark", "Segments to copy", "Bytes to copy", "Oldest waits for"
    ),
    *text_columns("Why"),
)
_GROUP_COLUMNS: Final = (*text_columns("Group", "State"), *number_columns("Members", "Partitions", "Records behind"))


def render_overview(snapshot: StatusSnapshot, rates: RateSeries | None, query: ListQuery) -> Html:
    """Return the content of the overview; ``rates`` is None for a process that takes no samples."""
    return joined(
        (
            _readiness(snapshot),
            render_problems(snapshot_problems(snapshot)),
            element("div", *_cards(snapshot), class_="cards"),
            _partitions(snapshot, query),
            section("The last day", _rates(rates)) if rates is not None else "",
            section("Store", _store(snapshot)),
            _last_runs(snapshot),
            _consumers(snapshot.endpoint_summary()),
            _push(snapshot),
        )
    )


def _readiness(snapshot: StatusSnapshot) -> Html:
    text = f"{snapshot.readiness()}. {snapshot.summary()}."
    if snapshot.is_ready:
        return element("p", text, class_="ready")
    return element("p", render_problem(PageProblem(text, Anchor.READY)), class_="trouble")


def _cards(snapshot: StatusSnapshot) -> Iterator[Html]:
    yield _proven_card(snapshot)
    unprotected = snapshot.unprotected_summary()
    worst = f"the oldest is {duration_text(unprotected.seconds)} old, of {unprotected.partition}"
    yield _card(
        "At risk now",
        human_size(unprotected.bytes) if snapshot.unprotected else "not known",
        worst if unprotected.bytes else _WITHOUT_RISK if snapshot.unprotected else "",
        kind="" if unprotected.bytes else "good" if snapshot.unprotected else "",
        why=help_link(Anchor.UNPROTECTED) if unprotected.bytes else None,
    )
    lag_s = max((lag_seconds(each, snapshot.now_ms) for each in snapshot.partitions), default=0.0)
    segments = sum(each.lag.segments for each in snapshot.partitions)
    waiting = f"{segments:,} segments, {human_size(sum(each.lag.bytes for each in snapshot.partitions))} to copy"
    yield _card(
        "Lag of the tier",
        duration_text(lag_s) if segments else "none",
        waiting if segments else "every rolled segment is in the tier",
        kind="bad" if lag_s > _LATE_S else "" if segments else "good",
        why=help_link(Anchor.FALLS_BEHIND) if lag_s > _LATE_S else None,
    )
    yield _store_card(snapshot)


def _proven_card(snapshot: StatusSnapshot) -> Html:
    drills = snapshot.drills_summary()
    if not drill_line(drills):
        return _card("Proven until", "never", "no drill is scheduled", kind="soon", why=help_link(Anchor.DRILLS))
    is_old = not drills.proven_until_ms or snapshot.now_ms - drills.proven_until_ms > _STALE_PROOF_MS
    return _card(
        "Proven until",
        moment(drills.proven_until_ms),
        f"{drills.partitions - drills.unproven} of {drills.partitions} partitions proven to come back",
        kind="bad" if drills.failing_partitions else "soon" if is_old and drills.partitions else "good",
        why=help_link(Anchor.PROOF_IS_OLD) if is_old and drills.partitions else None,
    )


def _store_card(snapshot: StatusSnapshot) -> Html:
    if not snapshot.outages:
        return _card("Services", "answer", "object store, metadata store, Kafka where it is configured", kind="good")
    silent = (
        f"{_SERVICES[each.service]} for {duration_text(max(0, snapshot.now_ms - each.since_ms) / 1000)}"
        for each in snapshot.outages
    )
    detail = f"no answer of the {', the '.join(silent)}; the cause is above"
    return _card("Services", "unreachable", detail, kind="bad", why=help_link(Anchor.STORE))


def _card(title: str, value: str, detail: str, *, kind: str = "", why: Html | None = None) -> Html:
    return element(
        "section",
        element("h2", title),
        element("p", value, class_="value"),
        element("p", detail, *((" ", why) if why is not None else ())),
        class_=f"card {kind}".strip(),
    )


def _partitions(snapshot: StatusSnapshot, query: ListQuery) -> Html:
    ordered = by_urgency(
        sorted(snapshot.partitions, key=lambda each: -lag_seconds(each, snapshot.now_ms)),
        state_of=lambda each: each.state,
    )
    if not ordered:
        return section("Partitions", element("p", "This process has no partitions.", class_="quiet"))
    shown, page = page_of(ordered, query, OVERVIEW_PATH, "partitions")
    rows = (_partition_cells(each, snapshot.now_ms) for each in shown)
    classes = [_URGENT.get(each.state, "") for each in shown]
    return section("Partitions, worst first", table(page.text, _COLUMNS, rows, classes=classes), page.links)


def _partition_cells(partition: PartitionStatus, now_ms: int) -> tuple[str, ...]:
    problem, name = partition_problem(partition), partition.partition
    late_s = lag_seconds(partition, now_ms)
    return (
        link(path_of("topics", name.topic, str(name.partition)), str(name)),
        partition.state,
        number_text(partition.leader_epoch),
        number_text(partition.copied_through),
        number_text(partition.high_watermark),
        number_text(partition.lag.segments),
        human_size(partition.lag.bytes) if partition.lag.bytes else "0",
        duration_text(late_s) if late_s else "",
        "" if problem is None else render_problem(problem),
    )


def _rates(rates: RateSeries) -> Html:
    return element(
        "div",
        render_sparkline("Copied to the tier", rates.values("copied_bytes"), _per_second),
        render_sparkline("Read from the tier", rates.values("fetched_bytes"), _per_second),
        render_sparkline("Requests to the store", rates.values("store_requests"), lambda value: f"{value:.2f}/s"),
        render_sparkline("Oldest segment to copy", rates.values("lag_seconds"), duration_text),
        render_sparkline("Bytes to copy", rates.values("lag_bytes"), human_size),
        render_sparkline("Bytes at risk", rates.values("unprotected_bytes"), human_size),
        class_="cards",
    )


def _per_second(value: float) -> str:
    return f"{human_size(value)}/s"


def _store(snapshot: StatusSnapshot) -> Html:
    pairs = [
        (title, text_of(value))
        for name, title, text_of in _TOTALS
        if isinstance(value := snapshot.totals.get(name), int | float)
    ]
    held, held_bytes = snapshot.hold.get("segments"), snapshot.hold.get("bytes")
    if isinstance(held, int) and isinstance(held_bytes, int):
        pairs.append(("Segments held until they are copied", f"{held:,}, {human_size(held_bytes)}"))
    unheld = snapshot.hold.get("unheld_segments")
    problem = Html("")
    if isinstance(unheld, int) and unheld:
        text = f"{unheld:,} segments wait without a hold: {snapshot.hold.get('unheld_reason', '')}"
        problem = render_problems([PageProblem(text, Anchor.HOLD_FULL)])
    steps = [
        PageProblem(f"{_SERVICES[each.service]}: {each.remedy}", Anchor.STORE)
        for each in snapshot.outages
        if each.remedy
    ]
    return joined((render_problems(steps), problem, facts(pairs) if pairs else ""))


_TOTALS: Final = (
    ("store_requests", "Requests since the start", lambda value: f"{value:,.0f}"),
    ("copied_bytes", "Copied since the start", human_size),
    ("copy_errors", "Failed copies", lambda value: f"{value:,.0f}"),
    ("fetched_bytes", "Read since the start", human_size),
    ("deletions", "Segments deleted", lambda value: f"{value:,.0f}"),
    ("delete_errors", "Failed deletions", lambda value: f"{value:,.0f}"),
)


def _last_runs(snapshot: StatusSnapshot) -> Html:
    pairs: list[tuple[str, str]] = []
    if snapshot.pipeline:
        pairs += _pipeline_pairs(PipelineSummary.model_validate(dict(snapshot.pipeline)))
    drills = snapshot.drills_summary()
    if line := drill_line(drills):
        pairs.append(("Last restore drill that proved a partition", moment(drills.last_success_ms)))
        pairs.append(("Restore drills", line.removeprefix("drills: ")))
    written_ms = snapshot.catalogue.get("positions_ms")
    if isinstance(written_ms, int):
        pairs.append(("Catalogue for restores written", moment(written_ms)))
    if not pairs:
        return Html("")
    return section("Last runs", facts(pairs), element("p", link(RUNS_PATH, "All runs, deletions and cost")))


def _pipeline_pairs(pipeline: PipelineSummary) -> Iterator[tuple[str, str]]:
    if pipeline.running is not None:
        done = f"{pipeline.running.done:,} of {pipeline.running.total:,}"
        yield "Compaction", f"running: {pipeline.running.stage}, {done}"
    if pipeline.last_run is None:
        yield "Last compaction", "never"
    else:
        outcome, ended = pipeline.last_run.outcome.replace("_", " "), moment(pipeline.last_run.ended_ms)
        parts: list[str] = [outcome, ", ", ended]
        if pipeline.last_run.outcome in ("failed", "partly", "timed_out"):
            parts += [" ", help_link(Anchor.PIPELINE_FAILS)]
        yield "Last compaction", joined(parts)
    if pipeline.next_begin_ms is not None:
        yield "Next compaction", moment(pipeline.next_begin_ms)


def _consumers(endpoint: EndpointSummary) -> Html:
    line = endpoint_line(endpoint)
    if not line:
        return Html("")
    ordered = sorted(endpoint.groups.items(), key=lambda item: (-(item[1].lag or 0), item[0]))
    rows = [
        (
            name,
            group.state,
            number_text(group.members),
            number_text(group.partitions),
            "not known" if group.lag is None else ("" if group.is_lag_complete else "at least ") + f"{group.lag:,}",
        )
        for name, group in ordered[:_MAX_GROUPS]
    ]
    caption = f"{len(rows):,} of {len(ordered):,} consumer groups, largest lag first"
    groups = table(caption, _GROUP_COLUMNS, rows) if rows else element("p", "No consumer group.", class_="quiet")
    return section("Consumers of the read endpoint", element("p", line), groups)


def _push(snapshot: StatusSnapshot) -> Html:
    lines = push_lines(snapshot.push_summary())
    unprotected = unprotected_line(snapshot.unprotected_summary())
    risk = render_problem(PageProblem(unprotected, Anchor.UNPROTECTED)) if unprotected else ""
    return section("Push replication", paragraphs([*lines, risk]))
