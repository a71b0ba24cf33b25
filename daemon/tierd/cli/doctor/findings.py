"""Findings of ``tierd doctor``, and their order. Values only."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Urgency(StrEnum):
    """Time in which a person has to act on a finding; a note asks for nothing."""

    NOW = "now"
    SOON = "soon"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that the doctor found.

    Attributes:
        area: a fixed word or two, such as ``object store``.
        problem: what is wrong and why, in one line.
        remedy: what to do, in one line; may be empty.
        command: the command to begin with.
    """

    urgency: Urgency
    area: str
    problem: str
    remedy: str
    command: str


def most_urgent_first(findings: Iterable[DoctorFinding]) -> list[DoctorFinding]:
    """Return findings by urgency, each once; those of equal urgency keep their order."""
    order = list(Urgency)
    return sorted(dict.fromkeys(findings), key=lambda finding: order.index(finding.urgency))
