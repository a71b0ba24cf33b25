"""The replication mode of a partition replica and its session id (push-replication 1.6).

::

            next_id(PUSH) = id                    next_id(PULL) = id + 1
    PULL, id ------------------------> PUSH, id ------------------------> PULL, id + 1

Leader and follower each hold a state per partition replica. The follower increases the id when it goes back to PULL.
The id starts at ``INITIAL_SESSION_ID`` with each process of the follower and is not stored: its process epoch is part
of every session's identity.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

UNKNOWN_SESSION_ID: Final = -1
"""Of a follower without push replication, and the leader's value before the follower has fetched."""
INITIAL_SESSION_ID: Final = 0
FINAL_SESSION_ID: Final = (1 << 63) - 1
"""Of a follower with push replication switched off: it is never promoted."""


class ReplicationMode(IntEnum):
    """The direction of replication: the follower fetches, or the leader pushes. The numbers are those of the wire."""

    PULL = 0
    PUSH = 1


@dataclass(frozen=True, slots=True)
class ReplicationState:
    """Mode and session id of one partition replica."""

    mode: ReplicationMode = ReplicationMode.PULL
    session_id: int = UNKNOWN_SESSION_ID

    def next_id(self, mode: ReplicationMode) -> int:
        """Return the session id with which a change to ``mode`` is proposed."""
        return self.session_id + 1 if mode < self.mode else self.session_id

    def can_transition(self, mode: ReplicationMode, session_id: int) -> bool:
        """Return True if ``mode`` with ``session_id`` may follow this state."""
        if mode is self.mode or session_id != self.next_id(mode):
            return False
        return mode is ReplicationMode.PULL or session_id not in {UNKNOWN_SESSION_ID, FINAL_SESSION_ID}

    def transition(self, mode: ReplicationMode) -> Self:
        """Return the state after a change to ``mode``.

        Raises:
            ValueError: the change is not possible.
        """
        session_id = self.next_id(mode)
        if not self.can_transition(mode, session_id):
            raise ValueError(f"{self} cannot become {mode.name}")
        return type(self)(mode, session_id)
