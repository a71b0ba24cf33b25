"""State of push replication, for the status and for the metrics: what this host sends, and the copies it keeps."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from pydantic import JsonValue

from tierd.app.push.leader_side import LeaderSide
from tierd.app.push.partition_leading import PushedReplica
from tierd.app.push.push_node import PushNode
from tierd.app.push.standby_side import StandbySide
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.replication import (
    PushErrorCode,
    PushHistogram,
    ReplicaStatus,
    ReplicationMode,
    ReplicatorStatus,
    StandbyStatus,
)
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
_MODES = {ReplicationMode.PUSH: "push", ReplicationMode.PULL: "pull"}


def push_facts(node: PushNode) -> dict[str, JsonValue]:
    """Return the section."""
    port = node.listener.statistics()
    facts: dict[str, JsonValue] = {
        "enabled": node.is_enabled,
        "node_id": node.identity.node_id,
        "process_epoch": node.identity.process_epoch,
        "connections": port.connections,
        "connections_refused": port.refused + port.no_place,
        "certificate_problem": node.certificate_problem,
        "leader": _leader(node.leader),
    }
    if node.standby is not None:
        facts["standby"] = _standby(node.standby)
    return facts


def _leader(side: LeaderSide) -> dict[str, JsonValue]:
    now, tail = side.manager.statistics(), side.tail.statistics()
    statuses: dict[TopicIdPartition, list[ReplicatorStatus]] = defaultdict(list)
    for status in side.statuses():
        statuses[status.partition].append(status)
    replicas = sorted(side.leading.replicas(), key=lambda each: each.partition.topic_partition)
    return {
        "memory_bytes": now.memory_used_bytes,
        "memory_max_bytes": now.memory_cap_bytes,
        "peers": [
            {
                "node_id": peer.node_id,
                "connected": peer.is_connected,
                "sessions": peer.active_sessions,
                "stopping_sessions": peer.stopping_sessions,
                "unacked_bytes": peer.unacked_bytes,
                "oldest_unacked_ms": _ms(peer.oldest_unacked_s),
            }
            for peer in now.peers
        ],
        "tail": {
            "partitions": tail.partitions,
            "watched": tail.watched,
            "missing": tail.missing,
            "bytes": tail.taken_bytes,
            "restarts": tail.restarts,
            "cpu_ms": _ms(tail.cpu_s),
            "oldest_job_ms": _ms(tail.oldest_job_s),
            "watch_problem": tail.watch_problem,
            "log_dir_problems": {str(path): problem for path, problem in tail.log_dir_problems.items()},
            "problems": {str(partition): problem for partition, problem in tail.problems.items()},
        },
        "partitions": [_led(each, statuses[each.partition]) for each in replicas if each.is_sent or each.problem],
    }


def _led(replica: PushedReplica, statuses: Iterable[ReplicatorStatus]) -> dict[str, JsonValue]:
    log = None if replica.opened is None else replica.opened.log
    return {
        "partition": str(replica.partition.topic_partition),
        "topic_id": uuid_to_text(replica.partition.topic_id),
        "leader_epoch": -1 if log is None else log.leader_epoch,
        "log_start_offset": -1 if log is None else log.log_start_offset,
        "log_end_offset": -1 if log is None else log.log_end_offset,
        "high_watermark": -1 if log is None else log.high_watermark,
        "problem": replica.problem,
        "standbys": [
            {
                "node_id": status.replica_id,
                "mode": _MODES[status.mode],
                "session_id": status.session_id,
                "log_end_offset": status.log_end_offset,
                "in_sync": status.is_in_sync,
                "lag_records": status.lag_offsets,
                "lag_bytes": status.lag_bytes,
                "lag_ms": _ms(status.lag_s),
                "why_not_pushed": status.why_not_pushed,
            }
            for status in statuses
        ],
    }


def _standby(side: StandbySide) -> dict[str, JsonValue]:
    now = side.status()
    if now is None:
        return {"ready": False}
    return {
        "ready": True,
        "leaders": [{"node_id": node_id, "problem": problem} for node_id, problem in sorted(now.leaders.items())],
        "conflicts": dict(now.conflicts),
        "memory_bytes": now.memory_bytes,
        "disk_full": now.is_disk_full,
        "appended_bytes": now.appended_bytes,
        "fetched_bytes": now.fetched_bytes,
        "append_errors": {error_name(code): count for code, count in now.append_errors.items()},
        "truncated_records": now.truncated_records,
        "partitions": [_copy(each) for each in now.replicas],
    }


def _copy(replica: ReplicaStatus) -> dict[str, JsonValue]:
    return {
        "partition": f"{replica.topic}-{replica.partition}",
        "topic_id": replica.topic_id,
        "leader": replica.leader_id,
        "leader_epoch": replica.leader_epoch,
        "mode": _MODES[replica.mode],
        "session_id": replica.session_id,
        "stage": replica.stage.name.lower(),
        "log_start_offset": replica.log_start_offset,
        "log_end_offset": replica.log_end_offset,
        "high_watermark": replica.high_watermark,
        "lag_records": replica.lag_records,
        "online": replica.is_online,
        "rebuilding": replica.is_rebuilding,
        "last_error": replica.last_error,
    }


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


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
        unread_partitions=tail.broken + sum(bool(each.problem) for each in side.leading.replicas()),
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
