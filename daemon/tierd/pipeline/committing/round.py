"""PartitionRound: how far each group of one partition has come in a run, and what may happen to it next.

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
"""Records whose absence lets an older one of their key be seen, where such a one is left in an earlier group."""


class GroupState(Enum):
    """State of a group."""

    WAITING = "waiting"
    OPEN = "open"
    DONE = "done"
    LEFT = "left as it was"


class PartitionRound:
    """One partition of an order.

    Attributes:
        work: what is to be done.
        lost: why nothing more of the partition may be committed; None while it may.
        outputs: of the groups that were committed, by group.
        counts: what was done to the records of those, added up.
        erased: how many records of each erased key went from those.
    """

    def __init__(self, work: PartitionWork) -> None:
        self.work = work
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
        """Return True if its segments are only looked at."""
        return self.work.kind is WorkKind.AUDIT

    @property
    def is_complete(self) -> bool:
        """Return True if every group is as this round is to leave it."""
        return all(state is GroupState.DONE for state in self._states)

    @property
    def has_failed(self) -> bool:
        """Return True if a group is left that was to be rewritten."""
        return not self.is_audit and GroupState.LEFT in self._states

    def move(self, group: int, state: GroupState) -> None:
        """Take note of where a known group stands now."""
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
        """Return why no outcome of a group is taken any more; None when it is."""
        if not 0 <= group < len(self._states):
            return f"the order has no group {group} of {self.work.partition}"
        if self._states[group] not in (GroupState.WAITING, GroupState.OPEN):
            return f"group {group} is {self._states[group].value} already"
        return None

    def why_not_commit(self, group: int, counts: Mapping[str, int]) -> str | None:
        """Return why an open group must not be committed now; None when it may.

        A compaction takes a tombstone away once nothing is left that it hides. What it hides lies in the groups before
        it: while one of those is not done, the tombstone stays, and so does the whole group. It is the same with a
        record that expired, for an older one of its key may have a later timestamp.

        Args:
            group: the group.
            counts: what was done to its records; a count of ``ORDERED_COUNTS`` that is not told is any number.
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
        """Return True if this round takes such records out, so that a count that is not told may be any number."""
        return bool(self.work.erased_keys) if name == "records_erased" else self.work.compacts

    def compacted_to_with(self, group: int) -> int | None:
        """Up to where the partition is clean once ``group`` is done, exclusive; None when that is not known yet."""
        others = (state for place, state in enumerate(self._states) if place != group)
        completes = self.work.compacts and all(state is GroupState.DONE for state in others)
        return self.work.round_end_offset if completes else None
