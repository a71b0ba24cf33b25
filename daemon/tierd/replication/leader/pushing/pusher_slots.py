"""``PusherSlots``: the slots of one pusher, their timers and their ends."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count, islice
from typing import Final, Generic, Protocol, TypeVar

from tierd.replication.leader.logs.record_memory import PushMemoryBudget
from tierd.replication.leader.pushing.peer_lane import LinkState, PeerLane, push_backoff_s
from tierd.replication.leader.pushing.push_actions import PushAction, PushLeader, PushSessionEnded, ReleaseFile
from tierd.replication.leader.pushing.push_counters import PushCounters
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.pushing.session_slot import SessionSlot, SlotState
from tierd.replication.model.push_session import PushSession, PushSessionEndReason

MAX_THROTTLE_S: Final = 60.0
MAX_TIMERS: Final = 512
"""Slots that one turn looks at for their timers: it never holds the event loop for long."""


@dataclass(frozen=True, slots=True)
class PushShared:
    """Parts that all pushers of a manager have together.

    Attributes:
        actions: what the shell has to carry out, in order.
        random: number in [0, 1) for the jitter of waits.
        admit: makes room for bytes, and returns the slots that take them.
        end_peer: ends all sessions of a node, at all pushers.
        forget: removes a slot from the routing table.
    """

    settings: PushSettings
    leader: PushLeader
    budget: PushMemoryBudget
    counters: PushCounters
    actions: list[PushAction]
    random: Callable[[], float]
    admit: Callable[[Sequence[SessionSlot], int, float], list[SessionSlot]]
    end_peer: Callable[[int, PushSessionEndReason, float], None]
    forget: Callable[[SessionSlot], None]


class Timed(Protocol):
    """Owner of a timer.

    Attributes:
        timer_at_s: time of the timer; infinite without one. Only ``PushTimers`` sets it.
    """

    timer_at_s: float


TimedOwner = TypeVar("TimedOwner", bound=Timed)


class PushTimers(Generic[TimedOwner]):
    """Timers of slots or lanes, one for each.

    A timer only moves forward in time when it fires: its owner then says when to look again. An event that makes a
    timer needless leaves it alone, so an event costs nothing here as long as an earlier timer is set.
    """

    def __init__(self) -> None:
        """Begin without a timer."""
        self._heap: list[tuple[float, int, TimedOwner]] = []
        self._numbers = count()

    def schedule(self, owner: TimedOwner, at_s: float) -> None:
        """Fire at ``at_s``, unless the timer of ``owner`` fires before."""
        if at_s < owner.timer_at_s:
            owner.timer_at_s = at_s
            heappush(self._heap, (at_s, next(self._numbers), owner))

    def cancel(self, owner: TimedOwner) -> None:
        """Forget the timer of ``owner``."""
        owner.timer_at_s = float("inf")

    def due(self, now_s: float) -> Iterator[TimedOwner]:
        """Yield the owners of the timers that fire, in order; each may schedule the next one."""
        while self.next_s <= now_s:
            _, _, owner = heappop(self._heap)
            owner.timer_at_s = float("inf")
            yield owner

    @property
    def next_s(self) -> float:
        """Return the time of the next timer; infinite for none."""
        heap = self._heap
        while heap and heap[0][0] != heap[0][2].timer_at_s:
            heappop(heap)
        return heap[0][0] if heap else float("inf")


class PusherSlots:
    """Slots of one pusher, by the lane of their peer.

    Attributes:
        lanes: by node id.
        waiting: slots whose followers lack records.
        dirty: lanes that can act at once.
        is_shutting_down: no session begins, and no connection is opened.
    """

    def __init__(self, index: int, shared: PushShared) -> None:
        """Begin without a slot."""
        self.index = index
        self.shared = shared
        self.lanes: dict[int, PeerLane] = {}
        self.waiting: dict[SessionSlot, None] = {}
        self.dirty: dict[PeerLane, None] = {}
        self.slot_timers = PushTimers[SessionSlot]()
        self.lane_timers = PushTimers[PeerLane]()
        self.is_shutting_down = False

    def lane_of(self, slot: SessionSlot) -> PeerLane:
        """Return the lane of the slot's peer."""
        return self.lanes[slot.session.node.node_id]

    def open(self, session: PushSession, now_s: float) -> SessionSlot:
        """Add a session; the sessions of an older process of the peer have ended before."""
        node = session.node
        lane = self.lanes.get(node.node_id)
        if lane is None:
            lane = self.lanes[node.node_id] = PeerLane(node, now_s)
        lane.node = node
        lane.replica_epoch = session.identity.replica_epoch
        slot = SessionSlot(session, self.index, now_s)
        lane.slots[slot] = None
        self.shared.counters.session_starts += 1
        return slot

    def touch(self, slot: SessionSlot, now_s: float) -> None:
        """Give the slot its turn, its timer and its place among those that wait, after a change."""
        if slot.state is SlotState.ENDED:
            return
        settings, lane = self.shared.settings, self.lane_of(slot)
        if slot.is_waiting:
            self.waiting[slot] = None
        else:
            self.waiting.pop(slot, None)
        self._touch_chunk(slot, lane)
        at_s = slot.deadline_s(settings)
        if slot not in lane.ready:
            due_s = slot.due_at_s(settings)
            if due_s <= now_s:
                lane.enqueue(slot)
            else:
                at_s = min(at_s, due_s)
        self.slot_timers.schedule(slot, at_s)
        self.reschedule(lane, now_s)

    def reschedule(self, lane: PeerLane, now_s: float) -> None:
        """Mark the lane if it can act at once; otherwise set its timer."""
        settings = self.shared.settings
        may_connect = lane.may_connect(now_s) and not self.is_shutting_down
        if may_connect or lane.may_send(settings, now_s) or lane.may_load(now_s):
            self.dirty[lane] = None
        else:
            self.lane_timers.schedule(lane, lane.wake_at_s(settings))

    def wait(self, slot: SessionSlot, now_s: float, *, throttle_ms: int = 0) -> None:
        """Send nothing for the slot until its backoff is over."""
        slot.failures += 1
        delay_s = push_backoff_s(slot.failures, self.shared.random)
        if throttle_ms > 0:
            delay_s = max(delay_s, min(throttle_ms / 1000, MAX_THROTTLE_S))
        slot.not_before_s = now_s + delay_s

    def end(self, slot: SessionSlot, reason: PushSessionEndReason, now_s: float) -> None:
        """End a session once: release its records, and tell its owner, then its follower if ``reason`` says so."""
        if not slot.is_live:
            return
        is_silent = not reason.notify_follower or self._is_unreachable(slot)
        file = slot.end(reason, now_s, is_silent=is_silent)
        if file is not None:
            self.shared.actions.append(ReleaseFile(file))
        self.shared.counters.session_ends[reason] += 1
        self.shared.actions.append(PushSessionEnded(slot.session, reason))
        if is_silent:
            self.drop(slot, now_s)
            return
        self.lane_of(slot).remove(slot)  # its end goes before the records of others
        self.touch(slot, now_s)

    def drop(self, slot: SessionSlot, now_s: float) -> None:
        """Forget an ended session: its follower knows, or will find out by itself."""
        lane = self.lane_of(slot)
        if slot not in lane.slots:
            return
        slot.state = SlotState.ENDED
        del lane.slots[slot]
        lane.remove(slot)
        self.waiting.pop(slot, None)
        self.slot_timers.cancel(slot)
        self.shared.forget(slot)
        if not lane.slots:
            lane.empty_since_s = now_s
            self.dirty[lane] = None

    def end_peer(self, node_id: int, reason: PushSessionEndReason, now_s: float) -> None:
        """End all sessions of a node; signals of earlier ends are not sent any more."""
        lane = self.lanes.get(node_id)
        for slot in [] if lane is None else list(lane.slots):
            if slot.is_live:
                self.end(slot, reason, now_s)
            else:
                self.drop(slot, now_s)

    def expire(self, now_s: float) -> None:
        """Look at slots whose timers fire, a bounded number of them; the others are due still."""
        for slot in islice(self.slot_timers.due(now_s), MAX_TIMERS):
            if slot.deadline_s(self.shared.settings) > now_s:
                self.touch(slot, now_s)
            elif slot.is_live:
                self.end(slot, PushSessionEndReason.REQUEST_RETRIES_EXHAUSTED, now_s)
            else:
                self.drop(slot, now_s)

    def _is_unreachable(self, slot: SessionSlot) -> bool:
        return self.is_shutting_down and self.lane_of(slot).link is not LinkState.OPEN

    @staticmethod
    def _touch_chunk(slot: SessionSlot, lane: PeerLane) -> None:
        opening = slot.opening
        if opening is None or opening.needs_chunk:
            lane.chunk_holders.discard(slot)
        if opening is not None and opening.needs_chunk:
            lane.loading[slot] = None
