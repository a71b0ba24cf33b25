"""Prospects of groups: to be rewritten, with the transactions open before them, unchanged, or failed. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tierd.pipeline.jobs.outcomes import FailedGroup, UnchangedGroup
from tierd.pipeline.jobs.scanning import AuditNote, ErasureNote, InputNote
from tierd.pipeline.jobs.task_layout import GroupPlace, InputPlace
from tierd.pipeline.planning import PartitionWork
from tierd.pipeline.rewriting import TransactionTrace


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Prospect of a group that is to be rewritten.

    Attributes:
        open_producers: producers whose transactions are open where the group begins.
        is_certain: True if the output will differ; otherwise a first try finds out.
        unread_from: base offset of the partition's first batch that cannot be opened; None without any.
        latest: number of its records that are the latest of their keys; 0 for work that compacts nothing.
    """

    open_producers: frozenset[int] = frozenset()
    is_certain: bool = True
    unread_from: int | None = None
    latest: int = 0


Prospect = Rewrite | UnchangedGroup | FailedGroup


def compaction_prospects(
    work: PartitionWork, notes: Mapping[InputPlace, InputNote], latest: Mapping[GroupPlace, int]
) -> dict[GroupPlace, Prospect]:
    """Return the prospects of the groups of a partition that is compacted.

    A group with an input that cannot be read fails. All groups behind such an input fail if the input is in no group:
    its records are unknown, so no record that may hide one of them can be removed.

    Args:
        work: of the partition.
        notes: notes of all inputs of the partition.
        latest: by group, the number of records that are the latest of their keys.
    """
    prospects: dict[GroupPlace, Prospect] = {}
    before, at = _Before(work, notes.values()), 0
    unread_from = min((n.unread_from for n in notes.values() if n.unread_from is not None), default=None)
    for group, (first, last) in enumerate(work.groups):
        before.read([notes[InputPlace(work.index, number)] for number in range(at, first)], is_grouped=False)
        inside = [notes[InputPlace(work.index, number)] for number in range(first, last + 1)]
        place = GroupPlace(work.index, group)
        problem = before.problem or _problem_of(inside)
        is_certain = len(inside) > 1 or latest[place] < inside[0].keyed
        rewrite = Rewrite(before.open_producers, is_certain, unread_from, latest[place])
        prospects[place] = FailedGroup(problem) if problem else rewrite
        before.read(inside, is_grouped=True)
        at = last + 1
    return prospects


class _Before:
    """State of the log before a group.

    Attributes:
        problem: why no group behind this place may be rewritten.
        open_producers: producers whose transactions may be open here: behind an input that could not be read, all
            known producers. Data of the unread input may stay, and its transaction would never end without the marker.
    """

    def __init__(self, work: PartitionWork, notes: Iterable[InputNote]) -> None:
        self.problem: str | None = None
        aborted = (transaction.producer_id for transaction in work.aborted)
        self._known = frozenset(aborted).union(*(note.trace.goes_on for note in notes))
        self._trace = TransactionTrace()
        self._unknown: frozenset[int] = frozenset()

    @property
    def open_producers(self) -> frozenset[int]:
        return self._trace.open_producers | self._unknown

    def read(self, notes: Sequence[InputNote], *, is_grouped: bool) -> None:
        """Move behind some inputs."""
        for note in notes:
            self._trace.extend(note.trace)
        if problem := _problem_of(notes):
            self._unknown = self._known
            self.problem = self.problem or (None if is_grouped else problem)


def _problem_of(notes: Iterable[InputNote | ErasureNote | AuditNote]) -> str | None:
    return next((note.problem for note in notes if note.problem), None)


def erasure_prospects(work: PartitionWork, notes: Iterable[ErasureNote]) -> dict[GroupPlace, Prospect]:
    """Return the prospects of groups from which keys are to be erased: only groups with such keys are rewritten."""
    found = {note.place.segment: note for note in notes}
    prospects: dict[GroupPlace, Prospect] = {}
    for group, (first, last) in enumerate(work.groups):
        of_group = [found[at] for at in range(first, last + 1)]
        problem = _problem_of(of_group)
        has_keys = any(note.records for note in of_group)
        prospects[GroupPlace(work.index, group)] = (
            FailedGroup(problem) if problem else Rewrite() if has_keys else UnchangedGroup()
        )
    return prospects


def audit_prospects(work: PartitionWork, notes: Iterable[AuditNote]) -> dict[GroupPlace, Prospect]:
    """Return the prospects of audited groups: unchanged, or failed with the finding in one of the segments."""
    found = {note.place.segment: note for note in notes}
    prospects: dict[GroupPlace, Prospect] = {}
    for group, (first, last) in enumerate(work.groups):
        problem = _problem_of([found[at] for at in range(first, last + 1)])
        prospects[GroupPlace(work.index, group)] = FailedGroup(problem) if problem else UnchangedGroup()
    return prospects


def merge_prospects(work: PartitionWork) -> dict[GroupPlace, Prospect]:
    """Return the prospects of groups that are merged: every group is rewritten, without a first pass."""
    return {GroupPlace(work.index, group): Rewrite() for group in range(len(work.groups))}
