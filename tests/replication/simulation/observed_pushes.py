"""ObservedPushes: a push manager whose sessions are counted against the rules for their begin and for their memory."""

from collections.abc import Callable, Iterable, Iterator

from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.leader_log import FileRecords
from tierd.replication.leader.logs.record_memory import MemoryRecords, RecordsRef
from tierd.replication.leader.pushing.push_manager import PushManager
from tierd.replication.leader.pushing.pusher_core import PusherCore
from tierd.replication.leader.replicas.replica_session import PushSessionOwner, ReplicaSession
from tierd.replication.model.push_session import PushSession, PushSessionEndReason

_RESET_AFTER_S = 600.0
_LONGEST_S = 300.0


class _SessionTimes:
    """Sessions of one replica in one leadership, by the rules of push-replication 2.13."""

    def __init__(self) -> None:
        self.began_s = float("-inf")
        self.not_before_s = float("-inf")
        self.delay_s = 1.0

    def begin(self, now_s: float, replica: object) -> None:
        assert now_s >= self.began_s + 1.0, f"two sessions of {replica} began within {now_s - self.began_s:.3f} s"
        assert now_s >= self.not_before_s, f"a session of {replica} began before its cooldown was over"
        self.began_s = now_s

    def end(self, reason: PushSessionEndReason, now_s: float) -> None:
        if now_s - self.began_s >= _RESET_AFTER_S:
            self.delay_s = 1.0
        if reason.has_cooldown:
            self.not_before_s = now_s + self.delay_s
            self.delay_s = min(2 * self.delay_s, _LONGEST_S)


class ObservedPushes:
    """``PushSessions`` of a manager."""

    def __init__(self, manager: PushManager, *, now_s: Callable[[], float], trace: Callable[[str], None]) -> None:
        self.manager = manager
        self.sessions = 0
        self.replication_errors = 0
        self._now_s = now_s
        self._trace = trace
        self._times: dict[tuple[PushSessionOwner, int], _SessionTimes] = {}

    @property
    def is_active(self) -> bool:
        return self.manager.is_active

    @property
    def has_room_for_sessions(self) -> bool:
        return self.manager.has_room_for_sessions

    def is_push_replication_supported(self, *, is_internal_topic: bool, is_cluster_link_destination: bool) -> bool:
        return self.manager.is_push_replication_supported(
            is_internal_topic=is_internal_topic, is_cluster_link_destination=is_cluster_link_destination
        )

    def record_follower_not_caught_up(self, partition: TopicIdPartition, replica_id: int) -> None:
        self.manager.record_follower_not_caught_up(partition, replica_id)

    def start_push(self, session: PushSession) -> None:
        identity = session.identity
        self.sessions += 1
        self._trace(f"session {identity.session_id} of replica {identity.replica_id} begins")
        assert isinstance(session, ReplicaSession)
        key = (session._owner, identity.replica_id)
        times = self._times.setdefault(key, _SessionTimes())
        times.begin(self._now_s(), identity)
        told = session.on_push_session_ended

        def on_ended(reason: PushSessionEndReason) -> None:
            self._trace(f"session {identity.session_id} of replica {identity.replica_id} ends: {reason.name}")
            times.end(reason, self._now_s())
            self.replication_errors += reason is PushSessionEndReason.LEADER_REPLICATION_ERROR
            told(reason)

        session.on_push_session_ended = on_ended  # type: ignore[method-assign]
        self.manager.start_push(session)

    def on_leader_append(
        self,
        partition: TopicIdPartition,
        replica_ids: Iterable[int],
        append_offset: int,
        records: MemoryRecords | FileRecords,
        *,
        last_epoch: int = -1,
    ) -> None:
        self.manager.on_leader_append(partition, replica_ids, append_offset, records, last_epoch=last_epoch)

    def on_high_watermark_update(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], high_watermark: int
    ) -> None:
        self.manager.on_high_watermark_update(partition, replica_ids, high_watermark)

    def on_log_start_offset_update(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], log_start_offset: int
    ) -> None:
        self.manager.on_log_start_offset_update(partition, replica_ids, log_start_offset)

    def stop_push(self, partition: TopicIdPartition, replica_ids: Iterable[int], reason: PushSessionEndReason) -> None:
        self.manager.stop_push(partition, replica_ids, reason)

    def check_memory(self, on_their_way: int) -> None:
        """Compare the budget with what the queues, the chunks and the requests without an answer hold.

        ``on_their_way`` is the size of what the connections may still read.
        """
        router = self.manager._router
        budget = router.budget
        assert budget.faulty_releases == 0, "records were released that were not held"
        assert budget.peak_bytes <= budget.cap_bytes, f"{budget.peak_bytes} bytes of {budget.cap_bytes} were in use"
        assert on_their_way <= budget.used_bytes, f"links read {on_their_way} bytes, of {budget.used_bytes} in use"
        held: dict[int, RecordsRef] = {}
        for pusher in router.pushers:
            if pusher.slots.lanes or not pusher.is_idle:
                mine = {id(ref): ref for ref in _held_by(pusher)}
                used = sum(ref.size_bytes for ref in mine.values())
                assert used == budget.pusher_bytes(pusher.index), f"pusher {pusher.index} holds {used} bytes"
                assert used <= budget.pusher_cap_bytes
                held |= mine
        used = sum(ref.size_bytes for ref in held.values())
        assert used == budget.used_bytes, f"{used} bytes are held, and the budget counts {budget.used_bytes}"


def _held_by(pusher: PusherCore) -> Iterator[RecordsRef]:
    """Yield the records of the queues, of the chunks, and of the requests whose bytes the transport may still read."""
    requests = [sent for lost in pusher._closing.values() for sent in lost]
    for lane in pusher.slots.lanes.values():
        requests += lane.in_flight.values()
        for slot in lane.slots:
            for queued in slot.records:
                yield queued.ref
            if slot.opening is not None and slot.opening.chunk is not None:
                yield slot.opening.chunk.ref
    for sent in requests:
        for part in sent.parts.values():
            yield from part.held
    for read in pusher._chunks._reads.values():
        yield read.reservation
