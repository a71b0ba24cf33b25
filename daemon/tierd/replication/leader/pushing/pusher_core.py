"""``PusherCore``: the decisions of one pusher: which request goes when to which peer (push-replication 2.4, 2.8).

The core is pure. Events and the monotonic time come in; ``PushAction`` values and the next deadline come out. An event
costs work for the slots that it names, never for all slots.
"""

from itertools import count

from tierd.replication.leader.pushing.append_answers import AppendAnswers
from tierd.replication.leader.pushing.append_builder import AppendRecordsBuilder, SentAppend
from tierd.replication.leader.pushing.chunk_loader import ChunkLoader
from tierd.replication.leader.pushing.peer_lane import LINK_IDLE_S, LinkState, PeerLane, push_backoff_s
from tierd.replication.leader.pushing.push_actions import CloseLink, OpenLink, SendAppend
from tierd.replication.leader.pushing.pusher_slots import PusherSlots, PushShared
from tierd.replication.leader.pushing.session_slot import NEVER
from tierd.replication.model.messages import AppendRecordsResponse
from tierd.replication.model.push_session import PushSessionEndReason


class PusherCore:
    """Decisions of one pusher.

    Attributes:
        index: number of the pusher.
        slots: its sessions.
    """

    def __init__(self, index: int, shared: PushShared) -> None:
        """Begin without a session."""
        self.index = index
        self.slots = PusherSlots(index, shared)
        self._shared = shared
        self._answers = AppendAnswers(self.slots)
        self._chunks = ChunkLoader(self.slots)
        self._links: dict[int, PeerLane] = {}
        self._closing: dict[int, list[SentAppend]] = {}
        self._link_ids = count()
        self._request_ids = count()

    @property
    def deadline_s(self) -> float:
        """Return the time at which ``advance`` has something to do; in the past if it has now."""
        if not self.slots.lanes:  # no session and no connection; the question comes with each append
            return NEVER
        if self.slots.dirty:
            return -NEVER
        return min(self.slots.slot_timers.next_s, self.slots.lane_timers.next_s)

    @property
    def is_idle(self) -> bool:
        """Return True if no connection is open or closes, and no file is read."""
        return not (self._links or self._closing or self._chunks.is_reading)

    @property
    def queue_depth(self) -> int:
        """Return the number of slots that wait for their turn."""
        return sum(len(lane.ready) for lane in self.slots.lanes.values())

    def advance(self, now_s: float) -> None:
        """Do what is due."""
        self.slots.expire(now_s)
        for lane in self.slots.lane_timers.due(now_s):
            self.slots.dirty[lane] = None
        while self.slots.dirty:
            lane = next(iter(self.slots.dirty))
            del self.slots.dirty[lane]
            self._serve(lane, now_s)

    def on_link_opened(self, link_id: int, now_s: float) -> None:
        """Take note of a connection after its Hello."""
        lane = self._links.get(link_id)
        if lane is not None:
            lane.link, lane.link_deadline_s = LinkState.OPEN, NEVER
            self.slots.dirty[lane] = None

    def on_link_closed(self, link_id: int, now_s: float) -> None:
        """Take note that a connection is closed, or was not made: the transport holds no bytes any more."""
        lane = self._links.get(link_id)
        if lane is not None:
            self._give_up_link(lane, now_s)
        for sent in self._closing.pop(link_id, ()):
            self._answers.release(sent)

    def on_response(self, link_id: int, request_id: int, response: AppendRecordsResponse, now_s: float) -> None:
        """Take an answer; one of a connection that was abandoned is ignored."""
        lane = self._links.get(link_id)
        sent = None if lane is None else lane.in_flight.pop(request_id, None)
        if lane is not None and sent is not None:
            self._answers.take(lane, sent, response, now_s)
            self.slots.dirty[lane] = None

    def on_chunk_read(self, chunk_id: int, data: bytes | None, now_s: float) -> None:
        """Take the whole batches that a ``ReadChunk`` returned; None if the range cannot be read."""
        self._chunks.on_chunk_read(chunk_id, data, now_s)

    def node_of(self, link_id: int) -> int | None:
        """Return the node id of a connection's peer; None for a connection that was abandoned."""
        lane = self._links.get(link_id)
        return None if lane is None else lane.node.node_id

    def shut_down(self, now_s: float) -> None:
        """End all sessions; those whose peer is connected tell it once. Connections close after that."""
        self.slots.is_shutting_down = True
        for lane in self.slots.lanes.values():
            for slot in list(lane.slots):
                if slot.is_live:
                    self.slots.end(slot, PushSessionEndReason.BROKER_SHUTDOWN, now_s)
                elif lane.link is not LinkState.OPEN:
                    self.slots.drop(slot, now_s)
            self.slots.dirty[lane] = None

    def abandon(self, now_s: float) -> None:
        """Close all connections, whatever is on its way."""
        self.slots.is_shutting_down = True
        for lane in self.slots.lanes.values():
            for slot in list(lane.slots):
                self.slots.end(slot, PushSessionEndReason.BROKER_SHUTDOWN, now_s)
                self.slots.drop(slot, now_s)
            if lane.link is not LinkState.CLOSED:
                self._close_link(lane, now_s)

    def _serve(self, lane: PeerLane, now_s: float) -> None:
        if self.slots.lanes.get(lane.node.node_id) is not lane:
            return
        settings = self._shared.settings
        if lane.link_deadline_s <= now_s or any(sent.deadline_s <= now_s for sent in lane.in_flight.values()):
            self._close_link(lane, now_s)
        if lane.may_connect(now_s) and not self.slots.is_shutting_down:
            self._open_link(lane, now_s)
        self._chunks.load(lane, now_s)
        while lane.may_send(settings, now_s):
            self._send(lane, now_s)
        is_unused = not lane.slots and not lane.in_flight and lane.link is not LinkState.CLOSED
        if is_unused and (self.slots.is_shutting_down or lane.empty_since_s + LINK_IDLE_S <= now_s):
            self._close_link(lane, now_s)
        if not (lane.slots or lane.link is not LinkState.CLOSED):
            del self.slots.lanes[lane.node.node_id]
            self.slots.lane_timers.cancel(lane)
            return
        self.slots.lane_timers.schedule(lane, lane.wake_at_s(settings))

    def _send(self, lane: PeerLane, now_s: float) -> None:
        settings, counters = self._shared.settings, self._shared.counters
        builder = self._fill(lane, now_s)
        if not builder.parts:
            return
        request_id = next(self._request_ids)
        timeout_s = settings.request_timeout_s
        lane.in_flight[request_id] = SentAppend(
            request_id, lane.link_id, now_s, now_s + timeout_s, builder.size_bytes, builder.parts
        )
        counters.requests += 1
        counters.request_bytes.observe(builder.size_bytes)
        counters.request_partitions.observe(len(builder.parts))
        self._shared.actions.append(
            SendAppend(self.index, lane.link_id, request_id, builder.build(), timeout_s=timeout_s)
        )

    def _fill(self, lane: PeerLane, now_s: float) -> AppendRecordsBuilder:
        """Return a request with the slots whose turn it is; those that do not fit keep their turn."""
        settings = self._shared.settings
        builder = AppendRecordsBuilder(settings, self._shared.leader, lane.replica_epoch)
        while lane.ready:
            slot = next(iter(lane.ready))
            is_due = slot.due_at_s(settings) <= now_s
            if is_due and not builder.offer(slot):
                break
            del lane.ready[slot]
            if is_due:
                slot.note_sent(now_s)
            else:
                self.slots.touch(slot, now_s)
        return builder

    def _open_link(self, lane: PeerLane, now_s: float) -> None:
        lane.link, lane.link_id = LinkState.OPENING, next(self._link_ids)
        lane.link_deadline_s = now_s + self._shared.settings.request_timeout_s
        self._links[lane.link_id] = lane
        self._shared.actions.append(OpenLink(self.index, lane.link_id, lane.node))

    def _close_link(self, lane: PeerLane, now_s: float) -> None:
        self._shared.actions.append(CloseLink(self.index, lane.link_id))
        self._give_up_link(lane, now_s)

    def _give_up_link(self, lane: PeerLane, now_s: float) -> None:
        """Forget the connection. What its requests hold is released once it is closed."""
        del self._links[lane.link_id]
        lost = list(lane.in_flight.values())
        self._closing[lane.link_id] = lost
        lane.in_flight.clear()
        lane.link, lane.link_deadline_s = LinkState.CLOSED, NEVER
        if lane.slots:
            lane.failures += 1
            lane.not_before_s = now_s + push_backoff_s(lane.failures, self._shared.random)
        for sent in lost:
            self._answers.lose(sent, now_s)
        if self.slots.is_shutting_down:
            for slot in list(lane.slots):
                self.slots.drop(slot, now_s)
        self.slots.dirty[lane] = None
