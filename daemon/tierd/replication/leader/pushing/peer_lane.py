"""``PeerLane``: the way from one pusher to one peer: connection, slots in turn, requests without an answer (2.4)."""

from collections import OrderedDict
from collections.abc import Callable
from enum import Enum
from typing import Final

from tierd.replication.leader.pushing.append_builder import SentAppend
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.pushing.session_slot import NEVER, SessionSlot, SlotState
from tierd.replication.model.push_session import PeerNode

LINK_IDLE_S: Final = 10.0
MAX_CHUNKS: Final = 16
"""Chunks of file ranges that one lane reads or sends at a time; other sessions wait for their first chunk."""
_BACKOFF_BASE_S: Final = 0.1
_BACKOFF_CAP_S: Final = 5.0
_MOST_DOUBLINGS: Final = 10


def push_backoff_s(failures: int, random: Callable[[], float]) -> float:
    """Return the wait after ``failures`` in a row, at least 1: 100 ms doubling to 5 s, with full jitter."""
    return min(_BACKOFF_CAP_S, _BACKOFF_BASE_S * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)) * random()


class LinkState(Enum):
    """State of a lane's connection."""

    CLOSED = "closed"
    OPENING = "opening"
    OPEN = "open"


class PeerLane:
    """Slots of one peer at one pusher. ``PusherCore`` changes it.

    Attributes:
        node: address of the peer.
        replica_epoch: process epoch of the peer, the same for all sessions.
        slots: sessions, and ended sessions whose end the peer does not know yet.
        ready: slots that are due, in their turn; a slot that was served goes to the end.
        loading: slots that wait for a chunk of their file range.
        chunk_holders: slots whose chunk is read or sent.
        in_flight: requests without an answer.
        link_id: of the connection that is open or opens.
        not_before_s: end of the wait after a failed connection.
        throttled_until_s: end of the wait that the peer asked for.
        empty_since_s: time at which the last slot left.
        timer_at_s: time of the lane's next timer; see ``PushTimers``.
    """

    def __init__(self, node: PeerNode, now_s: float) -> None:
        """Begin without a connection."""
        self.node = node
        self.replica_epoch = -1
        self.slots: dict[SessionSlot, None] = {}
        self.ready: OrderedDict[SessionSlot, None] = OrderedDict()
        self.loading: dict[SessionSlot, None] = {}
        self.chunk_holders: set[SessionSlot] = set()
        self.in_flight: dict[int, SentAppend] = {}
        self.link = LinkState.CLOSED
        self.link_id = -1
        self.link_deadline_s = NEVER
        self.failures = 0
        self.not_before_s = 0.0
        self.throttled_until_s = 0.0
        self.loads_not_before_s = 0.0
        self.empty_since_s = now_s
        self.timer_at_s = NEVER

    @property
    def has_work(self) -> bool:
        """Return True if a slot waits for its turn or for a chunk."""
        return bool(self.ready or self.loading)

    def enqueue(self, slot: SessionSlot) -> None:
        """Give a slot that is due its turn: behind the others, or before them to tell of an end."""
        self.ready[slot] = None
        if slot.state is SlotState.STOPPING:
            self.ready.move_to_end(slot, last=False)

    def remove(self, slot: SessionSlot) -> None:
        """Take an ended slot out of the turn and of the loading."""
        self.ready.pop(slot, None)
        self.loading.pop(slot, None)
        self.chunk_holders.discard(slot)

    def may_send(self, settings: PushSettings, now_s: float) -> bool:
        """Return True if a request would be sent now."""
        return (
            self.link is LinkState.OPEN
            and bool(self.ready)
            and len(self.in_flight) < settings.in_flight_per_peer
            and self.throttled_until_s <= now_s
        )

    def may_load(self, now_s: float) -> bool:
        """Return True if a chunk would be read now."""
        return (
            self.link is LinkState.OPEN
            and bool(self.loading)
            and len(self.chunk_holders) < MAX_CHUNKS
            and self.loads_not_before_s <= now_s
        )

    def may_connect(self, now_s: float) -> bool:
        """Return True if a connection would be opened now."""
        return self.link is LinkState.CLOSED and self.has_work and self.not_before_s <= now_s

    def wake_at_s(self, settings: PushSettings) -> float:
        """Return the time at which the lane needs attention if no event comes before."""
        wake = self.link_deadline_s
        for sent in self.in_flight.values():
            wake = min(wake, sent.deadline_s)
        if self.link is LinkState.CLOSED:
            return min(wake, self.not_before_s) if self.has_work else wake
        if self.link is LinkState.OPENING:
            return wake
        if not self.slots and not self.in_flight:
            wake = min(wake, self.empty_since_s + LINK_IDLE_S)
        if self.ready and len(self.in_flight) < settings.in_flight_per_peer:
            wake = min(wake, self.throttled_until_s)
        if self.loading and len(self.chunk_holders) < MAX_CHUNKS:
            wake = min(wake, self.loads_not_before_s)
        return wake
