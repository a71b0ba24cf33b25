"""Rules for the transition of a replica from pull to push (push-replication 1.8). Pure.

The conditions 3 and 5, the leader epoch, the process of the standby and the divergence, are part of the answer to every
fetch: a fetch that is refused begins no session. The lag comes last: a replica that only lags is counted.
"""

from dataclasses import dataclass
from enum import Enum

from tierd.replication.model.replication_state import FINAL_SESSION_ID, UNKNOWN_SESSION_ID


class TransitionObstacle(Enum):
    """Reason why a fetch begins no session; the value is shown to operators."""

    NOT_ACTIVE = "push replication is not running"
    NOT_SUPPORTED = "push is switched off, or not for this topic"
    STANDBY_CANNOT = "the standby cannot take pushes"
    STANDBY_SWITCHED_OFF = "push is switched off at the standby"
    SESSION_ENDED = "the standby still fetches with the id of an ended session"
    THROTTLED = "the standby is throttled"
    LOG_MOVES = "the log moves to another directory"
    NOT_IN_SYNC = "the standby is not in sync yet"
    MEMORY_FULL = "the memory for pushes is nearly full"
    COOLDOWN = "a session failed; the next one has to wait"
    LAGS = "the standby lags behind the log end"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionFacts:
    """Facts about a replica whose fetch was accepted.

    Attributes:
        session_id: of the fetch.
        ended_session_id: highest id of a session that ended, of the same process of the standby.
        has_room: the buffer is empty enough for a transition.
        cooldown_until_s: monotonic time.
    """

    is_active: bool
    is_supported: bool
    session_id: int
    ended_session_id: int
    is_throttled: bool
    is_moving: bool
    is_in_sync: bool
    has_room: bool
    cooldown_until_s: float


def transition_obstacle(facts: TransitionFacts, now_s: float) -> TransitionObstacle | None:
    """Return the first condition but the lag that does not hold; None if all of them hold."""
    checks = (
        (facts.is_active, TransitionObstacle.NOT_ACTIVE),
        (facts.is_supported, TransitionObstacle.NOT_SUPPORTED),
        (facts.session_id != UNKNOWN_SESSION_ID, TransitionObstacle.STANDBY_CANNOT),
        (facts.session_id != FINAL_SESSION_ID, TransitionObstacle.STANDBY_SWITCHED_OFF),
        (facts.session_id >= facts.ended_session_id, TransitionObstacle.SESSION_ENDED),
        (not facts.is_throttled, TransitionObstacle.THROTTLED),
        (not facts.is_moving, TransitionObstacle.LOG_MOVES),
        (facts.is_in_sync, TransitionObstacle.NOT_IN_SYNC),
        (facts.has_room, TransitionObstacle.MEMORY_FULL),
        (now_s >= facts.cooldown_until_s, TransitionObstacle.COOLDOWN),
    )
    return next((obstacle for holds, obstacle in checks if not holds), None)


def may_close_gap(size_bytes: int | None, *, max_lag_bytes: int) -> bool:
    """Return True if a file range of this size may begin a session.

    None: the range begins inside a batch, or its files are not open: the standby reads on by fetching.
    """
    return size_bytes is not None and size_bytes <= max_lag_bytes
