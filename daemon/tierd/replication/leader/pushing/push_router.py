"""``PushRouter``: the pure whole of a push manager: sessions of all replicas, their pushers and their memory.

Method calls are the events, in the order in which they happen (push-replication 1.3); each takes the monotonic time.
``take_actions`` returns what the shell has to carry out, and ``deadline_s`` the time of the next ``advance``. So a
simulation drives a router without a clock, a file or a connection.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2b
from itertools import chain
from struct import pack
from typing import Final
from uuid import UUID

from tierd.errors import CorruptRecordError
from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.leader_log import FileRecords
from tierd.replication.leader.logs.record_memory import MemoryRecords, PushMemoryBudget, RecordsRef
from tierd.replication.leader.pushing.buffer_admission import BufferAdmission
from tierd.replication.leader.pushing.push_actions import PushAction, PushLeader, PushSessionEnded, ReleaseFile
from tierd.replication.leader.pushing.push_counters import PushCounters
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.pushing.pusher_core import PusherCore
from tierd.replication.leader.pushing.pusher_slots import PushShared
from tierd.replication.leader.pushing.queued_records import QueuedRecords, RecordsSpan
from tierd.replication.leader.pushing.session_slot import SessionSlot
from tierd.replication.model.messages import AppendRecordsResponse
from tierd.replication.model.push_session import PushSession, PushSessionEndReason

_HASH_BYTES: Final = 8


def pusher_of(topic_id: UUID, partition: int, node_id: int, settings: PushSettings) -> int:
    """Return the pusher of a partition replica: the same in each process and each run (push-replication 2.2)."""
    digest = blake2b(topic_id.bytes + pack(">i", partition)).digest()[:_HASH_BYTES]
    place = int.from_bytes(digest, "big") % settings.pushers_per_peer
    return (node_id * settings.pushers_per_peer + place) % settings.max_pushers


class PushRouter:
    """Sessions by partition and replica, and the pusher of each.

    Attributes:
        pushers: by their index.
        budget: memory of the records that are queued or on their way.
        counters: for statistics.
    """

    def __init__(
        self,
        settings: PushSettings,
        leader: PushLeader,
        *,
        random: Callable[[], float],
        is_strict: bool = False,
    ) -> None:
        """Begin without a session.

        Args:
            settings: of push replication.
            leader: this process.
            random: number in [0, 1) for the jitter of waits.
            is_strict: a faulty release of records raises ``AssertionError``: for tests.
        """
        self.settings = settings
        self.budget = PushMemoryBudget(settings.buffer_max_bytes, settings.pusher_buffer_max_bytes, is_strict=is_strict)
        self.counters = PushCounters()
        self._table: dict[TopicIdPartition, dict[int, SessionSlot]] = {}
        self._peer_epochs: dict[int, int] = {}
        self._actions: list[PushAction] = []
        shared = PushShared(
            settings,
            leader,
            self.budget,
            self.counters,
            self._actions,
            random,
            admit=self._admit,
            end_peer=self.end_peer,
            forget=self._forget,
        )
        self.pushers = tuple(PusherCore(index, shared) for index in range(settings.max_pushers))
        waiting = [pusher.slots.waiting for pusher in self.pushers]
        self._admission = BufferAdmission(settings, self.budget, waiting, self._end)

    @property
    def deadline_s(self) -> float:
        """Return the time at which ``advance`` has something to do; in the past if it has now."""
        return min(pusher.deadline_s for pusher in self.pushers)

    @property
    def has_actions(self) -> bool:
        """Return True if ``take_actions`` would return something."""
        return bool(self._actions)

    def take_actions(self) -> list[PushAction]:
        """Return the actions since the last call, in order."""
        taken = self._actions.copy()
        self._actions.clear()
        return taken

    def sessions(self) -> Iterable[SessionSlot]:
        """Return the slots of all sessions, those with an untold end included."""
        return chain.from_iterable(replicas.values() for replicas in self._table.values())

    def start_push(self, session: PushSession, now_s: float) -> None:
        """Begin a session, unless the same or a newer one of the partition replica is there."""
        identity = session.identity
        known = self._table.get(identity.partition, {}).get(identity.replica_id)
        if known is not None:
            is_same = known.session == session
            if is_same and known.is_live:
                return
            # The same again after its end: the follower never heard of that session, and the end signal is needless.
            if not is_same and not identity.is_newer_than(known.session.identity):
                self.counters.ignored_sessions += 1
                return
            self._end(known, PushSessionEndReason.SUPERSEDED, now_s)
            self.pushers[known.pusher].slots.drop(known, now_s)
        if not self._is_present_process(session, now_s):
            return
        node_id = session.node.node_id
        pusher = pusher_of(identity.partition.topic_id, identity.partition.partition, node_id, self.settings)
        slot = self.pushers[pusher].slots.open(session, now_s)
        self._table.setdefault(identity.partition, {})[identity.replica_id] = slot

    def on_leader_append(
        self,
        partition: TopicIdPartition,
        replica_ids: Iterable[int],
        append_offset: int,
        records: MemoryRecords | FileRecords,
        *,
        last_epoch: int = -1,
        now_s: float,
    ) -> None:
        """Queue an append for the replicas with a session; see ``PushManager.on_leader_append``."""
        slots = self._live(partition, replica_ids)
        if isinstance(records, MemoryRecords):
            if slots and records.data:
                self._append(slots, append_offset, records, last_epoch, now_s)
            return
        if len(slots) == 1 and slots[0].next_offset is None and append_offset == records.first_offset:
            slots[0].begin_with(records, last_epoch, now_s)
            self.pushers[slots[0].pusher].slots.touch(slots[0], now_s)
            return
        self._actions.append(ReleaseFile(records))
        for slot in slots:
            self._end(slot, PushSessionEndReason.LEADER_REPLICATION_ERROR, now_s)

    def on_high_watermark_update(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], high_watermark: int, now_s: float
    ) -> None:
        """Queue a high watermark; only the newest one is sent."""
        for slot in self._live(partition, replica_ids):
            if slot.high_watermark.raise_to(high_watermark, now_s):
                self.pushers[slot.pusher].slots.touch(slot, now_s)

    def on_log_start_offset_update(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], log_start_offset: int, now_s: float
    ) -> None:
        """Queue a log start offset; only the newest one is sent."""
        for slot in self._live(partition, replica_ids):
            if slot.log_start_offset.raise_to(log_start_offset, now_s):
                self.pushers[slot.pusher].slots.touch(slot, now_s)

    def stop_push(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], reason: PushSessionEndReason, now_s: float
    ) -> None:
        """End the sessions of the replicas."""
        for slot in self._live(partition, replica_ids):
            self._end(slot, reason, now_s)

    def fail_session(self, session: PushSession, now_s: float) -> None:
        """End a session whose callback raised."""
        identity = session.identity
        slot = self._table.get(identity.partition, {}).get(identity.replica_id)
        if slot is not None and slot.session == session:
            self._end(slot, PushSessionEndReason.INTERNAL_ERROR, now_s)

    def end_peer(self, node_id: int, reason: PushSessionEndReason, now_s: float) -> None:
        """End all sessions of a node."""
        for pusher in self.pushers:
            pusher.slots.end_peer(node_id, reason, now_s)

    def on_link_opened(self, pusher: int, link_id: int, process_epoch: int, now_s: float) -> None:
        """Take note of a connection to a peer whose Hello named ``process_epoch``."""
        core = self.pushers[pusher]
        node_id = core.node_of(link_id)
        if node_id is not None:
            self._note_process(node_id, process_epoch, now_s)
            core.on_link_opened(link_id, now_s)

    def on_link_closed(self, pusher: int, link_id: int, now_s: float) -> None:
        """Take note that a connection is closed, or was not made."""
        self.pushers[pusher].on_link_closed(link_id, now_s)

    def on_response(
        self, pusher: int, link_id: int, request_id: int, response: AppendRecordsResponse, now_s: float
    ) -> None:
        """Take the answer to a request."""
        self.pushers[pusher].on_response(link_id, request_id, response, now_s)

    def on_chunk_read(self, pusher: int, chunk_id: int, data: bytes | None, now_s: float) -> None:
        """Take what a ``ReadChunk`` returned; None if the range cannot be read."""
        self.pushers[pusher].on_chunk_read(chunk_id, data, now_s)

    def advance(self, now_s: float) -> None:
        """Do what is due at all pushers."""
        for pusher in self.pushers:
            if pusher.deadline_s <= now_s:
                pusher.advance(now_s)

    def shut_down(self, now_s: float) -> None:
        """End all sessions with ``BROKER_SHUTDOWN``."""
        for pusher in self.pushers:
            pusher.shut_down(now_s)

    def _append(
        self, slots: list[SessionSlot], append_offset: int, records: MemoryRecords, last_epoch: int, now_s: float
    ) -> None:
        try:
            span = RecordsSpan.of(records.data)
        except CorruptRecordError:
            span = RecordsSpan(-1, -1, -1)
        is_sound = append_offset <= span.base_offset and span.end_offset <= records.next_offset
        for slot in slots:
            if not is_sound or slot.next_offset not in (None, append_offset):
                self._end(slot, PushSessionEndReason.LEADER_REPLICATION_ERROR, now_s)
        slots = self._admit([slot for slot in slots if slot.is_live], len(records.data), now_s)
        ref = RecordsRef(self.budget, records.data)
        for slot in slots:
            is_turn_unchanged = slot.is_in_flight and slot.is_waiting  # its answer gives it its turn
            slot.append(QueuedRecords(ref, append_offset, span, now_s), records.next_offset, last_epoch)
            if not is_turn_unchanged:
                self.pushers[slot.pusher].slots.touch(slot, now_s)

    def _admit(self, slots: Iterable[SessionSlot], size_bytes: int, now_s: float) -> list[SessionSlot]:
        return self._admission.admit(list(slots), size_bytes, now_s)

    def _live(self, partition: TopicIdPartition, replica_ids: Iterable[int]) -> list[SessionSlot]:
        replicas = self._table.get(partition)
        if replicas is None:
            return []
        found = []
        for replica_id in replica_ids:
            slot = replicas.get(replica_id)
            if slot is not None and slot.is_live:
                found.append(slot)
        return found

    def _end(self, slot: SessionSlot, reason: PushSessionEndReason, now_s: float) -> None:
        self.pushers[slot.pusher].slots.end(slot, reason, now_s)

    def _forget(self, slot: SessionSlot) -> None:
        identity = slot.session.identity
        replicas = self._table[identity.partition]
        del replicas[identity.replica_id]
        if not replicas:
            del self._table[identity.partition]

    def _note_process(self, node_id: int, process_epoch: int, now_s: float) -> None:
        """End the sessions of older processes of a node."""
        known = self._peer_epochs.get(node_id)
        if known is None or process_epoch > known:
            self._peer_epochs[node_id] = process_epoch
            if known is not None:
                self.end_peer(node_id, PushSessionEndReason.FOLLOWER_RESTARTED, now_s)

    def _is_present_process(self, session: PushSession, now_s: float) -> bool:
        """Return False for a session of a process of the follower that has ended; it ends before it begins."""
        node_id, epoch = session.node.node_id, session.identity.replica_epoch
        self._note_process(node_id, epoch, now_s)
        if epoch >= self._peer_epochs[node_id]:
            return True
        self.counters.session_ends[PushSessionEndReason.FOLLOWER_RESTARTED] += 1
        self._actions.append(PushSessionEnded(session, PushSessionEndReason.FOLLOWER_RESTARTED))
        return False
