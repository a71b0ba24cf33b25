"""ReplicaSession: a push session of one replica, and the manager that a replicator starts sessions at."""

from collections.abc import Iterable
from typing import Protocol

from tierd.model import TopicIdPartition
from tierd.replication.leader.logs.leader_log import FileRecords
from tierd.replication.leader.logs.record_memory import MemoryRecords
from tierd.replication.model.push_session import PeerNode, PushSession, PushSessionEndReason, PushSessionIdentity


class PushSessions(Protocol):
    """The part of ``PushManager`` that a replicator uses; a simulation puts a ``PushRouter`` with a clock in its place.

    The calls are those of ``PushManager``, and are made on the event loop.
    """

    @property
    def is_active(self) -> bool:
        """Return True between startup and shutdown."""

    @property
    def has_room_for_sessions(self) -> bool:
        """Return True if the buffer is empty enough for a transition."""

    def is_push_replication_supported(self, *, is_internal_topic: bool, is_cluster_link_destination: bool) -> bool:
        """Return True if partitions of such a topic may be pushed."""

    def record_follower_not_caught_up(self, partition: TopicIdPartition, replica_id: int) -> None:
        """Count a replica that lacks nothing for a transition but the newest records."""

    def start_push(self, session: PushSession) -> None:
        """Begin a session."""

    def on_leader_append(
        self,
        partition: TopicIdPartition,
        replica_ids: Iterable[int],
        append_offset: int,
        records: MemoryRecords | FileRecords,
        *,
        last_epoch: int = -1,
    ) -> None:
        """Queue an append for those of the replicas that have a session."""

    def on_high_watermark_update(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], high_watermark: int
    ) -> None:
        """Queue a high watermark."""

    def on_log_start_offset_update(
        self, partition: TopicIdPartition, replica_ids: Iterable[int], log_start_offset: int
    ) -> None:
        """Queue a log start offset."""

    def stop_push(self, partition: TopicIdPartition, replica_ids: Iterable[int], reason: PushSessionEndReason) -> None:
        """End the sessions of the replicas."""


class PushSessionOwner(Protocol):
    """Owner of sessions: a ``PartitionReplicator``."""

    def on_session_ack(
        self, session: PushSession, *, log_end_offset: int, log_start_offset: int, sent_at_s: float
    ) -> bool:
        """Take note of an acknowledgement; return True if the high watermark rose."""

    def on_session_end(self, session: PushSession, reason: PushSessionEndReason) -> None:
        """Take note of the end of a session."""

    def wake_fetches(self) -> None:
        """Wake the fetches that wait."""


class ReplicaSession(PushSession):
    """Session whose callbacks go to a replicator, which ignores those of sessions that it has ended."""

    def __init__(self, identity: PushSessionIdentity, node: PeerNode, owner: PushSessionOwner) -> None:
        """Describe the session."""
        super().__init__(identity, node)
        self._owner = owner

    def on_append_records_response(self, log_end_offset: int, log_start_offset: int, *, sent_at_s: float) -> bool:
        """Report an acknowledgement to the replicator."""
        return self._owner.on_session_ack(
            self, log_end_offset=log_end_offset, log_start_offset=log_start_offset, sent_at_s=sent_at_s
        )

    def try_complete_delayed_requests(self) -> None:
        """Wake the fetches that wait for a higher watermark."""
        self._owner.wake_fetches()

    def on_push_session_ended(self, reason: PushSessionEndReason) -> None:
        """Report the end to the replicator."""
        self._owner.on_session_end(self, reason)
