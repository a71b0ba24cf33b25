"""Push sessions of the leader: identity, callbacks, and the reasons for which they end (push-replication 1.5, 1.7)."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Self

from tierd.model import TopicIdPartition


@dataclass(frozen=True, slots=True)
class PeerNode:
    """Address at which another daemon listens for push replication."""

    node_id: int
    host: str
    port: int


class PeerIdentity(NamedTuple):
    """The process at the other end of a connection, as its certificate and its Hello prove."""

    node_id: int
    process_epoch: int


@dataclass(frozen=True, slots=True)
class PushSessionIdentity:
    """Identity of a push session. The last three fields, in this order, tell which of two sessions is newer."""

    partition: TopicIdPartition
    replica_id: int
    leader_epoch: int
    replica_epoch: int
    """Process epoch of the follower: another one after each start of the follower."""
    session_id: int

    def is_newer_than(self, other: Self) -> bool:
        """Return True if this session replaces ``other``, a session of the same partition replica."""
        return (self.leader_epoch, self.replica_epoch, self.session_id) > (
            other.leader_epoch,
            other.replica_epoch,
            other.session_id,
        )


class PushSession(ABC):
    """Session that a replicator starts at the push manager. The manager calls the callbacks on the event loop.

    A callback must not raise. If it does, the session ends with ``INTERNAL_ERROR``.
    """

    def __init__(self, identity: PushSessionIdentity, node: PeerNode) -> None:
        """Describe the session; ``node`` is the follower's."""
        self.identity = identity
        self.node = node

    def __eq__(self, other: object) -> bool:
        """Compare the identities."""
        return isinstance(other, PushSession) and self.identity == other.identity

    def __hash__(self) -> int:
        """Return the hash of the identity."""
        return hash(self.identity)

    def matches_request(self, replica_epoch: int, *, leader_epoch: int, session_id: int) -> bool:
        """Return True if the ids of a request, or of the request that an answer belongs to, are this session's."""
        mine = self.identity
        return (mine.replica_epoch, mine.leader_epoch, mine.session_id) == (replica_epoch, leader_epoch, session_id)

    @abstractmethod
    def on_append_records_response(self, log_end_offset: int, log_start_offset: int, *, sent_at_s: float) -> bool:
        """Take note of an acknowledgement.

        Args:
            log_end_offset: of the follower.
            log_start_offset: of the follower; -1 when the answer has none.
            sent_at_s: monotonic time at which the request was sent.

        Returns:
            True if the leader's high watermark or low watermark rose.
        """

    @abstractmethod
    def try_complete_delayed_requests(self) -> None:
        """Wake requests that wait for a higher watermark; called after a callback that returned True."""

    @abstractmethod
    def on_push_session_ended(self, reason: "PushSessionEndReason") -> None:
        """Take note of the end; called once for each session."""


class PushSessionEndReason(IntEnum):
    """Reason for the end of a push session. The numbers are those of the wire, where they are informational."""

    NEW_LEADER_EPOCH = 0
    LEADER_RESIGNED = 1
    LEADER_REPLICATION_ERROR = 2
    REQUEST_NON_RETRIABLE_ERROR = 3
    REQUEST_RETRIES_EXHAUSTED = 4
    BUFFER_OVERFLOW = 5
    FOLLOWER_OUT_OF_ISR = 6
    FOLLOWER_RETURNED_TO_PULL = 7
    FOLLOWER_RESTARTED = 8
    FOLLOWER_LOG_DIVERGED = 9
    FOLLOWER_OFFSET_GAP = 10
    LEADER_LOG_TRUNCATED = 11
    REPLICA_REMOVED = 12
    PARTITION_DELETED = 13
    REPLICA_THROTTLED = 14
    PUSH_DISABLED = 15
    SUPERSEDED = 16
    BROKER_SHUTDOWN = 17
    INTERNAL_ERROR = 18
    RECORDS_TOO_LARGE = 19

    @property
    def notify_follower(self) -> bool:
        """Return True if a coming request tells the follower of the end."""
        return self not in _SILENT

    @property
    def has_cooldown(self) -> bool:
        """Return True if the delay before the next session of the replica doubles."""
        return self in _COOLDOWN

    @property
    def has_long_cooldown(self) -> bool:
        """Return True if the next session would fail in the same way, until a person has changed a setting (F27)."""
        return self is PushSessionEndReason.RECORDS_TOO_LARGE


_SILENT = frozenset(
    {
        PushSessionEndReason.NEW_LEADER_EPOCH,
        PushSessionEndReason.REQUEST_NON_RETRIABLE_ERROR,
        PushSessionEndReason.RECORDS_TOO_LARGE,
        PushSessionEndReason.FOLLOWER_RETURNED_TO_PULL,
        PushSessionEndReason.FOLLOWER_RESTARTED,
        PushSessionEndReason.FOLLOWER_LOG_DIVERGED,
        PushSessionEndReason.SUPERSEDED,
    }
)
_COOLDOWN = frozenset(
    {
        PushSessionEndReason.LEADER_REPLICATION_ERROR,
        PushSessionEndReason.REQUEST_NON_RETRIABLE_ERROR,
        PushSessionEndReason.RECORDS_TOO_LARGE,
        PushSessionEndReason.REQUEST_RETRIES_EXHAUSTED,
        PushSessionEndReason.BUFFER_OVERFLOW,
        PushSessionEndReason.FOLLOWER_OFFSET_GAP,
        PushSessionEndReason.INTERNAL_ERROR,
    }
)
