"""State of push replication for the metrics."""

from collections.abc import Iterable, Mapping
from typing import Final

from tierd.app.push.leader_side import LeaderSide
from tierd.app.push.push_node import PushNode
from tierd.replication import PushErrorCode, PushHistogram, ReplicatorStatus, StandbyStatus
from tierd.telemetry import (
    HistogramUse,
    PushCopyUse,
    PushLeaderUse,
    PushPeerUse,
    PushStandbyUse,
    PushUse,
    StandbyLagUse,
)

_NO_ANSWER: Final = -1


def push_use(node: PushNode) -> PushUse:
    """Return the state now."""
    port = node.listener.statistics()
    standby = None if node.standby is None else node.standby.status()
    return PushUse(
        connections=port.connections,
        refused_connections=port.refused,
        leader=_leader_use(node.leader),
        standby=None if standby is None else _standby_use(standby),
    )


def error_name(code: int) -> str:
    """Return the name of an error of an answer; ``no_answer`` for none."""
    if code == _NO_ANSWER:
        return "no_answer"
    return next((known.name.lower() for known in PushErrorCode if known == code), str(code))


def _leader_use(side: LeaderSide) -> PushLeaderUse:
    now, tail = side.manager.statistics(), side.tail.statistics()
    return PushLeaderUse(
        memory_bytes=now.memory_used_bytes,
        memory_max_bytes=now.memory_cap_bytes,
        stopping_sessions=now.stopping_sessions,
        session_starts=now.session_starts,
        session_ends={reason.name.lower(): count for reason, count in now.session_ends.items()},
        failed_callbacks=now.failed_callbacks,
        awaiting_transition=now.awaiting_transition,
        retries=_by_name(now.retries),
        resyncs=now.resyncs,
        soft_limit_hits=now.soft_limit_hits,
        queue_depths=now.queue_depths,
        peers=[
            PushPeerUse(node_id=p.node_id, sessions=p.active_sessions, oldest_unacked_s=p.oldest_unacked_s)
            for p in now.peers
        ],
        lags=_lags(side.statuses()),
        request_bytes=_histogram(now.request_bytes),
        request_partitions=_histogram(now.request_partitions),
        request_seconds=_histogram(now.request_latency_s),
        processing_seconds=_histogram(now.processing_time_s),
        tail_partitions=tail.partitions,
        tail_watched=tail.watched,
        tail_bytes=tail.taken_bytes,
        tail_cpu_s=tail.cpu_s,
    )


def _standby_use(now: StandbyStatus) -> PushStandbyUse:
    return PushStandbyUse(
        partitions=len(now.replicas),
        pushed_partitions=now.pushed_partitions,
        pull_transitions=now.pull_transitions,
        append_errors=_by_name(now.append_errors),
        duplicate_appends=now.duplicate_appends,
        appended_bytes=now.appended_bytes,
        fetched_bytes=now.fetched_bytes,
        truncated_records=now.truncated_records,
        truncations_below_high_watermark=now.truncations_below_high_watermark,
        memory_bytes=now.memory_bytes,
        copies=[
            PushCopyUse(topic=each.topic, partition=each.partition, lag_records=each.lag_records)
            for each in now.replicas
        ],
    )


def _by_name(counts: Mapping[int, int]) -> dict[str, int]:
    return {error_name(code): count for code, count in counts.items()}


def _lags(statuses: Iterable[ReplicatorStatus]) -> list[StandbyLagUse]:
    return [
        StandbyLagUse(
            topic=each.partition.topic,
            partition=each.partition.partition,
            node_id=each.replica_id,
            records=each.lag_offsets,
            size_bytes=each.lag_bytes,
            seconds=each.lag_s,
        )
        for each in statuses
    ]


def _histogram(observed: PushHistogram) -> HistogramUse:
    return HistogramUse(observed.bounds, observed.counts, observed.total)
