"""PartitionReplicator: the leader's side of one partition: replicas, transitions, in-sync replicas, high watermark.

::

    LeaderLog ──append, watermark, log start, truncation──►┌─────────────────────┐──start, append, stop──► PushManager
    standby ───FetchRecords, EpochEndOffsets, LogBounds───►│ PartitionReplicator │◄──ack, end────────────
    control plane ──replicas, epoch, doubt, end───────────►└─────────────────────┘──high watermark──► LeaderLog

All methods are plain calls on the event loop, and none waits: the order of the calls is the order of the events
(push-replication 1.3). Time comes in by ``now_s`` only, so that a simulation can drive replicators.
"""

from collections.abc import Callable, Collection
from typing import Final

from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.leader_log import LeaderLog
from tierd.replication.leader.logs.record_memory import MemoryRecords
from tierd.replication.leader.replicas.log_end_history import LogEndHistory
from tierd.replication.leader.replicas.push_transitions import PushTransitions
from tierd.replication.leader.replicas.replica_progress import ReplicaProgress
from tierd.replication.leader.replicas.replica_session import PushSessions
from tierd.replication.leader.replicas.replica_set import ReplicaSet
from tierd.replication.leader.replicas.replicator_settings import (
    PartitionLeadership,
    ReplicatorHooks,
    ReplicatorSettings,
    present_epoch,
)
from tierd.replication.leader.replicas.replicator_status import LedLogProgress, ReplicatorStatus
from tierd.replication.leader.replicas.standby_answers import StandbyAnswers
from tierd.replication.model.messages import PartitionFetchResult, ReplicaFetch
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import (
    PeerIdentity,
    PeerNode,
    PushSession,
    PushSessionEndReason,
)

# The standby's log is not what the leader took it for: it lost records, or has others.
_LOG_DIFFERS: Final = frozenset({PushSessionEndReason.FOLLOWER_LOG_DIVERGED, PushSessionEndReason.FOLLOWER_OFFSET_GAP})


class PartitionReplicator:
    """Replicator of one led partition. It listens to its log from the beginning until ``close``.

    Attributes:
        log: of the partition.
        answers: for the standbys.
    """

    def __init__(
        self,
        log: LeaderLog,
        push: PushSessions,
        settings: ReplicatorSettings,
        hooks: ReplicatorHooks,
        *,
        now_s: Callable[[], float],
    ) -> None:
        """Begin without a replica; ``push`` starts and ends sessions, ``now_s`` is monotonic time."""
        self.log = log
        self._push = push
        self._settings = settings
        self._hooks = hooks
        self._now_s = now_s
        self._began_s = now_s()
        self._leadership = PartitionLeadership(present_epoch(log), log.log_end_offset, hooks.next_log_version())
        self._replicas = ReplicaSet(settings, self._leadership)
        self._history = LogEndHistory(log.log_end_offset, self._began_s)
        self._wakers: dict[Callable[[], None], None] = {}
        self._transitions = PushTransitions(log, push, settings, self._replicas, self._leadership)
        self.answers = StandbyAnswers(log, self._replicas, self._leadership)
        log.listen(self)

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition."""
        return self.log.partition

    @property
    def leader_epoch(self) -> int:
        """Return the epoch of the leadership."""
        return self._leadership.epoch

    @property
    def replica_ids(self) -> tuple[int, ...]:
        """Return the node ids of the assigned standbys."""
        return self._replicas.ids

    @property
    def in_sync_ids(self) -> tuple[int, ...]:
        """Return the node ids of the standbys that the high watermark waits for."""
        return self._replicas.in_sync

    def statuses(self) -> tuple[ReplicatorStatus, ...]:
        """Return the state of each replica now."""
        log, now_s = self.log, self._now_s()
        led = LedLogProgress(self.partition, self._leadership, self._history, log.log_start_offset, self._began_s)
        return tuple(led.status_of(progress, now_s) for progress in self._replicas)

    def bytes_after(self, offset: int) -> int:
        """Return the size of the records from ``offset`` on, in part an estimate; at least 1 if there is a record."""
        return max(self._history.bytes_after(offset), 1) if offset < self.log.log_end_offset else 0

    def note_read(self, offsets: int, size_bytes: int) -> None:
        """Take note of the size of records that were read, for the estimates."""
        self._history.note_size(offsets, size_bytes)

    # ---------------------------------------------------------------- orders of the control plane

    def assign(self, nodes: Collection[PeerNode]) -> None:
        """Replicate to ``nodes`` from now on; sessions of other replicas end with ``REPLICA_REMOVED``."""
        for progress in self._replicas.missing_in(nodes):
            self._transitions.end(progress, PushSessionEndReason.REPLICA_REMOVED, self._now_s())
        now_s = self._now_s()
        self._replicas.replace(nodes, now_s)
        self._raise_watermark()
        self.wake_fetches()
        self._note_lagging(now_s)

    def throttle(self, replica_id: int, *, is_throttled: bool) -> None:
        """Put a replica under the quota of replication, or end that: a throttled one is neither pushed nor in sync."""
        progress = self._replicas.get(replica_id)
        if progress is None or progress.is_throttled == is_throttled:
            return
        progress.is_throttled = is_throttled
        if is_throttled:
            progress.is_in_sync = False
            self._transitions.end(progress, PushSessionEndReason.REPLICA_THROTTLED, self._now_s())
            self._raise_watermark()

    def note_move(self, *, is_moving: bool) -> None:
        """Take note that the log moves to another directory, so that no session begins."""
        self._leadership.is_moving = is_moving

    def end_sessions(self, reason: PushSessionEndReason) -> None:
        """End the sessions of all replicas, which may begin anew."""
        for progress in self._replicas:
            self._transitions.end(progress, reason, self._now_s())

    def check_leader_epoch(self) -> None:
        """Look at the log's leader epoch: a higher one ends all sessions with ``NEW_LEADER_EPOCH``."""
        self._check_epoch(self.log.log_end_offset)

    def doubt_leadership(self, refused_epoch: int) -> None:
        """Take note that a standby refused an epoch as too old: if it is the present one, lead nothing for now."""
        if refused_epoch >= self._leadership.epoch:
            self._leadership.is_doubted = True
            self.end_sessions(PushSessionEndReason.NEW_LEADER_EPOCH)
            self.wake_fetches()

    def confirm_leadership(self) -> None:
        """Take note that the control plane has confirmed the present epoch."""
        self._leadership.is_doubted = False
        self._raise_watermark()

    def close(self, reason: PushSessionEndReason) -> None:
        """End all sessions and listen no more: resigned, deleted, or shut down. Later fetches are refused."""
        self.log.listen(None)
        self._leadership.is_closed = True
        self.end_sessions(reason)
        self.wake_fetches()

    # ---------------------------------------------------------------- events of the log

    def on_append(self, append_offset: int, records: bytes, next_offset: int) -> None:
        """Send an append to the replicas with a session, then the high watermark that it made possible (H8)."""
        self._check_epoch(append_offset)
        now_s = self._now_s()
        for progress in self._replicas:
            progress.on_leader_append(append_offset, now_s)
        self._history.note(next_offset, len(records), now_s)
        if pushed := self._replicas.pushed:
            self._push.on_leader_append(self.partition, pushed, append_offset, MemoryRecords(records, next_offset))
        self._raise_watermark()
        self.wake_fetches()
        self._note_lagging(now_s)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Send a high watermark to the replicas with a session."""
        if pushed := self._replicas.pushed:
            self._push.on_high_watermark_update(self.partition, pushed, high_watermark)
        self.wake_fetches()

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Send a log start offset to the replicas with a session."""
        if pushed := self._replicas.pushed:
            self._push.on_log_start_offset_update(self.partition, pushed, log_start_offset)
        self.wake_fetches()

    def on_truncated(self, log_end_offset: int) -> None:
        """End all sessions: the replicas compare their logs, and truncate them, when they fetch."""
        self._leadership.log_version = self._hooks.next_log_version()
        self.end_sessions(PushSessionEndReason.LEADER_LOG_TRUNCATED)
        for progress in self._replicas:
            progress.forget_log()
        self._history = LogEndHistory(log_end_offset, self._now_s())
        self._leadership.start_offset = min(self._leadership.start_offset, log_end_offset)
        self._check_epoch(log_end_offset)
        self.wake_fetches()

    def advance(self) -> bool:
        """Drop in-sync replicas that lag for too long; return True while an in-sync replica lags."""
        log_end = self.log.log_end_offset
        for progress in self._replicas.take_out_lagging(log_end, self._now_s()):
            self._transitions.end(progress, PushSessionEndReason.FOLLOWER_OUT_OF_ISR, self._now_s())
        self._raise_watermark()
        return self._replicas.has_lagging(log_end, self._now_s())

    # ---------------------------------------------------------------- callbacks of sessions

    def on_session_ack(
        self, session: PushSession, *, log_end_offset: int, log_start_offset: int, sent_at_s: float
    ) -> bool:
        """Take note of an acknowledgement; return True if the high watermark rose."""
        progress = self._replicas.get(session.identity.replica_id)
        if progress is None or progress.session is not session:
            return False
        now_s = self._now_s()
        progress.on_ack(
            log_end_offset,
            log_end=self.log.log_end_offset,
            log_end_at_send=self._history.end_at(sent_at_s),
            sent_at_s=sent_at_s,
            now_s=now_s,
        )
        if log_start_offset >= 0:
            progress.log_start_offset = log_start_offset
        self._replicas.join(progress, high_watermark=self.log.high_watermark, now_s=now_s)
        return self._raise_watermark()

    def on_session_end(self, session: PushSession, reason: PushSessionEndReason) -> None:
        """Take note that the manager ended a session."""
        progress = self._replicas.get(session.identity.replica_id)
        if progress is None or progress.session is not session:
            return
        progress.end_session(reason, self._now_s())
        self._replicas.list_pushed()
        if reason in _LOG_DIFFERS:
            progress.forget_log()
            self._raise_watermark()

    # ---------------------------------------------------------------- fetches

    def take_fetch(self, fetch: ReplicaFetch, peer: PeerIdentity) -> PartitionFetchResult | None:
        """Take note of a fetch; return its answer unless it may get records. It may begin a session."""
        self.check_leader_epoch()
        progress = self._replicas.get(peer.node_id)
        if progress is not None:
            self._note_asker(progress, fetch, peer)
        answer = self.answers.without_records(fetch, peer)
        if progress is None or progress.is_pushed:
            return answer
        if answer is not None:
            if answer.diverging is not None or answer.error_code == PushErrorCode.OFFSET_OUT_OF_RANGE:
                progress.forget_log()
                self._raise_watermark()
            return answer
        if fetch.is_comparison:
            return None
        self._note_fetch(progress, fetch)
        if not self._transitions.try_push(progress, fetch, owner=self, now_s=self._now_s()):
            return None
        return self.answers.result(fetch, peer, push_started=True)

    def subscribe(self, waker: Callable[[], None]) -> None:
        """Call ``waker`` at every change that a fetch may wait for."""
        self._wakers[waker] = None

    def unsubscribe(self, waker: Callable[[], None]) -> None:
        """Call ``waker`` no more."""
        self._wakers.pop(waker, None)

    def wake_fetches(self) -> None:
        """Wake the fetches that wait."""
        for waker in self._wakers:
            waker()

    # ---------------------------------------------------------------- parts

    def _note_asker(self, progress: ReplicaProgress, fetch: ReplicaFetch, peer: PeerIdentity) -> None:
        if peer.process_epoch > progress.replica_epoch:
            self._transitions.end(progress, PushSessionEndReason.FOLLOWER_RESTARTED, self._now_s())
            progress.on_process(peer.process_epoch)
            self._raise_watermark()
        is_asked_here = self.answers.refuse_asker(peer, fetch.current_leader_epoch) is PushErrorCode.NONE
        if progress.is_pushed and is_asked_here and fetch.session_id > progress.state.session_id:
            self._transitions.end(progress, PushSessionEndReason.FOLLOWER_RETURNED_TO_PULL, self._now_s())

    def _note_fetch(self, progress: ReplicaProgress, fetch: ReplicaFetch) -> None:
        now_s, log = self._now_s(), self.log
        progress.on_session_id(fetch.session_id)
        progress.on_fetch(fetch.fetch_offset, fetch.log_start_offset, log_end=log.log_end_offset, now_s=now_s)
        self._replicas.join(progress, high_watermark=log.high_watermark, now_s=now_s)
        self._raise_watermark()
        self._note_lagging(now_s)

    def _note_lagging(self, now_s: float) -> None:
        if self._replicas.has_lagging(self.log.log_end_offset, now_s):
            self._hooks.on_lagging(self.partition)

    def _check_epoch(self, start_offset: int) -> None:
        epoch = present_epoch(self.log)
        if epoch > self._leadership.epoch:
            self._leadership.epoch, self._leadership.start_offset = epoch, start_offset
            self._leadership.is_doubted = False
            self.end_sessions(PushSessionEndReason.NEW_LEADER_EPOCH)
            self._replicas.begin_epoch(self._now_s())
            self._hooks.on_leader_epoch(self.partition, epoch)
            self.wake_fetches()

    def _raise_watermark(self) -> bool:
        """Raise the high watermark of an owned log as far as the in-sync replicas allow; return True if it rose."""
        raise_high_watermark = self._hooks.raise_high_watermark
        if raise_high_watermark is None:
            return False
        reached = self._replicas.high_watermark(self.log.log_end_offset, self._now_s())
        if reached is None or reached <= self.log.high_watermark:
            return False
        raise_high_watermark(reached)
        return True
