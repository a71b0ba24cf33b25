"""Statistics of a push manager from its router."""

from collections import defaultdict
from types import MappingProxyType

from tierd.replication.leader.pushing.peer_lane import LinkState
from tierd.replication.leader.pushing.push_counters import PeerPushStatistics, PushStatistics
from tierd.replication.leader.pushing.push_router import PushRouter
from tierd.replication.leader.pushing.session_slot import NEVER, SessionSlot


def push_statistics(router: PushRouter, now_s: float) -> PushStatistics:
    """Return the present state and the counters. The time that this takes grows with the number of sessions."""
    budget, counters = router.budget, router.counters
    peers = _peers(router, now_s)
    return PushStatistics(
        memory_used_bytes=budget.used_bytes,
        memory_peak_bytes=budget.peak_bytes,
        memory_cap_bytes=budget.cap_bytes,
        soft_limit_hits=budget.soft_limit_hits,
        faulty_releases=budget.faulty_releases,
        active_sessions=sum(peer.active_sessions for peer in peers),
        stopping_sessions=sum(peer.stopping_sessions for peer in peers),
        peers=peers,
        queue_depths=tuple(pusher.queue_depth for pusher in router.pushers),
        session_starts=counters.session_starts,
        session_ends=MappingProxyType(dict(counters.session_ends)),
        retries=MappingProxyType(dict(counters.retries)),
        resyncs=counters.resyncs,
        ignored_sessions=counters.ignored_sessions,
        failed_callbacks=counters.failed_callbacks,
        awaiting_transition=counters.awaiting_transition,
        requests=counters.requests,
        request_bytes=counters.request_bytes.frozen(),
        request_partitions=counters.request_partitions.frozen(),
        request_latency_s=counters.request_latency_s.frozen(),
        processing_time_s=counters.processing_time_s.frozen(),
    )


def _peers(router: PushRouter, now_s: float) -> tuple[PeerPushStatistics, ...]:
    slots: dict[int, list[SessionSlot]] = defaultdict(list)
    connected = set()
    for pusher in router.pushers:
        for node_id, lane in pusher.slots.lanes.items():
            slots[node_id] += lane.slots
            if lane.link is LinkState.OPEN:
                connected.add(node_id)
    return tuple(_peer(node_id, slots[node_id], node_id in connected, now_s) for node_id in sorted(slots))


def _peer(node_id: int, slots: list[SessionSlot], is_connected: bool, now_s: float) -> PeerPushStatistics:
    active = sum(slot.is_live for slot in slots)
    oldest_s = min((slot.oldest_unacked_at_s for slot in slots), default=NEVER)
    return PeerPushStatistics(
        node_id=node_id,
        is_connected=is_connected,
        active_sessions=active,
        stopping_sessions=len(slots) - active,
        unacked_bytes=sum(slot.unacked_bytes for slot in slots),
        oldest_unacked_s=0.0 if oldest_s == NEVER else max(0.0, now_s - oldest_s),
    )
