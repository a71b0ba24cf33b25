"""Outcomes of groups, on their way from an executor to the driver, and the order in which the leader gets them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tierd.pipeline.jobs.layout import GroupPlace
from tierd.pipeline.planning import Output
from tierd.remote import SegmentManifest


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """Log and indexes of the output are in the store.

    Attributes:
        counts: what was done to the records, in numbers.
        erased: how many records of each erased key went.
    """

    output: Output
    manifest: SegmentManifest
    counts: Mapping[str, int]
    erased: Mapping[bytes, int] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class UnchangedGroup:
    """The output would be what the one input is; nothing was stored.

    Attributes:
        counts: what people are to know of it all the same.
    """

    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Changed:
    """The output would differ, but none was begun; nothing was stored."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The leader did not let the group be begun, and has noted that."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailedGroup:
    """The group stays as it is."""

    problem: str


Settled = WrittenGroup | UnchangedGroup | Refused | FailedGroup
Outcome = Settled | Changed


class Turns:
    """Puts outcomes in order: of one partition in that of its groups, whatever the order in which tasks end.

    A later group may take away what an earlier one still needs, such as a tombstone before the record that it deletes.
    So the leader hears of the earlier one first, and refuses the later one if that failed.
    """

    def __init__(self, places: Iterable[GroupPlace]) -> None:
        self._waiting: dict[int, list[GroupPlace]] = {}
        for place in sorted(places, reverse=True):
            self._waiting.setdefault(place.index, []).append(place)
        self._settled: dict[GroupPlace, Settled] = {}

    def settle(self, place: GroupPlace, outcome: Settled) -> list[tuple[GroupPlace, Settled]]:
        """Take an outcome; return those whose turn has come, in order."""
        self._settled[place] = outcome
        waiting = self._waiting[place.index]
        due: list[tuple[GroupPlace, Settled]] = []
        while waiting and waiting[-1] in self._settled:
            next_place = waiting.pop()
            due.append((next_place, self._settled.pop(next_place)))
        return due
