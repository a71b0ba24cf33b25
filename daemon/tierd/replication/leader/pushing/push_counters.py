"""Counters of push replication, and the record that ``PushManager.statistics`` returns (push-replication 6)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tierd.replication.model.push_session import PushSessionEndReason

_DURATIONS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES_BYTES: Final = tuple(4.0**exponent for exponent in range(5, 14))
_PARTITIONS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


@dataclass(frozen=True, slots=True)
class PushHistogram:
    """Counts of observations by size.

    Attributes:
        bounds: inclusive upper bounds, ascending.
        counts: of each bound, not cumulative; one more for what is above the last bound.
        total: sum of all observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class _Observations:
    """Histogram that grows."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def frozen(self) -> PushHistogram:
        return PushHistogram(self._bounds, tuple(self._counts), self._total)


class PushCounters:
    """Counters that the pushers of one manager raise.

    Attributes:
        session_ends: ended sessions by reason.
        retries: answers that were not taken, by error code; -1 for answers that did not come.
        resyncs: answers after which a slot went on at the follower's log end offset.
        ignored_sessions: starts of sessions that were older than the one that is there.
        failed_callbacks: callbacks of sessions that raised.
        awaiting_transition: observations of followers that lack only the newest records.
    """

    def __init__(self) -> None:
        """Begin with 0."""
        self.session_starts = 0
        self.session_ends: Counter[PushSessionEndReason] = Counter()
        self.retries: Counter[int] = Counter()
        self.resyncs = 0
        self.ignored_sessions = 0
        self.failed_callbacks = 0
        self.awaiting_transition = 0
        self.requests = 0
        self.request_bytes = _Observations(_SIZES_BYTES)
        self.request_partitions = _Observations(_PARTITIONS)
        self.request_latency_s = _Observations(_DURATIONS_S)
        self.processing_time_s = _Observations(_DURATIONS_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerPushStatistics:
    """State of the sessions towards one peer.

    Attributes:
        is_connected: at least one pusher has a connection.
        unacked_bytes: records that the peer lacks; shared records count for each session.
        oldest_unacked_s: age of the oldest append that the peer lacks; 0 for none.
    """

    node_id: int
    is_connected: bool
    active_sessions: int
    stopping_sessions: int
    unacked_bytes: int
    oldest_unacked_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PushStatistics:
    """State of a push manager, with the counters since its start.

    Attributes:
        memory_used_bytes: records that are queued or on their way.
        stopping_sessions: ended sessions whose follower was not told yet.
        queue_depths: slots that wait for their turn, by pusher.
    """

    memory_used_bytes: int
    memory_peak_bytes: int
    memory_cap_bytes: int
    soft_limit_hits: int
    faulty_releases: int
    active_sessions: int
    stopping_sessions: int
    peers: tuple[PeerPushStatistics, ...]
    queue_depths: tuple[int, ...]
    session_starts: int
    session_ends: Mapping[PushSessionEndReason, int]
    retries: Mapping[int, int]
    resyncs: int
    ignored_sessions: int
    failed_callbacks: int
    awaiting_transition: int
    requests: int
    request_bytes: PushHistogram
    request_partitions: PushHistogram
    request_latency_s: PushHistogram
    processing_time_s: PushHistogram
