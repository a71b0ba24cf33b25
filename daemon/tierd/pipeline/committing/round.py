"""PartitionRound: the state of each group of one partition in a run, and the steps that it may take next.

::

    WAITING ──begin──► OPEN ──committed──► DONE
       ├───────unchanged─┴───────────────►  │    all DONE: the partition is clean to the end of the round
       └──────failed, refused──┴─────────► LEFT
"""

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from tierd.model import RemoteLogSegmentId
from tierd.pipeline.planning import PartitionWork, WorkKind

ORDERED_COUNTS: Final = ("records_tombstone", "records_expired", "records_erased")
"""Counts of removed records that may have hidden an older record of their key in an earlier group."""


class GroupState(Enum):
    """State of a group."""

    WAITING = "waiting"
    OPEN = "open"
    DONE = "done"
    LEFT = "left as it was"


class PartitionRound:
    """State of one partition of an order.

    Attributes:
        work: the work of the round.
        log_start_offset: log start when a compaction was planned; 0 for other work, which hides no record.
        lost: why nothing more of the partition may be committed; None while it may.
        outputs: of the groups that were committed, by group.
        counts: what was done to the records of the committed groups, added up.
        erased: number of records removed from the committed groups, by erased key.
    """

    def __init__(self, work: PartitionWork, *, log_start_offset: int = 0) -> None:
        self.work = work
        self.log_start_offset = log_start_offset if work.compacts else 0
        self.lost: str | None = None
        self.outputs: dict[int, RemoteLogSegmentId] = {}
        self.counts: Counter[str] = Counter()
        self.erased: Counter[bytes] = Counter()
        self._states = [GroupState.WAITING] * len(work.groups)

    @property
    def states(self) -> tuple[GroupState, ...]:
        """Return the state of every group."""
        return tuple(self._states)

    @property
    def is_audit(self) -> bool:
        """Return True if the segments are only audited, and none is replaced."""
        return self.work.kind is WorkKind.AUDIT

    @property
    def has_failed(self) -> bool:
        """Return True if a group that was to be rewritten was left as it was."""
        return not self.is_audit and GroupState.LEFT in self._states

    def move(self, group: int, state: GroupState) -> None:
        """Take note of the new state of a known group."""
        self._states[group] = state

    def commit(
        self,
        group: int,
        output: RemoteLogSegmentId,
        counts: Mapping[str, int],
        *,
        erased: Mapping[bytes, int] = MappingProxyType({}),
    ) -> None:
        """Take note that ``output`` has taken the place of a group's inputs."""
        self.move(group, GroupState.DONE)
        self.outputs[group] = output
        self.counts.update(counts)
        self.erased.update(erased)

    def why_not_begin(self, group: int) -> str | None:
        """Return why a group must not be begun; None when it may."""
        if self.lost is not None:
            return self.lost
        if not 0 <= group < len(self._states):
            return f"the order has no group {group} of {self.work.partition}"
        if self.is_audit:
            return "an audit replaces nothing"
        if self._states[group] is not GroupState.WAITING:
            return f"group {group} is {self._states[group].value} already"
        return None

    def why_not_settle(self, group: int) -> str | None:
        """Return why no outcome of a group can be taken: it is unknown or has one; None when it can."""
        if not 0 <= group < len(self._states):
            return f"the order has no group {group} of {self.work.partition}"
        if self._states[group] not in (GroupState.WAITING, GroupState.OPEN):
            return f"group {group} is {self._states[group].value} already"
        return None

    def why_not_commit(self, group: int, counts: Mapping[str, int]) -> str | None:
        """Return why an open group must not be committed now; None when it may.

        A compaction removes a tombstone once no record is left that the tombstone hides. Such records lie in earlier
        groups: while one of these groups is not done, the tombstone stays, and its whole group stays with it. The same
        holds for a record that expired, for an older one of its key may have a later timestamp, and for an erased one.

        Args:
            group: the group.
            counts: counts of the rewrite, by name; a missing count of ``ORDERED_COUNTS`` may be any number.
        """
        if self.lost is not None:
            return self.lost
        earlier = [place for place in range(group) if self._states[place] is not GroupState.DONE]
        if not earlier or not self.work.is_ordered:
            return None
        gone = [name for name in ORDERED_COUNTS if counts.get(name, 1) and self._may_go(name)]
        if not gone:
            return None
        where = f"group {earlier[0]} before it is {self._states[earlier[0]].value}"
        return f"{' and '.join(gone)}: what they hide may still be there, since {where}"

    def _may_go(self, name: str) -> bool:
        """Return True if this round may remove the records that the count is about."""
        return bool(self.work.erased_keys) if name == "records_erased" else self.work.compacts

    def compacted_to_with(self, group: int) -> int | None:
        """Return the end of the clean part of the partition once ``group`` is done, exclusive.

        None when this is no compaction, or another group is not done.
        """
        others = (state for place, state in enumerate(self._states) if place != group)
        completes = self.work.compacts and all(state is GroupState.DONE for state in others)
        return self.work.round_end_offset if completes else None
