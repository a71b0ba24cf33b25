"""PushTransitions: the begin and the end of push sessions of one partition (push-replication 1.8)."""

from tierd.replication.leader.logs.leader_log import LeaderLog
from tierd.replication.leader.replicas.fetch_answers import known_epoch
from tierd.replication.leader.replicas.replica_progress import ReplicaProgress
from tierd.replication.leader.replicas.replica_session import PushSessionOwner, PushSessions, ReplicaSession
from tierd.replication.leader.replicas.replica_set import ReplicaSet
from tierd.replication.leader.replicas.replicator_settings import PartitionLeadership, ReplicatorSettings
from tierd.replication.leader.replicas.transition_rules import (
    TransitionFacts,
    TransitionObstacle,
    may_close_gap,
    transition_obstacle,
)
from tierd.replication.model.messages import ReplicaFetch
from tierd.replication.model.push_session import PushSessionEndReason, PushSessionIdentity


class PushTransitions:
    """Transitions of the replicas between pull and push: the mode of a replica changes first (H1, H7)."""

    def __init__(
        self,
        log: LeaderLog,
        push: PushSessions,
        settings: ReplicatorSettings,
        replicas: ReplicaSet,
        leadership: PartitionLeadership,
    ) -> None:
        """Start and end the sessions of ``replicas`` at ``push``."""
        self._log = log
        self._push = push
        self._settings = settings
        self._replicas = replicas
        self._leadership = leadership

    def try_push(
        self, progress: ReplicaProgress, fetch: ReplicaFetch, *, owner: PushSessionOwner, now_s: float
    ) -> bool:
        """Begin a session of a replica whose fetch was accepted; return False if there is an obstacle."""
        progress.obstacle = transition_obstacle(self._facts(progress, fetch), now_s)
        if progress.obstacle is not None:
            return False
        log, replica_id, start = self._log, progress.node.node_id, fetch.fetch_offset
        # From here to the end of the registration no append can come in between: nothing is awaited.
        file = log.file_records(start, log.log_end_offset)
        size_bytes = None if file is None else file.size_bytes
        if file is None or not may_close_gap(size_bytes, max_lag_bytes=self._settings.transition_max_lag_bytes):
            if file is not None:
                file.close()
            progress.obstacle = TransitionObstacle.LAGS
            self._push.record_follower_not_caught_up(log.partition, replica_id)
            return False
        identity = PushSessionIdentity(
            log.partition, replica_id, self._leadership.epoch, progress.replica_epoch, progress.state.session_id
        )
        session = ReplicaSession(identity, progress.node, owner)
        progress.begin_session(session, now_s)
        self._push.start_push(session)
        last_epoch = known_epoch(log.lineage, start - 1)
        self._push.on_leader_append(log.partition, (replica_id,), start, file, last_epoch=last_epoch)
        self._push.on_high_watermark_update(log.partition, (replica_id,), log.high_watermark)
        self._push.on_log_start_offset_update(log.partition, (replica_id,), log.log_start_offset)
        self._replicas.list_pushed()
        return True

    def end(self, progress: ReplicaProgress, reason: PushSessionEndReason, now_s: float) -> None:
        """End the session of a replica, if it has one. The callback of the session changes nothing any more."""
        if progress.session is None:
            return
        progress.end_session(reason, now_s)
        self._replicas.list_pushed()
        if self._push.is_active:  # a stopped manager has ended its sessions itself
            self._push.stop_push(self._log.partition, (progress.node.node_id,), reason)

    def _facts(self, progress: ReplicaProgress, fetch: ReplicaFetch) -> TransitionFacts:
        push, is_internal = self._push, self._settings.is_internal_topic
        return TransitionFacts(
            is_active=push.is_active,
            is_supported=push.is_push_replication_supported(
                is_internal_topic=is_internal, is_cluster_link_destination=False
            ),
            session_id=fetch.session_id,
            ended_session_id=progress.ended_session_id,
            is_throttled=progress.is_throttled,
            is_moving=self._leadership.is_moving,
            is_in_sync=progress.is_in_sync,
            has_room=push.has_room_for_sessions,
            cooldown_until_s=progress.cooldown.until_s,
        )
