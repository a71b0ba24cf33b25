"""Reactions of a leader to the error codes of AppendRecords answers (push-replication 2.7)."""

from dataclasses import dataclass
from typing import Final

from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.push_session import PushSessionEndReason


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The follower took the part."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """The slot waits, and sends the same again."""


@dataclass(frozen=True, slots=True)
class ResendIntact:
    """The bytes are checked or read again, and sent once more."""


@dataclass(frozen=True, slots=True)
class Resynchronize:
    """The slot goes on at the follower's log end offset."""


@dataclass(frozen=True, slots=True)
class EndSession:
    """The session ends. With ``is_whole_peer``, all sessions of the peer end."""

    reason: PushSessionEndReason
    is_whole_peer: bool = False


AppendReaction = Acknowledge | RetryLater | ResendIntact | Resynchronize | EndSession

_REFUSED: Final = EndSession(PushSessionEndReason.REQUEST_NON_RETRIABLE_ERROR)
_PEER_REFUSED: Final = EndSession(PushSessionEndReason.REQUEST_NON_RETRIABLE_ERROR, is_whole_peer=True)
_TOO_LARGE: Final = EndSession(PushSessionEndReason.RECORDS_TOO_LARGE)
_RETRY: Final = RetryLater()

_REACTIONS: Final[dict[int, AppendReaction]] = {
    PushErrorCode.NONE: Acknowledge(),
    PushErrorCode.OFFSET_OUT_OF_RANGE: EndSession(PushSessionEndReason.FOLLOWER_OFFSET_GAP),
    PushErrorCode.CORRUPT_MESSAGE: ResendIntact(),
    PushErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _RETRY,
    PushErrorCode.REQUEST_TIMED_OUT: _RETRY,
    PushErrorCode.MESSAGE_TOO_LARGE: _TOO_LARGE,
    PushErrorCode.RECORD_LIST_TOO_LARGE: _TOO_LARGE,
    PushErrorCode.CLUSTER_AUTHORIZATION_FAILED: _PEER_REFUSED,
    PushErrorCode.UNSUPPORTED_VERSION: EndSession(PushSessionEndReason.PUSH_DISABLED, is_whole_peer=True),
    PushErrorCode.FENCED_LEADER_EPOCH: EndSession(PushSessionEndReason.NEW_LEADER_EPOCH),
    PushErrorCode.UNKNOWN_LEADER_EPOCH: _RETRY,
    PushErrorCode.STALE_BROKER_EPOCH: EndSession(PushSessionEndReason.FOLLOWER_RESTARTED, is_whole_peer=True),
    PushErrorCode.THROTTLING_QUOTA_EXCEEDED: _RETRY,
    PushErrorCode.UNKNOWN_TOPIC_ID: _RETRY,
    PushErrorCode.INCONSISTENT_TOPIC_ID: EndSession(PushSessionEndReason.PARTITION_DELETED),
    PushErrorCode.INCONSISTENT_CLUSTER_ID: _PEER_REFUSED,
    PushErrorCode.STALE_REPLICATION_SESSION: EndSession(PushSessionEndReason.FOLLOWER_RETURNED_TO_PULL),
    PushErrorCode.APPEND_OFFSET_MISMATCH: Resynchronize(),
    PushErrorCode.LOG_DIVERGED: EndSession(PushSessionEndReason.FOLLOWER_LOG_DIVERGED),
    PushErrorCode.FOLLOWER_BUSY: _RETRY,
}


def reaction_to(error_code: int) -> AppendReaction:
    """Return the reaction to a code of a request or of one of its partitions; an unknown code ends the session."""
    return _REACTIONS.get(error_code, _REFUSED)
