"""The answer of ``tierd doctor``: findings of all rules, as one page and as JSON. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

from pydantic import JsonValue

from tierd.cli.doctor.daemon_rules import daemon_findings
from tierd.cli.doctor.facts import DoctorFinding, Facts, HostFacts, Urgency, most_urgent_first
from tierd.cli.doctor.host_rules import host_findings

_TITLES: Final = {
    Urgency.NOW: "NOW: records may be lost, or the daemon does not work",
    Urgency.SOON: "SOON: work fails, or will fail",
    Urgency.NOTE: "NOTES: nothing has to be done",
}

_COUNTED: Final = {Urgency.NOW: "now", Urgency.SOON: "soon", Urgency.NOTE: "notes"}


def diagnose(facts: Facts) -> list[DoctorFinding]:
    """Return the findings, the most urgent first."""
    return most_urgent_first([*daemon_findings(facts), *host_findings(facts)])


def needs_a_person(findings: Sequence[DoctorFinding]) -> bool:
    """Return whether a finding is more than a note."""
    return any(finding.urgency is not Urgency.NOTE for finding in findings)


def page_lines(facts: Facts, findings: Sequence[DoctorFinding]) -> Iterator[str]:
    """Yield the lines of the page: a summary, then the findings by urgency, each with its next step and command."""
    counts = Counter(finding.urgency for finding in findings)
    moment = datetime.fromtimestamp(facts.now_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    counted = ", ".join(f"{counts[urgency]} {name}" for urgency, name in _COUNTED.items())
    yield f"tierd doctor, {moment}: {counted}"
    yield _subject(facts)
    for urgency, title in _TITLES.items():
        listed = [finding for finding in findings if finding.urgency is urgency]
        if listed:
            yield ""
            yield title
        for finding in listed:
            yield f"- {finding.area}: {finding.problem}"
            if finding.remedy:
                yield f"    next: {finding.remedy}"
            yield f"    run:  {finding.command}"


def _subject(facts: Facts) -> str:
    status = facts.status
    if status is None:
        return f"{facts.config_file}; the daemon did not answer"
    up_s = max(status.now_ms - status.started_ms, 0) // 1000
    return (
        f"{facts.config_file}; tierd {status.version}, process {status.pid}, node {status.node_id} of cluster "
        f"{status.cluster_id}, up for {up_s} s, {len(status.partitions)} partitions"
    )


def answer(facts: Facts, findings: Sequence[DoctorFinding], *, bundle: str | None = None) -> dict[str, JsonValue]:
    """Return the object that ``--json`` prints."""
    host = facts.host if isinstance(facts.host, HostFacts) else None
    counts = Counter(finding.urgency for finding in findings)
    listed: list[JsonValue] = [{**asdict(finding), "urgency": finding.urgency.value} for finding in findings]
    steps: list[JsonValue] = [asdict(step) for step in facts.steps]
    return {
        "examined_ms": facts.now_ms,
        "config": str(facts.config_file),
        "version": host.version if host is not None else "",
        "commit": host.commit if host is not None else "",
        "daemon_answers": facts.status is not None,
        "ok": not needs_a_person(findings),
        "counts": {urgency.value: counts[urgency] for urgency in Urgency},
        "findings": listed,
        "steps": steps,
        "bundle": bundle,
    }
