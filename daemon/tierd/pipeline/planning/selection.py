"""Selection of the proposals of one run: first what people asked for, then the dirtiest, up to a limit of bytes."""

from collections.abc import Container, Iterable
from typing import Final

from tierd.model import TopicIdPartition
from tierd.pipeline.planning.proposal import Proposal
from tierd.pipeline.planning.work_order import WorkKind

_FIRST: Final = (WorkKind.ERASE, WorkKind.COMPACT, WorkKind.MERGE)


def by_urgency(proposals: Iterable[Proposal], *, behind: Container[TopicIdPartition] = ()) -> list[Proposal]:
    """Sort proposals: erasures, then compactions, the dirtiest first, then merges, the most segments first (CLM-01).

    Within each kind the partitions ``behind`` come last.
    """

    def urgency(proposal: Proposal) -> tuple[int, bool, float, int, TopicIdPartition]:
        is_behind = proposal.partition in behind
        return _FIRST.index(proposal.kind), is_behind, -proposal.ratio, -_segments(proposal), proposal.partition

    return sorted(proposals, key=urgency)


class RunBudget:
    """Budget of the bytes that one run may rewrite; one proposal after the other takes its share."""

    def __init__(self, max_bytes: int | None) -> None:
        """Begin with ``max_bytes``; None for no limit."""
        self._left = max_bytes
        self._is_untouched = True

    def take(self, proposal: Proposal) -> Proposal | None:
        """Return the part of a proposal that fits, None when the proposal has to wait for another run.

        The first proposal is cut to the budget, and exceeds it only where a smaller part would make no progress:
        otherwise a partition larger than the limit would never be rewritten. Later proposals are taken whole.
        """
        if self._left is None:
            return proposal
        taken = proposal.cut(self._left) if self._is_untouched else proposal
        if taken.size_bytes > self._left and not self._is_untouched:
            return None
        self._left, self._is_untouched = max(0, self._left - taken.size_bytes), False
        return taken


def _segments(proposal: Proposal) -> int:
    return sum(group.last - group.first + 1 for group in proposal.groups)
