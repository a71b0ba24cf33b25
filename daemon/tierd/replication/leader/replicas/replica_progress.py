"""ReplicaProgress: the leader's knowledge of one replica of a partition (push-replication 2.13). Pure.

In sync (Kafka: Replica, Partition.isFollowerInSync)::

    not in sync ──log end at or above the high watermark and the start of the leadership──► in sync
    in sync ──below the log end for longer than replica.lag.time.max.ms──► not in sync

Equality with the log end alone keeps a silent replica in sync. As soon as the log grows, the last evidence counts.
"""

from dataclasses import dataclass, field
from typing import Final

from tierd.replication.leader.replicas.transition_rules import TransitionObstacle
from tierd.replication.model.push_session import PeerNode, PushSession, PushSessionEndReason
from tierd.replication.model.replication_state import (
    FINAL_SESSION_ID,
    UNKNOWN_SESSION_ID,
    ReplicationMode,
    ReplicationState,
)

NEVER_S: Final = float("-inf")
_BASE_DELAY_S: Final = 1.0
_MAX_DELAY_S: Final = 300.0
_RESET_AFTER_S: Final = 600.0


@dataclass(slots=True)
class PushCooldown:
    """Delay before the next session of a replica: 1 s, doubled by each end that has a cooldown, up to 5 min.

    After an end with a long cooldown it is 5 min at once.

    A session of 10 min resets the delay. After any end, sessions begin at least 1 s apart.

    Attributes:
        delay_s: delay after the next end with a cooldown.
        until_s: monotonic time at which a session may begin.
    """

    delay_s: float = _BASE_DELAY_S
    until_s: float = NEVER_S

    def on_session_end(self, reason: PushSessionEndReason, *, began_s: float, now_s: float) -> None:
        """Take note of the end of a session that began at ``began_s``."""
        if now_s - began_s >= _RESET_AFTER_S:
            self.delay_s = _BASE_DELAY_S
        if reason.has_long_cooldown:
            self.delay_s = _MAX_DELAY_S
        if reason.has_cooldown:
            self.until_s = now_s + self.delay_s
            self.delay_s = min(2 * self.delay_s, _MAX_DELAY_S)
        else:
            self.until_s = max(self.until_s, began_s + _BASE_DELAY_S)


@dataclass(slots=True)
class ReplicaProgress:
    """State of one replica. Times are monotonic seconds; offsets are -1 until the replica has fetched.

    Attributes:
        node: address of the standby.
        state: mode and session id; the id is ``UNKNOWN_SESSION_ID`` until the replica has fetched.
        replica_epoch: process epoch of the standby.
        caught_up_s: last time at which the replica proved to have what the leader had then.
        complete_s: last time at which the replica lacked nothing; an append to a replica that lacks nothing counts.
        session: present push session.
        ended_session_id: highest id of a session that ended, of this process of the standby.
        awaited_until_s: of a replica that may have been in sync before the leader epoch began, until it is in sync: the
            end of the time for which the high watermark waits for it.
        told_high_watermark: high watermark of the last answer to a fetch.
        obstacle: the reason why the last fetch began no session; None before a fetch and in a session.
    """

    node: PeerNode
    state: ReplicationState = field(default_factory=ReplicationState)
    replica_epoch: int = -1
    log_end_offset: int = -1
    log_start_offset: int = -1
    caught_up_s: float = NEVER_S
    complete_s: float = NEVER_S
    is_in_sync: bool = False
    awaited_until_s: float = NEVER_S
    is_throttled: bool = False
    session: PushSession | None = None
    session_began_s: float = NEVER_S
    ended_session_id: int = UNKNOWN_SESSION_ID
    end_reason: PushSessionEndReason | None = None
    told_high_watermark: int = -1
    cooldown: PushCooldown = field(default_factory=PushCooldown)
    obstacle: TransitionObstacle | None = None
    _fetched_s: float = NEVER_S
    _end_at_fetch: int = -1

    @property
    def is_pushed(self) -> bool:
        """Return True while the leader pushes to the replica."""
        return self.state.mode is ReplicationMode.PUSH

    @property
    def is_known(self) -> bool:
        """Return True if the replica has fetched from this leader."""
        return self.log_end_offset >= 0

    def on_process(self, replica_epoch: int) -> None:
        """Take note of another process of the standby: its session ids begin anew, and its log may have been cut."""
        self.replica_epoch = replica_epoch
        self.state = ReplicationState()
        self.ended_session_id = UNKNOWN_SESSION_ID
        self.obstacle = None
        self.forget_log()

    def on_session_id(self, session_id: int) -> None:
        """Take note of the id of a fetch in pull mode."""
        if session_id not in {UNKNOWN_SESSION_ID, FINAL_SESSION_ID}:
            self.state = ReplicationState(ReplicationMode.PULL, session_id)

    def forget_log(self) -> None:
        """Take note that the replica's log is not known to be a prefix of the leader's."""
        self.log_end_offset = self.log_start_offset = self._end_at_fetch = -1
        self.is_in_sync = False

    def on_fetch(self, fetch_offset: int, log_start_offset: int, *, log_end: int, now_s: float) -> None:
        """Take note of a fetch: the replica has everything below ``fetch_offset`` (Kafka: Replica.updateFetchState).

        A replica that has now what the leader had at its fetch before was caught up at that time.
        """
        if fetch_offset >= log_end:
            self._reach(now_s)
        elif self._end_at_fetch >= 0 and fetch_offset >= self._end_at_fetch:
            self._reach(self._fetched_s)
        self._fetched_s, self._end_at_fetch = now_s, log_end
        self.log_end_offset, self.log_start_offset = fetch_offset, log_start_offset

    def on_ack(
        self, log_end_offset: int, *, log_end: int, log_end_at_send: int, sent_at_s: float, now_s: float
    ) -> None:
        """Take note of an acknowledgement of a request that was sent when the leader's log ended as stated."""
        self.log_end_offset = log_end_offset
        if log_end_offset >= log_end:
            self._reach(now_s)
        elif log_end_offset >= log_end_at_send:
            self._reach(sent_at_s)

    def on_leader_append(self, append_offset: int, now_s: float) -> None:
        """Take note that the leader's log grows from ``append_offset`` on."""
        if self.log_end_offset >= append_offset:
            self.complete_s = now_s

    def begin_session(self, session: PushSession, now_s: float) -> None:
        """Enter push mode; comes before the session begins (H1)."""
        self.state = self.state.transition(ReplicationMode.PUSH)
        self.session, self.session_began_s = session, now_s
        self.obstacle = None

    def end_session(self, reason: PushSessionEndReason, now_s: float) -> None:
        """Enter pull mode; comes before the session ends (H7)."""
        self.ended_session_id = max(self.ended_session_id, self.state.session_id)
        self.state = ReplicationState(ReplicationMode.PULL, self.state.session_id)
        self.session, self.end_reason = None, reason
        self.cooldown.on_session_end(reason, began_s=self.session_began_s, now_s=now_s)

    def lags_too_long(self, log_end: int, *, max_lag_s: float, now_s: float) -> bool:
        """Return True if the replica cannot be in sync."""
        return self.log_end_offset < log_end and now_s - self.caught_up_s > max_lag_s

    def join_in_sync(self, now_s: float) -> None:
        """Count as in sync from now on; the time for which the replica may lag begins."""
        self.is_in_sync, self.awaited_until_s = True, NEVER_S
        self.caught_up_s = max(self.caught_up_s, now_s)

    def _reach(self, at_s: float) -> None:
        self.caught_up_s = max(self.caught_up_s, at_s)
        self.complete_s = max(self.complete_s, at_s)
