"""``PushSettings``: the settings of the leader's side of push replication (push-replication 2.15)."""

from dataclasses import dataclass

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PushSettings:
    """Settings of the push manager and of the transitions from pull to push.

    Attributes:
        is_enabled: False sends nothing; followers fetch.
        max_pushers: pushers of the process.
        pushers_per_peer: pushers, each with a connection of its own, that share the partitions of one peer. Another
            number needs a restart: a partition replica keeps its pusher for the life of the manager.
        buffer_max_bytes: records that are queued or on their way, of all pushers together.
        pusher_buffer_fraction: part of ``buffer_max_bytes`` that one pusher may have.
        session_buffer_max_bytes: records that one session may have queued or on their way.
        request_max_bytes: records of one request; one larger batch is sent alone.
        partition_max_bytes: records of one partition in one request; one larger batch is sent alone.
        file_chunk_bytes: piece of a file range that is read at once.
        batch_min_bytes: records that do not wait for ``linger_s``.
        linger_s: longest wait of records for more records.
        high_watermark_linger_s: longest wait of a watermark for records that it can travel with.
        in_flight_per_peer: requests of one pusher to one peer without an answer.
        request_timeout_s: longest wait for an answer, or for a connection.
        session_unacked_max_s: longest time without progress while records wait; then the session ends.
        keepalive_s: longest silence of a session towards its follower.
        follower_idle_max_s: silence after which the follower goes back to pull.
        transition_max_lag_bytes: a follower that lacks more stays in pull.
        transition_memory_fraction: a fuller buffer begins no session.
        sends_internal_topics: True sends ``__consumer_offsets`` and the like.
        replica_lag_time_max_s: a follower that lags for longer is not in sync.
    """

    is_enabled: bool = True
    max_pushers: int = 4
    pushers_per_peer: int = 1
    buffer_max_bytes: int = 200 * _MIB
    pusher_buffer_fraction: float = 0.6
    session_buffer_max_bytes: int = 32 * _MIB
    request_max_bytes: int = 10 * _MIB
    partition_max_bytes: int = _MIB
    file_chunk_bytes: int = _MIB // 4
    batch_min_bytes: int = _MIB // 16
    linger_s: float = 0.0
    high_watermark_linger_s: float = 0.005
    in_flight_per_peer: int = 1
    request_timeout_s: float = 10.0
    session_unacked_max_s: float = 15.0
    keepalive_s: float = 3.0
    follower_idle_max_s: float = 10.0
    transition_max_lag_bytes: int = _MIB
    transition_memory_fraction: float = 0.5
    sends_internal_topics: bool = False
    replica_lag_time_max_s: float = 30.0

    def __post_init__(self) -> None:
        """Check the settings against each other.

        Raises:
            ValueError: names the settings that do not fit.
        """
        checks = {
            "1 <= pushers_per_peer <= max_pushers": 1 <= self.pushers_per_peer <= self.max_pushers,
            "1 <= partition_max_bytes <= request_max_bytes": 1 <= self.partition_max_bytes <= self.request_max_bytes,
            "1 <= file_chunk_bytes <= partition_max_bytes": 1 <= self.file_chunk_bytes <= self.partition_max_bytes,
            "buffer_max_bytes >= 2 * request_max_bytes": self.buffer_max_bytes >= 2 * self.request_max_bytes,
            "1 <= session_buffer_max_bytes <= buffer_max_bytes": 1
            <= self.session_buffer_max_bytes
            <= self.buffer_max_bytes,
            "0 < pusher_buffer_fraction <= 1": 0 < self.pusher_buffer_fraction <= 1,
            "0 <= transition_memory_fraction <= 1": 0 <= self.transition_memory_fraction <= 1,
            "transition_max_lag_bytes >= 0": self.transition_max_lag_bytes >= 0,
            "0 <= linger_s < keepalive_s": 0 <= self.linger_s < self.keepalive_s,
            "0 <= high_watermark_linger_s < keepalive_s": 0 <= self.high_watermark_linger_s < self.keepalive_s,
            "1 <= in_flight_per_peer <= 5": 1 <= self.in_flight_per_peer <= 5,
            "request_timeout_s > 0": self.request_timeout_s > 0,
            "0 < session_unacked_max_s <= replica_lag_time_max_s / 2": 0
            < self.session_unacked_max_s
            <= self.replica_lag_time_max_s / 2,
            "follower_idle_max_s > 3 * keepalive_s": self.follower_idle_max_s > 3 * self.keepalive_s,
        }
        broken = [check for check, holds in checks.items() if not holds]
        if broken:
            raise ValueError(f"settings of push replication need {', '.join(broken)}")

    @property
    def pusher_buffer_max_bytes(self) -> int:
        """Return the records that one pusher may have queued or on their way."""
        return int(self.buffer_max_bytes * self.pusher_buffer_fraction)
