"""Problems in words, each with the section of the operations page that says what to do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tierd.serve.page.markup import Html, element, joined
from tierd.serve.page.operations_page import Anchor, help_link
from tierd.serve.status_lines import cause_and_remedy, drill_problems, endpoint_problems, push_problems
from tierd.serve.status_snapshot import StatusSnapshot
from tierd.tiering import PartitionStatus

_MAX_UNCLEANABLE: Final = 20
_OF_STATE: Final = {"quarantined": Anchor.ERRORS, "paused": Anchor.PAUSE}


@dataclass(frozen=True, slots=True)
class PageProblem:
    """A problem that needs a person, or a reason why work does not happen; ``is_notice`` if it may be as it is."""

    text: str
    anchor: Anchor
    is_notice: bool = False


def render_problem(problem: PageProblem) -> Html:
    """Return the text with its link."""
    return joined((problem.text, " ", help_link(problem.anchor)))


def render_problems(problems: Sequence[PageProblem]) -> Html:
    """Return a list of problems; empty without one."""
    if not problems:
        return Html("")
    items = (element("li", render_problem(each), class_="notice" if each.is_notice else "trouble") for each in problems)
    return element("ul", *items, class_="problems")


def partition_problem(partition: PartitionStatus) -> PageProblem | None:
    """Return why a partition is in its state; None where there is nothing to say."""
    text = cause_and_remedy(partition.last_error, partition.reason, partition.remedy)
    anchor = _OF_STATE.get(partition.state, Anchor.STATES)
    return PageProblem(text, anchor, is_notice=partition.state != "quarantined") if text else None


def snapshot_problems(snapshot: StatusSnapshot) -> list[PageProblem]:
    """Return what needs a person at the daemon as a whole, without partitions."""
    offline = (f"log dir {each.path} is offline: {each.problem}" for each in snapshot.log_dirs if each.problem)
    return [
        *_problems(Anchor.PROBLEMS, offline),
        *_problems(Anchor.PORTS, [snapshot.descriptors_problem()]),
        *_problems(Anchor.CATALOGUE, [snapshot.catalogue_problem()]),
        *_problems(Anchor.DRILL_FAILS, drill_problems(snapshot.drills_summary())),
        *_problems(Anchor.ENDPOINT_IS_BEHIND, endpoint_problems(snapshot.endpoint_summary())),
        *_problems(Anchor.STANDBY_IS_BEHIND, push_problems(snapshot.push_summary())),
        *_problems(Anchor.PROBLEMS, _uncleanable(snapshot.uncleanable())),
    ]


def _problems(anchor: Anchor, texts: Iterable[str]) -> list[PageProblem]:
    return [PageProblem(text, anchor) for text in texts if text]


def _uncleanable(logs: Sequence[tuple[str, str]]) -> list[str]:
    lines = [
        f"the log {log} is not cleaned until it is repaired (tierd inspect): {why}"
        for log, why in logs[:_MAX_UNCLEANABLE]
    ]
    left_out = len(logs) - _MAX_UNCLEANABLE
    return [*lines, f"{left_out} more logs are not cleaned: tierd status --json"] if left_out > 0 else lines
