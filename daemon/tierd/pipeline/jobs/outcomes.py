"""Outcomes of groups, on their way from an executor to the driver, and the order in which the leader gets them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tierd.pipeline.jobs.task_layout import GroupPlace
from tierd.pipeline.planning import Output
from tierd.remote import SegmentManifest


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """Outcome of a group whose output's log and indexes are in the store.

    Attributes:
        counts: what was done to the records, in numbers.
        erased: number of removed records by erased key.
    """

    output: Output
    manifest: SegmentManifest
    counts: Mapping[str, int]
    erased: Mapping[bytes, int] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class UnchangedGroup:
    """Outcome of a group that is right as it is, or whose audit found no problem; nothing was stored.

    Attributes:
        counts: counts of the group that are reported all the same.
    """

    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changed:
    """Outcome of a first try: the output would differ from the input; no output was begun, and nothing was stored."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Outcome of a group that the leader refused to begin; the leader has noted it."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailedGroup:
    """Outcome of a group that could not be rewritten or whose audit found a problem; it stays as it is."""

    problem: str


Settled = WrittenGroup | UnchangedGroup | Refused | FailedGroup
RewriteOutcome = Settled | Changed


class CommitOrder:
    """Commit order of outcomes: those of one partition in the order of its groups, in whatever order tasks end.

    A later group may remove a record that an earlier group still needs, such as a tombstone before the record that it
    deletes. So the leader gets the outcome of the earlier group first, and refuses the later group if the earlier one
    failed.
    """

    def __init__(self, places: Iterable[GroupPlace]) -> None:
        self._waiting: dict[int, list[GroupPlace]] = {}
        for place in sorted(places, reverse=True):
            self._waiting.setdefault(place.index, []).append(place)
        self._settled: dict[GroupPlace, Settled] = {}

    def settle(self, place: GroupPlace, outcome: Settled) -> list[tuple[GroupPlace, Settled]]:
        """Take an outcome; return the outcomes that may be reported now, in order."""
        self._settled[place] = outcome
        waiting = self._waiting[place.index]
        due: list[tuple[GroupPlace, Settled]] = []
        while waiting and waiting[-1] in self._settled:
            next_place = waiting.pop()
            due.append((next_place, self._settled.pop(next_place)))
        return due
