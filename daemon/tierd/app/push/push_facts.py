"""Section ``push`` of the status: what this host sends to its standbys, and the copies that it keeps."""

from collections import defaultdict
from collections.abc import Iterable

from pydantic import JsonValue

from tierd.app.push.leader_side import LeaderSide
from tierd.app.push.partition_leading import PushedReplica
from tierd.app.push.push_node import PushNode
from tierd.app.push.push_use import error_name
from tierd.app.push.standby_side import StandbySide
from tierd.model import TopicIdPartition, uuid_to_text
from tierd.replication import ReplicaStatus, ReplicationMode, ReplicatorStatus

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
