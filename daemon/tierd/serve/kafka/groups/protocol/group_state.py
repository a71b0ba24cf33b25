"""ClassicGroupState: the states of a consumer group, and the steps between them.

::

                       a member joins
            ┌──────────────────────────────────────┐
            │                                      ▼
         EMPTY ◀──── all members are gone ── PREPARING_REBALANCE ◀──┐
            │                                      │                │ a member joins anew, leaves or fails,
            │               every member has joined, or time is up; │ or does not ask for its assignment
            │               the next generation is durable          │
            │                                      ▼                │
            │                             COMPLETING_REBALANCE ─────┤
            │                                      │                │
            │                    the leader has sent assignments    │
            │                                      ▼                │
            │                                   STABLE ─────────────┘
            ▼
          DEAD ◀── the group was deleted, or another daemon coordinates it: from every state
"""

from enum import Enum
from typing import Final


class ClassicGroupState(Enum):
    """State of a group of the classic protocol, by Kafka's names."""

    EMPTY = "Empty"
    """The group has no member; it may have committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are asked to join again; those that have joined wait for the rest."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has begun; its members wait for the assignments of their leader."""
    STABLE = "Stable"
    """Every member has, or can get, its assignment."""
    DEAD = "Dead"
    """The group is not here any more."""

    def may_become(self, target: "ClassicGroupState") -> bool:
        """Return True if there is a step from this state to ``target``."""
        return target is ClassicGroupState.DEAD or target in _STEPS[self]


_STEPS: Final = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset({ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY}),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE}
    ),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
    ClassicGroupState.DEAD: frozenset(),
}
