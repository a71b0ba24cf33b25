"""Error codes of push replication (push-replication 2.7). The codes below 20000 are Kafka's own."""

from enum import IntEnum


class PushErrorCode(IntEnum):
    """Error of a request or of one of its partitions. A peer may send other numbers: they end the session."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    RECORD_LIST_TOO_LARGE = 18
    CLUSTER_AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    STALE_BROKER_EPOCH = 77
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    STALE_REPLICATION_SESSION = 20001
    APPEND_OFFSET_MISMATCH = 20002
    LOG_DIVERGED = 20003
    FOLLOWER_BUSY = 20004
