"""Refusals of leaders in words, for the status of a standby: the error, its cause, and the next step."""

from collections.abc import Mapping
from typing import Final

from tierd.replication.model.push_error_code import PushErrorCode

_IS_LOOKED_FOR: Final = "this node asks all leaders which of them leads it now"
_CAUSES: Final[Mapping[int, str]] = {
    PushErrorCode.UNKNOWN_TOPIC_OR_PARTITION: f"it does not lead the partition; {_IS_LOOKED_FOR}",
    PushErrorCode.UNKNOWN_TOPIC_ID: f"it does not lead a topic with this id; {_IS_LOOKED_FOR}",
    PushErrorCode.NOT_LEADER_OR_FOLLOWER: f"it does not lead the partition now; {_IS_LOOKED_FOR}",
    PushErrorCode.FENCED_LEADER_EPOCH: f"it has a newer leader epoch; {_IS_LOOKED_FOR}",
    PushErrorCode.UNKNOWN_LEADER_EPOCH: (
        "the copy has followed a newer leader epoch than that node has; if no other leader comes back, the epochs began"
        " anew: look at the leadership of that node"
    ),
    PushErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this node is not in push.standbys there; add it, or forget the copy",
    PushErrorCode.STALE_BROKER_EPOCH: (
        "it has met a later process of this node: compare the clocks and the node_id of the daemons, then restart it"
    ),
    PushErrorCode.KAFKA_STORAGE_ERROR: "it cannot read its log: tierd status there says why",
    PushErrorCode.REQUEST_TIMED_OUT: "its files changed as it read them; it is asked again",
    PushErrorCode.THROTTLING_QUOTA_EXCEEDED: "it has too many requests of this node; it is asked again",
    PushErrorCode.CORRUPT_MESSAGE: "it sent a damaged batch: tierd inspect on its log says where",
}


def refusal_text(code: int) -> str:
    """Return an error code with its name, and the cause and the next step where they are known."""
    name = next((known.name for known in PushErrorCode if known == code), "unknown to this version")
    cause = _CAUSES.get(code, "")
    return f"error {code}, {name}" + (f": {cause}" if cause else "")
